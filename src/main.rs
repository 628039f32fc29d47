//! The `halite` command.
#![forbid(unsafe_code)]

mod cli;
mod panics;

/// XLA's CPU plugin allocates for every launch, from several threads; with the system's allocator
/// that was more than half of the time of a tiny step. `override` puts it under the plugin too.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    panics::init();
    cli::main()
}

#[cfg(test)]
#[path = "../tests/cli/in_process.rs"]
mod tests;
