//! Problems of one file, collected so that one error has all of them.

use halite_core::{Error, ErrorKind, Result};
use serde_json::Value;

/// Problems that an error lists; it counts those beyond.
pub(crate) const SHOWN: usize = 20;

/// What is wrong with a file or a set of tensors.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    shown: Vec<String>,
    count: usize,
}

impl Problems {
    pub(crate) fn push(&mut self, problem: impl Into<String>) {
        if self.count < SHOWN {
            self.shown.push(printable(&problem.into()));
        }
        self.count += 1;
    }

    /// Adds each of these places in a file, which begin and end at a byte and have a name, that
    /// overlaps the one before.
    pub(crate) fn overlaps(&mut self, mut spans: Vec<(u64, u64, &str)>) {
        spans.sort_unstable();
        for pair in spans.windows(2) {
            let [(_, end, before), (start, _, name)] = pair else {
                continue;
            };
            if start < end {
                self.push(format!("`{name}` overlaps `{before}`"));
            }
        }
    }

    /// An error of this kind with all problems, if there are any.
    pub(crate) fn into_result(self, kind: ErrorKind, origin: &str) -> Result<()> {
        let more = self.count - self.shown.len();
        let shown = self.shown.join("; ");
        match (self.count, more) {
            (0, _) => Ok(()),
            (_, 0) => Err(Error::new(kind, "weights", format!("{origin}: {shown}"))),
            _ => {
                let message = format!("{origin}: {shown}; and {more} more problems");
                Err(Error::new(kind, "weights", message))
            }
        }
    }
}

/// A text without characters that a terminal would execute: names are those of the file.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\'' | '"' | '\\' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    shown
}

/// The start of a value's text.
pub(crate) fn short(value: &Value) -> String {
    const LONGEST: usize = 40;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

/// An error about the contents of the file `origin`.
pub(crate) fn corrupt(origin: &str, what: impl AsRef<str>) -> Error {
    let message = format!("{origin}: {}", printable(what.as_ref()));
    Error::new(ErrorKind::Corrupt, "weights", message)
}

/// An error about something in the file `origin` that is valid and not supported.
pub(crate) fn unsupported(origin: &str, what: impl AsRef<str>) -> Error {
    let message = format!("{origin}: {}", printable(what.as_ref()));
    Error::new(ErrorKind::Unsupported, "weights", message)
}
