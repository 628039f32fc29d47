//! Parsers of the values of command-line flags, which a command that flattens
//! [`TrainerOptions`](crate::TrainerOptions) can use for its other flags.

use std::{str::FromStr, time::Duration};

/// Parses a whole number of at least 1.
///
/// # Errors
/// The expected values, if `text` is something else.
pub fn positive<T: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| *number >= T::from(1));
    number.ok_or_else(|| "expected a whole number of at least 1".to_string())
}

/// Parses a number of best checkpoints to keep. -1 is Lightning's name of all.
pub(crate) fn top_k(text: &str) -> Result<usize, String> {
    match text {
        "all" | "-1" => Ok(usize::MAX),
        _ => (text.parse()).map_err(|_| "expected a whole number, or `all`".to_string()),
    }
}

/// Parses a time in seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let duration = duration.filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| "expected a positive number of seconds".to_string())
}

/// Parses an upper bound of the norm of gradients.
pub(crate) fn clip_norm(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(norm) if norm.is_finite() && norm >= 0.0 => Ok(norm),
        _ => Err("expected a norm, such as 1.0, or 0 for no clipping".into()),
    }
}
