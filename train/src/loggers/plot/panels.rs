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
                    points: vec![point],
                }),
            }
        }
    }
    curves
}
