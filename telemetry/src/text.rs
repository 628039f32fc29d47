//! Numbers and programs as text for reports.

use std::{panic::Location, time::Duration};

use halite_core::{Code, format_count, hex};
use sha2::{Digest, Sha256};

/// SHA-256 of a program without its source lines, as 64 digits: equal for equal programs, in every
/// process and on every machine. A [`CompileRecord`](crate::CompileRecord) has the first 16.
pub fn program_digest(code: &Code) -> String {
    let mut digest = Sha256::new();
    code.without_locations(|piece| digest.update(piece));
    hex(&digest.finalize())
}

/// Formats a time in its largest unit, with three digits: `12.3 µs`.
pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (value, unit) = match seconds {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s if s >= 1e-6 => (s * 1e6, "µs"),
        s => (s * 1e9, "ns"),
    };
    let digits = if value >= 100.0 || unit == "ns" {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}

/// Formats a count with its noun: `1 step`, `1,000 steps`, `10 batches`.
pub(crate) fn count(count: u64, noun: &str) -> String {
    let plural = if noun.ends_with("ch") { "es" } else { "s" };
    format!(
        "{} {noun}{}",
        format_count(count),
        if count == 1 { "" } else { plural }
    )
}

/// Formats a line with a space before it, ` (src/main.rs:3:5)`, or nothing.
pub(crate) fn parenthesized(line: Option<&'static Location<'static>>) -> String {
    line.map_or(String::new(), |line| format!(" ({line})"))
}
