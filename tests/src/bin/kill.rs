//! Kills training runs at random moments and compares their results with undisturbed runs.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    #[cfg(unix)]
    return command::main();
    #[cfg(not(unix))]
    {
        eprintln!("error: kill needs Unix signals");
        std::process::ExitCode::FAILURE
    }
}

#[cfg(unix)]
mod command {
    use std::{path::PathBuf, process::ExitCode, time::Duration};

    use clap::Parser;
    use halite_tests::{
        kill::{self, Options},
        process,
    };

    /// Kill, stop and hang up training runs at random moments; resumed, they must give the same
    /// bits
    #[derive(Parser)]
    struct Arguments {
        /// Runs, each with one to three faults
        #[arg(long, default_value_t = 20)]
        runs: u64,
        /// Seed of the faults, which are a function of the seed and the run's number
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Parallel runs
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Jobs of two to four processes (`two`, `three`, `four`, `two on cpu`): one or several of
        /// them get signals, or their launcher
        #[arg(long)]
        processes: bool,
        /// Seconds that a process may take
        #[arg(long, default_value_t = 300)]
        deadline: u64,
        /// Only these configurations: `mlp`, `cnn`, `text`, `eight devices`, `bf16-mixed`,
        /// `accumulated`, `averaged`, `plateau`; of two updates in a step `two updates`, `streamed`; of
        /// pipelines of data `mixed data`, `mixed, eight`, `streamed data` (build the program of
        /// these by `cargo build -p halite-tests --bin trainings`)
        #[arg(long)]
        only: Vec<String>,
        /// Keep the directories of runs that failed
        #[arg(long)]
        keep: bool,
        /// The command to test [default: the one beside this program]
        #[arg(long, value_name = "PATH")]
        halite: Option<PathBuf>,
        /// Write the summary to this file too
        #[arg(long, value_name = "PATH")]
        json: Option<PathBuf>,
    }

    pub(super) fn main() -> ExitCode {
        let Arguments {
            runs,
            seed,
            jobs,
            processes,
            deadline,
            only,
            keep,
            halite,
            json,
        } = Arguments::parse();
        let deadline = Duration::from_secs(deadline);
        let done = process::binary(halite).and_then(|halite| {
            kill::run(&Options {
                halite,
                runs,
                seed,
                deadline,
                jobs,
                processes,
                only,
                keep,
            })
        });
        process::report(done, json.as_deref(), |summary| &summary.failures)
    }
}
