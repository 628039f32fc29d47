//! Mistakes found while tracing.

use std::{fmt, panic::Location};

use halite_core::Error;

/// A mistake found while tracing: its location, operation and message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mistake {
    /// The user's line.
    pub location: &'static Location<'static>,
    /// Name of the operation.
    pub op: String,
    /// The problem, with the values involved and what would work.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, line, column) = (
            self.location.file(),
            self.location.line(),
            self.location.column(),
        );
        write!(f, "{file}:{line}:{column}: {}: {}", self.op, self.message)
    }
}

/// All mistakes of a trace as one error.
pub(crate) fn mistakes_error(mistakes: &[Mistake]) -> Error {
    let lines: Vec<String> = mistakes
        .iter()
        .map(|mistake| format!("\n  {mistake}"))
        .collect();
    let count = if mistakes.len() == 1 {
        "1 mistake".to_string()
    } else {
        format!("{} mistakes", mistakes.len())
    };
    Error::invalid(
        "trace",
        format!("{count} in the traced code:{}", lines.concat()),
    )
}
