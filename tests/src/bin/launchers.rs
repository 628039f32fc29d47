//! Starts jobs with the variables of launchers, some of them damaged.
#![forbid(unsafe_code)]

use std::{env, path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;
use halite_tests::{
    launchers::{self, Options},
    process,
};

/// Start jobs with the variables of launchers, some of them damaged; all processes must join, or an
/// error must name a variable within three seconds
#[derive(Parser)]
struct Arguments {
    /// Jobs of two to four processes
    #[arg(long, default_value_t = 100)]
    jobs: u64,
    /// Number of the first job; with `--jobs 1`, only this one
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Seed; each job is a function of the seed and its number
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Jobs at the same time
    #[arg(long, default_value_t = 1)]
    parallel: usize,
    /// Write the summary to this file too
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Join a job as one of its processes
    #[arg(long, hide = true)]
    member: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.member {
        return match launchers::member() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let summary = launchers::run(Options {
        cases: arguments.jobs,
        first: arguments.first,
        seed: arguments.seed,
        parallel: arguments.parallel,
        named_within: Duration::from_secs(3),
        member: || {
            let program = env::current_exe().expect("this program has a path");
            process::command(&program, "--member")
        },
    });
    process::report(Ok(summary), arguments.json.as_deref(), |summary| {
        &summary.failures
    })
}
