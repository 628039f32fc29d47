//! `--profile`: a trace of this process, and the plugin's own profile next to it.

use std::{cell::RefCell, path::PathBuf};

use halite::{
    Result,
    backends::{ChromeTrace, Driver, pjrt},
    core::files,
    profile::{ProfileSteps, StepRange},
};
use tracing_subscriber::{EnvFilter, prelude::*};

use crate::cli::{Session, io_error};

/// Recordings of this process.
#[derive(Default)]
struct Recording {
    trace: Option<(PathBuf, ChromeTrace)>,
    plugin: Option<pjrt::Profiling>,
}

thread_local! {
    // A plugin's profiler must be stopped on the thread that started it.
    static RECORDING: RefCell<Recording> = RefCell::default();
}

/// Writes the log to stderr, filtered by `HALITE_LOG`, and spans to the file, if there is one.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn init(path: Option<PathBuf>) -> Result<()> {
    let filter = EnvFilter::try_from_env("HALITE_LOG").unwrap_or_else(|_| "warn".into());
    let Some(path) = path else {
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .with_writer(std::io::stderr);
        // A log line that cannot be written is dropped; reporting it on stderr would panic.
        log.without_time()
            .with_target(false)
            .log_internal_errors(false)
            .init();
        return Ok(());
    };
    let trace = ChromeTrace::create(&path)?;
    let log = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false);
    let log = log.log_internal_errors(false);
    tracing_subscriber::registry()
        .with(log.with_filter(filter))
        .with(trace.layer())
        .init();
    RECORDING.with_borrow_mut(|recording| recording.trace = Some((path, trace)));
    Ok(())
}

/// The callback of `--profile-steps`.
pub(crate) fn of_steps(steps: StepRange) -> ProfileSteps {
    ProfileSteps::new(Session::current().profiler.get().copied(), steps)
}

/// Starts the profiler of the plugin, if there is a trace and the plugin has one. A profiler that
/// does not start is reported, and the run continues.
pub(crate) fn opened(driver: &Driver) {
    let profiler = driver.plugin().and_then(pjrt::Plugin::profiler);
    if let Some(profiler) = profiler {
        _ = Session::current().profiler.set(profiler);
    }
    RECORDING.with_borrow_mut(|recording| {
        if let (Some(_), Some(profiler)) = (&recording.trace, profiler) {
            match profiler.start() {
                Ok(profiling) => recording.plugin = Some(profiling),
                Err(error) => remark!("no profile of the plugin: {error}"),
            }
        }
    });
}

/// Stops both recordings, and writes the plugin's profile next to the trace.
///
/// # Errors
/// If a file cannot be written, or the plugin does not return its profile.
pub(crate) fn finish() -> Result<()> {
    let Recording { trace, plugin } = RECORDING.take();
    let Some((path, trace)) = trace else {
        return Ok(());
    };
    let recorded = plugin.map(pjrt::Profiling::stop);
    trace.finish()?;
    let Some(recorded) = recorded else {
        return Ok(());
    };
    let path = path.with_extension("xplane.pb");
    files::write_output(&path, &recorded?).map_err(io_error("profile", "write", &path))
}
