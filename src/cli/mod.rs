//! The command line. Parsed once here; what it does is in the modules.

/// Prints a line. A reader that has gone, as `head` does, is no reason to panic as `println!` would.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

mod data;
mod devices;
mod plugins;
mod train;

use std::{io::IsTerminal, process::ExitCode};

use clap::{CommandFactory, Parser, Subcommand};

/// Train models on every accelerator that has a PJRT plugin.
#[derive(Parser, Debug)]
#[command(name = "halite", version, long_about = None, after_help = "\
Examples:
  halite train mnist                       train a small CNN on the handwritten digits; installs what it needs
  halite train mnist --data fashion        the same on Fashion-MNIST
  halite train mnist --resume              go on where the last run stopped
  halite devices                           what there is to run on
  halite plugins check PATH                whether a PJRT plugin works")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Train a model
    Train(train::Train),
    /// Show the devices, their memory, and the plugin behind them
    Devices(devices::Devices),
    Plugins(plugins::Plugins),
    /// List or fetch data sets
    Data(data::Data),
}

/// Runs the command line of this process.
pub(crate) fn run() -> ExitCode {
    let cli = Cli::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_env("HALITE_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().with_target(false).init();
    let result = match cli.command {
        None => Cli::command()
            .print_help()
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| halite::Error::new(halite::ErrorKind::Io, "help", "cannot print").caused_by(error)),
        Some(Command::Train(train)) => train.run(),
        Some(Command::Devices(devices)) => devices.run(),
        Some(Command::Plugins(plugins)) => plugins.run(),
        Some(Command::Data(data)) => data.run(),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            let (red, plain) = if std::io::stderr().is_terminal() { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
            eprintln!("{red}error{plain}: {error}");
            ExitCode::FAILURE
        }
    }
}
