//! Panics of the command. Invalid input is an error, so a panic outside of [guarded](guard) decoders
//! is a bug in halite and is reported as one.

use std::{
    io::{self, Write},
    panic,
};

use halite::core::guard;

/// Text by which a panic of halite is recognized in the output of a child process.
pub(crate) const BUG: &str = "this is a bug in halite";

/// Adds advice to the message of each panic.
pub(crate) fn init() {
    let default = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        // The panic of a foreign decoder becomes an error of the file.
        if guard::is_active() {
            return;
        }
        default(info);
        // `eprintln!` panics if stderr is closed, and a panic in a panic hook ends the process.
        _ = writeln!(io::stderr(), "{}", advice());
    }));
}

/// Place to report bugs to.
pub(crate) const REPORT: &str = if env!("CARGO_PKG_REPOSITORY").is_empty() {
    "please report it to its maintainers"
} else {
    concat!("please report it at ", env!("CARGO_PKG_REPOSITORY"))
};

/// Returns what to do about a panic.
pub(crate) fn advice() -> String {
    let (name, version) = (env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    format!(
        "{BUG}: {REPORT}, with the text above, the command line, the version ({name} {version}), \
         and the file that `halite devices --report FILE` writes"
    )
}
