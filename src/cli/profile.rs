//! `--profile`: what happens when, as a trace.

use std::path::PathBuf;

use halite::{Result, backends::ChromeTrace};
use tracing_subscriber::{EnvFilter, prelude::*};

/// Sends what is logged to stderr, as `HALITE_LOG` says, and spans to the file, if there is one.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn init(path: Option<PathBuf>) -> Result<Option<ChromeTrace>> {
    let filter = EnvFilter::try_from_env("HALITE_LOG").unwrap_or_else(|_| "warn".into());
    let Some(path) = path else {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().with_target(false).init();
        return Ok(None);
    };
    let trace = ChromeTrace::create(&path)?;
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).without_time().with_target(false);
    tracing_subscriber::registry().with(log.with_filter(filter)).with(trace.layer()).init();
    Ok(Some(trace))
}
