//! The plot of a learning-rate range test.

use halite_core::{Error, ErrorKind, Result};
use plotters::prelude::*;

use super::{
    OP, PANEL,
    draw::{Drawn, GRID, RUNS, TEXT, font},
    span,
    ticks::{log_ticks, plain, short},
};

/// Losses by the learning rate, on a logarithmic axis, with the suggested rate, as the text of an
/// SVG picture.
///
/// # Errors
/// None is known; drawing into text does not fail.
pub(crate) fn render_range(points: &[(f64, f64)], suggestion: Option<f64>) -> Result<String> {
    let mut svg = String::new();
    draw(&mut svg, points, suggestion)
        .map_err(|error| Error::new(ErrorKind::Internal, OP, format!("drawing failed: {error}")))?;
    Ok(svg)
}

fn draw(svg: &mut String, points: &[(f64, f64)], suggestion: Option<f64>) -> Drawn {
    let root = SVGBackend::with_string(svg, PANEL).into_drawing_area();
    root.fill(&WHITE)?;
    let rates = span(points.iter().map(|point| point.0), 0.0);
    let rates = rates.start.max(f64::MIN_POSITIVE)..rates.end;
    let losses = span(points.iter().map(|point| point.1), 0.06);
    let ticks = log_ticks(&rates);
    let title = match suggestion {
        Some(rate) => format!("range test: {rate:.2e} is suggested"),
        None => "range test: the loss does not fall".to_string(),
    };
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .margin_right(24)
        .caption(title, font(17))
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(rates.log_scale().with_key_points(ticks), losses.clone())?;
    chart
        .configure_mesh()
        .x_desc("learning rate (logarithmic)")
        .y_desc("loss (smoothed)")
        .y_labels(6)
        .x_label_formatter(&|rate| short(*rate))
        .y_label_formatter(&|loss| plain(*loss, losses.end - losses.start))
        .label_style(font(13))
        .axis_desc_style(font(14))
        .axis_style(TEXT)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .draw()?;
    let line = LineSeries::new(points.iter().copied(), RUNS[0].stroke_width(2));
    chart.draw_series(line)?;
    let suggested = points.iter().filter(|point| Some(point.0) == suggestion);
    chart.draw_series(suggested.map(|&point| Circle::new(point, 5, RUNS[1].filled())))?;
    root.present()?;
    Ok(())
}
