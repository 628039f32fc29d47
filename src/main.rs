//! The `halite` command.
#![forbid(unsafe_code)]

mod cli;
mod panics;

use std::process::ExitCode;

use halite::backends::pjrt::Plugin;

/// XLA's CPU plugin allocates for every launch, from several threads; with the system's allocator that was more than half of the time
/// of a tiny step. `override` puts it under the plugin too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    panics::init();
    let code = cli::run();
    if Plugin::stuck_in_loader().is_some() {
        // A normal end would wait for the system's loader, which waits for a plugin's constructors.
        signal_hook::low_level::exit(if code == ExitCode::SUCCESS { 0 } else { 1 });
    }
    code
}
