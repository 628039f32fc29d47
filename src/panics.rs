//! Panics of the command. Wrong input is an error, so a panic is a bug of halite, and says so.

use std::{
    io::{self, Write},
    panic,
};

/// What a panic is. Other text of a process that panicked comes from plugins.
pub(crate) const BUG: &str = "this is a bug in halite";

/// Adds to the text of each panic what it is and where to report it.
pub(crate) fn init() {
    let default = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        default(info);
        // Not `eprintln!`: where stderr is closed it panics, and a panic in here ends the process.
        _ = writeln!(io::stderr(), "{}", advice());
    }));
}

/// Where to report it.
pub(crate) const REPORT: &str = if env!("CARGO_PKG_REPOSITORY").is_empty() {
    "please report it to its maintainers"
} else {
    concat!("please report it at ", env!("CARGO_PKG_REPOSITORY"))
};

/// What to do about a panic.
pub(crate) fn advice() -> String {
    let (name, version) = (env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    format!(
        "{BUG}: {REPORT}, with the text above, the command line and the version ({name} {version})"
    )
}
