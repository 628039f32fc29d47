//! Damages files of runs and of the cache and judges what the command does then.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    #[cfg(unix)]
    return command::main();
    #[cfg(not(unix))]
    {
        eprintln!("error: corrupt needs a Unix file system");
        std::process::ExitCode::FAILURE
    }
}

#[cfg(unix)]
mod command {
    use std::{path::PathBuf, process::ExitCode, time::Duration};

    use clap::Parser;
    use halite_tests::{
        corrupt::{self, Options},
        process,
    };

    /// Damage files of runs and of the cache; an error, a recovery, or the same bits must follow
    #[derive(Parser)]
    struct Arguments {
        /// Cases, each with one or two damaged files
        #[arg(long, default_value_t = 200)]
        cases: u64,
        /// Number of the first case; with `--cases 1`, only this one
        #[arg(long, default_value_t = 0)]
        first: u64,
        /// Seed; each case is a function of the seed and its number
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Parallel cases
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Seconds that a process may take
        #[arg(long, default_value_t = 120)]
        deadline: u64,
        /// Print each case
        #[arg(long)]
        verbose: bool,
        /// The command to test [default: the one beside this program]
        #[arg(long, value_name = "PATH")]
        halite: Option<PathBuf>,
        /// Write the summary to this file too
        #[arg(long, value_name = "PATH")]
        json: Option<PathBuf>,
    }

    pub(super) fn main() -> ExitCode {
        let Arguments {
            cases,
            first,
            seed,
            jobs,
            deadline,
            verbose,
            halite,
            json,
        } = Arguments::parse();
        let deadline = Duration::from_secs(deadline);
        let done = process::binary(halite).and_then(|halite| {
            corrupt::run(&Options {
                halite,
                cases,
                first,
                seed,
                deadline,
                jobs,
                verbose,
            })
        });
        process::report(done, json.as_deref(), |summary| &summary.failures)
    }
}
