//! Trains a tiny model for many steps and checks that memory, open files and threads do not grow.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    #[cfg(target_os = "linux")]
    return command::main();
    #[cfg(not(target_os = "linux"))]
    {
        eprintln!("error: soak needs the /proc of Linux");
        std::process::ExitCode::FAILURE
    }
}

#[cfg(target_os = "linux")]
mod command {
    use std::process::ExitCode;

    use clap::Parser;
    use halite_tests::soak::{self, Options};

    /// Train a tiny model for many steps; memory, open files and threads must not grow
    #[derive(Parser)]
    struct Arguments {
        /// Optimizer steps
        #[arg(long, default_value_t = 200_000)]
        steps: u64,
        /// Steps of an epoch
        #[arg(long, default_value_t = 1000)]
        epoch: u64,
        /// Bytes that resident memory may grow by, from the first quarter after the warm-up to the
        /// last
        #[arg(long, default_value_t = 16 << 20)]
        growth: u64,
    }

    pub(super) fn main() -> ExitCode {
        let Arguments {
            steps,
            epoch,
            growth,
        } = Arguments::parse();
        let options = Options {
            steps,
            steps_per_epoch: epoch,
            checkpoint_every: 250,
            log_every: 50,
            warm_up: 20,
        };
        match soak::run(options) {
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
            Ok(measured) => {
                println!("{measured}");
                let grew = measured.growth(growth);
                grew.iter().for_each(|what| println!("{what}"));
                if grew.is_empty() {
                    ExitCode::SUCCESS
                } else {
                    ExitCode::FAILURE
                }
            }
        }
    }
}
