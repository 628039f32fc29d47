//! Ticks of the axes of a plot, and their labels.

use std::ops::Range;

/// Ticks of a logarithmic axis: 1, 2 and 5 times powers of ten, or only powers of ten where those
/// are many.
pub(super) fn log_ticks(values: &Range<f64>) -> Vec<f64> {
    let powers = values.start.log10().floor() as i32..=values.end.log10().ceil() as i32;
    let ticks = |factors: &[f64], each: usize| -> Vec<f64> {
        let powers = powers.clone().step_by(each);
        let ticks =
            powers.flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
        ticks.filter(|tick| values.contains(tick)).collect()
    };
    let fine = ticks(&[1.0, 2.0, 5.0], 1);
    if fine.len() <= 9 {
        fine
    } else {
        ticks(&[1.0], powers.clone().count().div_ceil(9))
    }
}

/// Label of a tick of a logarithmic axis.
pub(super) fn short(value: f64) -> String {
    // Ticks are computed, and off in the last bit.
    let rounded: f64 = format!("{value:.2e}").parse().unwrap_or(value);
    if (1e-5..1e6).contains(&rounded) {
        rounded.to_string()
    } else {
        format!("{rounded:e}")
    }
}

/// Label of a tick of an axis that is `width` wide, with enough digits to differ from its
/// neighbours.
pub(super) fn plain(value: f64, width: f64) -> String {
    let digits = digits_for(width);
    if value != 0.0 && (value.abs() >= 1e6 || width < 1e-4) {
        format!("{value:.2e}")
    } else {
        format!("{value:.digits$}")
    }
}

/// Label of a tick of an axis of fractions.
pub(super) fn percent(value: f64, width: f64) -> String {
    format!("{:.*} %", digits_for(width * 100.0), value * 100.0)
}

/// Decimals that distinguish the ticks of an axis that is `width` wide.
fn digits_for(width: f64) -> usize {
    // Six ticks over 3.0 are half a unit apart: one digit. Over 30: none.
    let exponent = (width / 6.0).max(1e-9).log10().floor();
    if exponent >= 0.0 {
        0
    } else {
        (-exponent) as usize
    }
}
