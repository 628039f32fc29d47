//! A run's metrics as a picture: one panel for losses, one for accuracies, one for each other
//! metric.
//!
//! SVG only: text stays text, so no font has to be found, and every browser shows it.

mod draw;
mod panels;
mod range;
mod ticks;

use std::{ops::Range, path::Path};

use halite_core::{Error, ErrorKind, Result};
use plotters::prelude::*;

pub(crate) use self::range::render_range;
use self::{
    draw::draw,
    panels::{Panel, panels_of, panels_of_runs},
};
use super::Row;
use crate::files;

const OP: &str = "plot";
const PANEL: (u32, u32) = (560, 380);
const TITLE_HEIGHT: u32 = 44;
/// A loss that falls by this factor is drawn on a logarithmic axis.
const LOG_FROM: f64 = 10.0;
/// Longer curves are downsampled: neighbours are averaged.
const POINTS: usize = 500;

/// Writes a plot of `rows` as SVG, replacing the file in one step.
///
/// # Errors
/// If the file cannot be written.
pub fn plot_metrics(path: impl AsRef<Path>, title: &str, rows: &[Row]) -> Result<()> {
    let (path, svg) = (path.as_ref(), render_metrics(title, rows)?);
    files::replace(path, svg.as_bytes()).map_err(|error| files::failed(OP, "write", path, &error))
}

/// A plot of `rows` as the text of an SVG picture.
///
/// # Errors
/// None is known; drawing into text does not fail.
pub fn render_metrics(title: &str, rows: &[Row]) -> Result<String> {
    render(title, &panels_of(rows))
}

/// A plot of several runs, by name, as the text of an SVG picture: one panel for each metric, with a
/// curve for each run. Metrics of training are left out if there are some of validation.
///
/// # Errors
/// None is known; drawing into text does not fail.
pub fn render_runs(title: &str, runs: &[(String, Vec<Row>)]) -> Result<String> {
    render(title, &panels_of_runs(runs))
}

fn render(title: &str, panels: &[Panel]) -> Result<String> {
    let columns = if panels.len() > 1 { 2 } else { 1 };
    let lines = panels.len().div_ceil(columns).max(1);
    let size = (
        PANEL.0 * columns as u32,
        PANEL.1 * lines as u32 + TITLE_HEIGHT,
    );
    let mut svg = String::new();
    let drawn = {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&root, title, panels, (lines, columns))
    };
    drawn
        .map_err(|error| Error::new(ErrorKind::Internal, OP, format!("drawing failed: {error}")))?;
    Ok(svg)
}
/// Range from the least to the greatest value with a margin. Never empty.
fn span(values: impl Iterator<Item = f64>, margin: f64) -> Range<f64> {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low > high {
        return 0.0..1.0;
    }
    // Narrower than this, ticks would not differ from each other as numbers.
    let size = low.abs().max(high.abs());
    if high - low <= size * 1e-9 {
        let around = if size == 0.0 { 1.0 } else { size * 0.1 };
        return low - around..high + around;
    }
    let margin = (high - low) * margin;
    low - margin..high + margin
}

fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let each = points.len().div_ceil(POINTS).max(1);
    let mean = |part: &[(f64, f64)]| {
        let count = part.len() as f64;
        (
            part.iter().map(|point| point.0 / count).sum(),
            part.iter().map(|point| point.1 / count).sum(),
        )
    };
    points.chunks(each).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::Split, *};

    /// A run like that of a small network on digits.
    fn run(steps: u64) -> Vec<Row> {
        let row = |step: u64, split: Split, metrics: &[(&str, f64)]| Row {
            step,
            epoch: step / 469,
            seconds: step as f64 / 60.0,
            split,
            metrics: metrics
                .iter()
                .map(|&(name, value)| (name.to_string(), value))
                .collect(),
        };
        let mut rows = Vec::new();
        for step in (10..=steps).step_by(10) {
            let wobble = ((step * 7919 % 101) as f64 / 101.0 - 0.5) * 0.06;
            let loss = 2.3 * (-(step as f64) / 60.0).exp() + 0.06 + wobble;
            rows.push(row(
                step,
                Split::Train,
                &[
                    ("loss", loss),
                    ("accuracy", (1.0 - loss / 2.6 + wobble).clamp(0.0, 1.0)),
                ],
            ));
            if step % 470 == 0 {
                rows.push(row(
                    step,
                    Split::Validation,
                    &[("loss", 0.07), ("accuracy", 0.979 + step as f64 / 1e5)],
                ));
            }
        }
        rows
    }

    fn texts(svg: &str) -> Vec<&str> {
        svg.split("<text")
            .skip(1)
            .filter_map(|text| text.split_once(">\n")?.1.split_once("\n</text>"))
            .map(|(text, _)| text)
            .collect()
    }

    #[test]
    fn each_kind_of_metric_has_its_panel() {
        let mut rows = run(940);
        for row in rows.iter_mut().filter(|row| row.split == Split::Train) {
            row.metrics.push((
                "learning_rate".into(),
                1e-3 * (1.0 - row.step as f64 / 1000.0),
            ));
            row.metrics.push(("top5 accuracy".into(), 0.999));
        }
        let svg = render_metrics("a <run> & \"more\"", &rows).unwrap();
        let texts = texts(&svg);
        assert_eq!(texts[0], "a &lt;run&gt; &amp; &quot;more&quot;");
        for want in [
            "loss (logarithmic)",
            "0.05",
            "accuracy, top5 accuracy",
            "100 %",
            "learning_rate",
            "0.0002",
            "step",
            "400",
            "train",
            "validation",
            "train top5 accuracy",
        ] {
            assert!(texts.contains(&want), "no `{want}` in {texts:?}");
        }
        assert!(svg.ends_with("</svg>\n"));
        // Two losses, three accuracies, one rate.
        assert_eq!(svg.matches("stroke-width=\"2\"").count(), 6);
    }

    #[test]
    fn plot_may_have_no_rows_or_one() {
        assert_eq!(
            texts(&render_metrics("new", &[]).unwrap()),
            ["new", "no metrics yet"]
        );
        let one = render_metrics("new", &run(10)).unwrap();
        assert!(texts(&one).contains(&"loss"));
        assert_eq!(one.matches("<circle").count(), 2);
    }

    #[test]
    fn long_runs_are_downsampled() {
        let long = render_metrics("long", &run(200_000)).unwrap();
        assert!(long.len() < 200_000, "{} bytes", long.len());

        let odd = [
            f64::MAX,
            f64::MIN,
            f64::MIN_POSITIVE,
            f64::NAN,
            f64::INFINITY,
            0.0,
            -0.0,
            1e300,
            1e-300,
            1e99,
            -1e99,
            1e-99,
            1.0,
            1.0 + f64::EPSILON,
            1.0 + 1e-8,
        ];
        for a in odd {
            for b in odd {
                let row = |step, value: f64| Row {
                    step,
                    epoch: 0,
                    seconds: 0.0,
                    split: Split::Train,
                    metrics: vec![
                        ("loss".into(), value),
                        ("accuracy".into(), value),
                        ("x".into(), value),
                    ],
                };
                for last_step in [0, 1, u64::MAX] {
                    let svg = render_metrics("odd", &[row(0, a), row(last_step, b)]).unwrap();
                    assert!(!svg.contains("NaN") && svg.len() < 100_000, "{a} {b}");
                }
            }
        }
    }

    #[test]
    fn runs_share_the_panel_of_a_metric() {
        let runs = ["first", "second"].map(|name| (name.to_string(), run(940)));
        let svg = render_runs("runs", &runs).unwrap();
        let texts = texts(&svg);
        let count = |text: &str| texts.iter().filter(|found| **found == text).count();
        assert_eq!(count("validation loss"), 1, "{texts:?}");
        assert_eq!(count("validation accuracy"), 1, "{texts:?}");
        // A legend in each of both panels; training has no panel of its own.
        assert_eq!([count("first"), count("second")], [2, 2], "{texts:?}");
        assert!(
            !texts.iter().any(|text| text.contains("train")),
            "{texts:?}"
        );
    }

    #[test]
    fn plot_is_written_to_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.svg");
        plot_metrics(&path, "mnist", &run(940)).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            render_metrics("mnist", &run(940)).unwrap()
        );
        if let Some(keep) = std::env::var_os("HALITE_KEEP_PLOT") {
            std::fs::copy(&path, keep).unwrap();
        }
    }
}
