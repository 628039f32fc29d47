//! A run's metrics as a picture: one panel for losses, one for accuracies, one for each other metric.
//!
//! SVG only: text stays text, so no font has to be found, and every browser shows it.

use std::{ops::Range, path::Path};

use halite_core::{Error, ErrorKind, Result};
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{Row, Split, is_fraction};
use crate::files;

const OP: &str = "plot";
const PANEL: (u32, u32) = (560, 380);
const TITLE_HEIGHT: u32 = 44;
/// More points than this are not seen: neighbours are averaged.
const POINTS: usize = 500;
/// Panels beyond this are for a table, not a picture.
const MOST_PANELS: usize = 8;
const TEXT: RGBColor = RGBColor(0x33, 0x33, 0x33);
const GRID: RGBColor = RGBColor(0xe3, 0xe3, 0xe3);

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
    let panels = panels_of(rows);
    let columns = if panels.len() > 1 { 2 } else { 1 };
    let lines = panels.len().div_ceil(columns).max(1);
    let size = (PANEL.0 * columns as u32, PANEL.1 * lines as u32 + TITLE_HEIGHT);
    let mut svg = String::new();
    let drawn = {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&root, title, &panels, (lines, columns))
    };
    drawn.map_err(|error| Error::new(ErrorKind::Internal, OP, format!("drawing failed: {error}")))?;
    Ok(svg)
}

struct Panel {
    title: String,
    percent: bool,
    curves: Vec<Curve>,
}

struct Curve {
    metric: String,
    split: Split,
    points: Vec<(f64, f64)>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

fn draw(root: &Area<'_>, title: &str, panels: &[Panel], grid: (usize, usize)) -> Drawn {
    root.fill(&WHITE)?;
    let (head, body) = root.split_vertically(TITLE_HEIGHT);
    let middle = (head.dim_in_pixel().0 as i32 / 2, TITLE_HEIGHT as i32 / 2 + 4);
    head.draw(&Text::new(title.to_string(), middle, font(21).pos(Pos::new(HPos::Center, VPos::Center))))?;
    if panels.is_empty() {
        let (width, height) = body.dim_in_pixel();
        let middle = (width as i32 / 2, height as i32 / 2);
        body.draw(&Text::new("no metrics yet", middle, font(16).pos(Pos::new(HPos::Center, VPos::Center))))?;
    }
    for (panel, area) in panels.iter().zip(body.split_evenly(grid)) {
        draw_panel(&area, panel)?;
    }
    root.present()?;
    Ok(())
}

fn draw_panel(area: &Area<'_>, panel: &Panel) -> Drawn {
    let points = || panel.curves.iter().flat_map(|curve| &curve.points);
    let steps = span(points().map(|point| point.0), 0.0);
    let values = span(points().map(|point| point.1), 0.06);
    // A part of a whole is between 0 and 1, and so is its axis.
    let values = if panel.percent { values.start.max(0.0)..values.end.min(1.0) } else { values };

    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_right(24)
        .caption(&panel.title, font(17))
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(steps.clone(), values.clone())?;
    let width = values.end - values.start;
    let y_label = |value: &f64| if panel.percent { percent(*value, width) } else { plain(*value, width) };
    chart
        .configure_mesh()
        .x_desc("step")
        .x_labels(6)
        .y_labels(6)
        .x_label_formatter(&|step| plain(*step, steps.end - steps.start))
        .y_label_formatter(&y_label)
        .label_style(font(13))
        .axis_desc_style(font(14))
        .axis_style(TEXT)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .draw()?;

    for (index, curve) in panel.curves.iter().enumerate() {
        let color = color(curve, index, &panel.curves);
        let points = thin(&curve.points);
        // Validation comes seldom: its points are marked, and one alone is seen too.
        let radius = if curve.split != Split::Train || points.len() == 1 { 3 } else { 0 };
        if radius > 0 {
            chart.draw_series(points.iter().map(|&point| Circle::new(point, radius, color.filled())))?;
        }
        let several = panel.curves.iter().any(|other| other.metric != curve.metric);
        let label = if several { format!("{} {}", curve.split, curve.metric) } else { curve.split.to_string() };
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(3)));
    }
    let corner = if panel.percent { SeriesLabelPosition::LowerRight } else { SeriesLabelPosition::UpperRight };
    chart
        .configure_series_labels()
        .position(corner)
        .margin(10)
        .legend_area_size(24)
        .label_font(font(14))
        .background_style(WHITE.mix(0.85))
        .border_style(GRID)
        .draw()?;
    Ok(())
}

