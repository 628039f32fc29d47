//! Drawing of panels: axes, grid, curves and legends.

use std::ops::Range;

use plotters::{
    coord::{
        Shift,
        ranged1d::{AsRangedCoord, ValueFormatter},
        types::RangedCoordf64,
    },
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{
    super::Split,
    LOG_FROM, TITLE_HEIGHT,
    panels::{Curve, Panel},
    span, thin,
    ticks::{log_ticks, percent, plain, short},
};

pub(super) const TEXT: RGBColor = RGBColor(0x33, 0x33, 0x33);

/// Colors of runs in one panel.
pub(super) const RUNS: [RGBColor; 8] = [
    RGBColor(0x1f, 0x6f, 0xb4),
    RGBColor(0xd6, 0x3a, 0x2f),
    RGBColor(0x2c, 0x8c, 0x4a),
    RGBColor(0xe6, 0x8a, 0x00),
    RGBColor(0x7b, 0x4f, 0xa3),
    RGBColor(0x00, 0x96, 0x9e),
    RGBColor(0x8c, 0x56, 0x4b),
    RGBColor(0x66, 0x66, 0x66),
];

pub(super) const GRID: RGBColor = RGBColor(0xe3, 0xe3, 0xe3);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(super) type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

pub(super) fn draw(root: &Area<'_>, title: &str, panels: &[Panel], grid: (usize, usize)) -> Drawn {
    root.fill(&WHITE)?;
    let (head, body) = root.split_vertically(TITLE_HEIGHT);
    let middle = (
        head.dim_in_pixel().0 as i32 / 2,
        TITLE_HEIGHT as i32 / 2 + 4,
    );
    head.draw(&Text::new(
        title.to_string(),
        middle,
        font(21).pos(Pos::new(HPos::Center, VPos::Center)),
    ))?;
    if panels.is_empty() {
        let (width, height) = body.dim_in_pixel();
        let middle = (width as i32 / 2, height as i32 / 2);
        body.draw(&Text::new(
            "no metrics yet",
            middle,
            font(16).pos(Pos::new(HPos::Center, VPos::Center)),
        ))?;
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
    let exact = span(points().map(|point| point.1), 0.0);
    if panel.is_loss && exact.start > 0.0 && exact.end / exact.start >= LOG_FROM {
        // A linear axis hides everything after the first steep fall.
        let values = exact.start / 1.15..exact.end * 1.15;
        let ticks = log_ticks(&values);
        let values = values.log_scale().with_key_points(ticks);
        return draw_chart(
            area,
            panel,
            &format!("{} (logarithmic)", panel.title),
            steps,
            values,
            &short,
        );
    }
    let values = span(points().map(|point| point.1), 0.06);
    let width = values.end - values.start;
    if panel.percent {
        // A part of a whole is between 0 and 1, and so is its axis.
        let values = values.start.max(0.0)..values.end.min(1.0);
        return draw_chart(area, panel, &panel.title, steps, values, &|value| {
            percent(value, width)
        });
    }
    draw_chart(area, panel, &panel.title, steps, values, &|value| {
        plain(value, width)
    })
}

fn draw_chart<V: AsRangedCoord<Value = f64>>(
    area: &Area<'_>,
    panel: &Panel,
    title: &str,
    steps: Range<f64>,
    values: V,
    value_label: &dyn Fn(f64) -> String,
) -> Drawn
where
    V::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_right(24)
        .caption(title, font(17))
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(steps.clone(), values)?;
    chart
        .configure_mesh()
        .x_desc("step")
        .x_labels(6)
        .y_labels(6)
        .x_label_formatter(&|step| plain(*step, steps.end - steps.start))
        .y_label_formatter(&|value| value_label(*value))
        .label_style(font(13))
        .axis_desc_style(font(14))
        .axis_style(TEXT)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .draw()?;

    for index in 0..panel.curves.len() {
        draw_curve(&mut chart, &panel.curves, index)?;
    }
    let corner = if panel.percent {
        SeriesLabelPosition::LowerRight
    } else {
        SeriesLabelPosition::UpperRight
    };
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

/// Draws one of the `curves` of a chart.
fn draw_curve<'a, 'b: 'a, V: Ranged<ValueType = f64>>(
    chart: &mut ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, V>>,
    curves: &[Curve],
    index: usize,
) -> Drawn {
    let curve = &curves[index];
    let color = color(curve, index, curves);
    let points = thin(&curve.points);
    // Validation points are rare: they are marked, so that a single one is visible too.
    if curve.split != Split::Train || points.len() == 1 {
        let circle = |&point| Circle::new(point, 3, color.filled());
        chart.draw_series(points.iter().map(circle))?;
    }
    let several = curves.iter().any(|other| other.metric != curve.metric);
    let label = match &curve.run {
        Some(run) => run.clone(),
        None if several => format!("{} {}", curve.split, curve.metric),
        None => curve.split.to_string(),
    };
    chart
        .draw_series(LineSeries::new(points, color.stroke_width(2)))?
        .label(label)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(3)));
    Ok(())
}

pub(super) fn font(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&TEXT)
}

/// Training is blue, validation is red, test is green; several metrics in one panel differ
/// by lightness.
fn color(curve: &Curve, index: usize, curves: &[Curve]) -> RGBColor {
    if curve.run.is_some() {
        return RUNS[index % RUNS.len()];
    }
    let RGBColor(r, g, b) = match curve.split {
        Split::Train => RGBColor(0x1f, 0x6f, 0xb4),
        Split::Validation => RGBColor(0xd6, 0x3a, 0x2f),
        Split::Test => RGBColor(0x2c, 0x8c, 0x4a),
    };
    let before = curves[..index]
        .iter()
        .filter(|other| other.split == curve.split)
        .count();
    let lighter = |channel: u8| channel + ((255 - channel) as usize * before.min(2) * 2 / 5) as u8;
    RGBColor(lighter(r), lighter(g), lighter(b))
}
