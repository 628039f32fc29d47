//! Numbers and names as people read them.

use halite_nn::schedule::Mode;

/// Returns true if a metric of this name is a fraction from 0 to 1: accuracy, precision, recall and
/// their like.
pub fn is_fraction(name: &str) -> bool {
    Mode::is_fraction(name)
}

/// The value of the metric `name` for people: `97.61 %` for a [fraction](is_fraction), else four
/// significant digits.
///
/// ```
/// use halite_train::loggers::format_metric;
///
/// assert_eq!(format_metric("accuracy", 0.97612), "97.61 %");
/// assert_eq!(format_metric("loss", 0.081234), "0.08123");
/// assert_eq!(format_metric("loss", 2.5e-7), "2.500e-7");
/// ```
pub fn format_metric(name: &str, value: f64) -> String {
    if is_fraction(name) && (0.0..=1.0).contains(&value) {
        return format!("{:.2} %", value * 100.0);
    }
    if !value.is_finite() {
        return value.to_string();
    }
    // The exponent after rounding to four digits: 9.9999 is 10.00.
    let rounded = format!("{value:.3e}");
    let exponent: i32 = rounded
        .split_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok())
        .unwrap_or(0);
    match exponent {
        -4..=5 => format!("{value:.*}", (3 - exponent).max(0) as usize),
        _ if value == 0.0 => "0".into(),
        _ => rounded,
    }
}

/// A length of time: `12 s`, `3 min 05 s`, `2 h 07 min`.
pub fn format_seconds(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "?".into();
    }
    if seconds < 9.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

/// The name of a type, without its path and parameters.
pub(crate) fn type_name<T: ?Sized>() -> String {
    let path = std::any::type_name::<T>();
    let end = path.find('<').unwrap_or(path.len());
    path[..end].rsplit("::").next().unwrap_or(path).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_four_digits_or_are_percent() {
        let table = [
            ("accuracy", 1.0, "100.00 %"),
            ("accuracy", 0.0, "0.00 %"),
            ("accuracy", 1.5, "1.500"),
            ("accuracy", f64::NAN, "NaN"),
            ("loss", 2.3456, "2.346"),
            ("loss", 9.9999, "10.00"),
            ("loss", 0.000_123_456, "0.0001235"),
            ("loss", 12345.678, "12346"),
            ("loss", 1.0e9, "1.000e9"),
            ("loss", -0.5, "-0.5000"),
            ("loss", 0.0, "0.000"),
            ("loss", f64::INFINITY, "inf"),
        ];
        for (name, value, want) in table {
            assert_eq!(format_metric(name, value), want, "{name} {value}");
        }
    }

    #[test]
    fn numbers_are_formatted_for_people() {
        let times =
            [0.04, 9.94, 9.96, 59.4, 59.6, 185.0, 7620.0, f64::INFINITY].map(format_seconds);
        assert_eq!(
            times,
            [
                "0.0 s",
                "9.9 s",
                "10 s",
                "59 s",
                "1 min 00 s",
                "3 min 05 s",
                "2 h 07 min",
                "?"
            ]
        );
    }
}
