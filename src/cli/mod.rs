//! The command line. Parsed once here; what it does is in the modules.

/// Prints a line. A reader that has gone, as `head` does, is no reason to panic as `println!` would.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

mod cache;
mod data;
mod devices;
mod plan;
mod plugins;
mod process;
mod profile;
mod train;

use std::{fmt::Display, io::IsTerminal, path::PathBuf, process::ExitCode};

use clap::{CommandFactory, Parser, Subcommand};

/// Train models on every accelerator that has a PJRT plugin.
#[derive(Parser, Debug)]
#[command(name = "halite", version, long_about = None, after_help = "\
Examples:
  halite train mnist                       train a small CNN on the handwritten digits; installs what it needs
  halite train mnist --data fashion        the same on Fashion-MNIST
  halite train mnist --resume              go on where the last run stopped
  halite devices                           what there is to run on
  halite plan gpt2-124m --target tpu:v5e:4x4   does it fit TPUs that are not here, and how fast at best
  halite plugins check PATH                whether a PJRT plugin works")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Write what happens when to FILE, a trace for <https://ui.perfetto.dev> [default: HALITE_PROFILE]
    #[arg(long, global = true, value_name = "FILE")]
    profile: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Train a model
    Train(train::Train),
    /// Show the devices, their memory, and the plugin behind them
    Devices(devices::Devices),
    Plan(Box<plan::PlanCommand>),
    Plugins(plugins::Plugins),
    /// List or fetch data sets
    Data(data::Data),
    Cache(cache::Cache),
}

/// Runs the command line of this process.
pub(crate) fn run() -> ExitCode {
    let cli = Cli::parse();
    let from_environment = || std::env::var_os("HALITE_PROFILE").filter(|path| !path.is_empty()).map(PathBuf::from);
    let profile = cli.profile.or_else(from_environment);
    let profiled = profile.is_some();
    if let Err(error) = profile::init(profile) {
        return say_error(&error);
    }
    let result = match cli.command {
        None => Cli::command()
            .print_help()
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| halite::Error::new(halite::ErrorKind::Io, "help", "cannot print").caused_by(error)),
        Some(Command::Train(train)) => train.run(),
        Some(Command::Devices(devices)) => devices.run(),
        Some(Command::Plan(plan)) => plan.run(profiled),
        Some(Command::Plugins(plugins)) => plugins.run(),
        Some(Command::Data(data)) => data.run(),
        Some(Command::Cache(cache)) => cache.run(),
    };
    let traced = profile::finish();
    match result.and_then(|code| traced.map(|()| code)) {
        Ok(code) => code,
        Err(error) => say_error(&error),
    }
}

fn say_error(error: &impl Display) -> ExitCode {
    let (red, plain) = if std::io::stderr().is_terminal() { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    eprintln!("{red}error{plain}: {error}");
    ExitCode::FAILURE
}