fn font(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&TEXT)
}

/// Training is blue, validation is red, test is green; several metrics in one panel are told apart by lightness.
fn color(curve: &Curve, index: usize, curves: &[Curve]) -> RGBColor {
    let RGBColor(r, g, b) = match curve.split {
        Split::Train => RGBColor(0x1f, 0x6f, 0xb4),
        Split::Validation => RGBColor(0xd6, 0x3a, 0x2f),
        Split::Test => RGBColor(0x2c, 0x8c, 0x4a),
    };
    let before = curves[..index].iter().filter(|other| other.split == curve.split).count();
    let lighter = |channel: u8| channel + ((255 - channel) as usize * before.min(3) / 5) as u8;
    RGBColor(lighter(r), lighter(g), lighter(b))
}

/// Losses first, then fractions, then every other metric by itself, in the order they come.
fn panels_of(rows: &[Row]) -> Vec<Panel> {
    let mut curves: Vec<Curve> = Vec::new();
    for row in rows {
        for (name, value) in row.metrics.iter().filter(|(_, value)| value.is_finite()) {
            let point = (row.step as f64, *value);
            match curves.iter_mut().find(|curve| curve.split == row.split && curve.metric == *name) {
                Some(curve) => curve.points.push(point),
                None => curves.push(Curve { metric: name.clone(), split: row.split, points: vec![point] }),
            }
        }
    }
    let mut losses = Panel { title: "loss".into(), percent: false, curves: Vec::new() };
    let mut fractions = Panel { title: String::new(), percent: true, curves: Vec::new() };
    let mut others: Vec<Panel> = Vec::new();
    for curve in curves {
        let in_range = curve.points.iter().all(|point| (0.0..=1.0).contains(&point.1));
        if is_fraction(&curve.metric) && in_range {
            fractions.curves.push(curve);
        } else if curve.metric.to_ascii_lowercase().contains("loss") {
            losses.curves.push(curve);
        } else if let Some(panel) = others.iter_mut().find(|panel| panel.title == curve.metric) {
            panel.curves.push(curve);
        } else {
            others.push(Panel { title: curve.metric.clone(), percent: false, curves: vec![curve] });
        }
    }
    for panel in [&mut losses, &mut fractions] {
        let mut names: Vec<&str> = panel.curves.iter().map(|curve| &*curve.metric).collect();
        names.dedup();
        names.sort_unstable();
        names.dedup();
        panel.title = names.join(", ");
    }
    let panels = [losses, fractions].into_iter().chain(others).filter(|panel| !panel.curves.is_empty());
    panels.take(MOST_PANELS).collect()
}

/// From the least to the greatest value, with a margin, and never empty.
fn span(values: impl Iterator<Item = f64>, margin: f64) -> Range<f64> {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return 0.0..1.0;
    }
    if low == high {
        let around = if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
        return low - around..high + around;
    }
    // Halved first: the width of the widest span is no number.
    let margin = (high / 2.0 - low / 2.0) * 2.0 * margin;
    (low - margin).max(f64::MIN / 4.0)..(high + margin).min(f64::MAX / 4.0)
}

fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let each = points.len().div_ceil(POINTS).max(1);
    let mean = |part: &[(f64, f64)]| {
        let count = part.len() as f64;
        (part.iter().map(|point| point.0 / count).sum(), part.iter().map(|point| point.1 / count).sum())
    };
    points.chunks(each).map(mean).collect()
}

/// A tick of an axis that is `width` wide, with as many digits as tell it from its neighbours.
fn plain(value: f64, width: f64) -> String {
    let digits = digits_for(width);
    if value != 0.0 && (value.abs() >= 1e6 || width < 1e-4) { format!("{value:.2e}") } else { format!("{value:.digits$}") }
}

fn percent(value: f64, width: f64) -> String {
    format!("{:.*} %", digits_for(width * 100.0), value * 100.0)
}

fn digits_for(width: f64) -> usize {
    // Six ticks over 3.0 are half a unit apart: one digit. Over 30: none.
    let exponent = (width / 6.0).max(1e-9).log10().floor();
    if exponent >= 0.0 { 0 } else { (-exponent) as usize }
}
