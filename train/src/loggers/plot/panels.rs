//! Panels of a plot: which metrics are drawn together.

use super::super::{Row, Split, is_fraction};

/// Further panels are left to the table.
const PANEL_LIMIT: usize = 8;

/// Curves with common axes.
#[derive(Default)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) percent: bool,
    pub(super) is_loss: bool,
    pub(super) curves: Vec<Curve>,
}

/// Values of one metric on one split, by step.
pub(super) struct Curve {
    pub(super) metric: String,
    pub(super) split: Split,
    /// The run it is of, where several are drawn together.
    pub(super) run: Option<String>,
    pub(super) points: Vec<(f64, f64)>,
}

impl Panel {
    /// A panel named after its metrics.
    fn of(curves: Vec<Curve>) -> Self {
        let mut names: Vec<&str> = curves.iter().map(|curve| &*curve.metric).collect();
        names.sort_unstable();
        names.dedup();
        Panel {
            title: names.join(", "),
            curves,
            ..Panel::default()
        }
    }
}

/// Panels of a run: losses first, then fractions, then every other metric by itself, in the order of
/// their occurrence.
pub(super) fn panels_of(rows: &[Row]) -> Vec<Panel> {
    let (mut losses, mut fractions) = (Vec::new(), Vec::new());
    let mut others: Vec<Vec<Curve>> = Vec::new();
    for curve in curves_of(rows) {
        let mut values = curve.points.iter().map(|point| point.1);
        if is_fraction(&curve.metric) && values.all(|value| (0.0..=1.0).contains(&value)) {
            fractions.push(curve);
        } else if curve.metric.to_ascii_lowercase().contains("loss") {
            losses.push(curve);
        } else if let Some(same) = others.iter_mut().find(|of| of[0].metric == curve.metric) {
            same.push(curve);
        } else {
            others.push(vec![curve]);
        }
    }
    let losses = Panel {
        is_loss: true,
        ..Panel::of(losses)
    };
    let fractions = Panel {
        percent: true,
        ..Panel::of(fractions)
    };
    let panels = [losses, fractions]
        .into_iter()
        .chain(others.into_iter().map(Panel::of));
    let panels = panels.filter(|panel| !panel.curves.is_empty());
    panels.take(PANEL_LIMIT).collect()
}

/// Panels of several runs: one for each metric, with a curve for each run.
pub(super) fn panels_of_runs(runs: &[(String, Vec<Row>)]) -> Vec<Panel> {
    let mut rows = runs.iter().flat_map(|(_, rows)| rows);
    let split = if rows.any(|row| row.split == Split::Validation) {
        Split::Validation
    } else {
        Split::Train
    };
    let mut curves: Vec<Vec<Curve>> = Vec::new();
    for (name, rows) in runs {
        for mut curve in curves_of(rows) {
            curve.run = Some(name.clone());
            match curves.iter_mut().find(|of| of[0].metric == curve.metric) {
                _ if curve.split != split => {}
                Some(same) => same.push(curve),
                None => curves.push(vec![curve]),
            }
        }
    }
    let panel = |curves: Vec<Curve>| {
        let metric = &curves[0].metric;
        let mut values = curves.iter().flat_map(|curve| &curve.points);
        Panel {
            percent: is_fraction(metric) && values.all(|(_, value)| (0.0..=1.0).contains(value)),
            is_loss: metric.to_ascii_lowercase().contains("loss"),
            title: format!("{split} {metric}"),
            curves,
        }
    };
    curves.into_iter().map(panel).take(PANEL_LIMIT).collect()
}

fn curves_of(rows: &[Row]) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for row in rows {
        // A run with larger values has diverged, and the axis would not be drawn in finite time.
        for (name, value) in row.metrics.iter().filter(|(_, value)| value.abs() < 1e100) {
            let value = if value.abs() < 1e-100 { 0.0 } else { *value };
            let point = (row.step as f64, value);
            let is_same = |curve: &&mut Curve| curve.split == row.split && curve.metric == *name;
            match curves.iter_mut().find(is_same) {
                Some(curve) => curve.points.push(point),
                None => curves.push(Curve {
                    metric: name.clone(),
                    split: row.split,
                    run: None,
                    points: vec![point],
                }),
            }
        }
    }
    curves
}
