//! The command line. Parsed once here; what it does is in the modules.

/// Prints a line. A reader that has gone, as `head` does, is no reason to panic as `println!`
/// would; what else keeps it from being written is told when the command is done.
macro_rules! say {
    ($($text:tt)*) => { $crate::cli::say_line(format_args!($($text)*)) };
}

/// Prints a line on stderr. What keeps it from being written, a pipe that nobody reads or a full
/// disk, is no reason to end a run: `eprintln!` would panic.
macro_rules! remark {
    ($($text:tt)*) => { $crate::cli::remark_line(format_args!($($text)*)) };
}

mod cache;
mod data;
mod devices;
mod plan;
mod plugins;
mod process;
mod profile;
mod step;
mod train;

use std::{
    fmt::{Arguments, Display},
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    str::FromStr,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use clap::{CommandFactory, Parser, Subcommand};
use halite::{Error, ErrorKind, backends::pjrt::Plugin};
use indicatif::{ProgressBar, ProgressStyle};

/// Train models on every accelerator that has a PJRT plugin.
#[derive(Parser, Debug)]
#[command(name = "halite", version, long_about = None, after_help = "\
Examples:
  halite train mnist                       train a small CNN on the handwritten digits; installs what it needs
  halite train mnist --data fashion        the same on Fashion-MNIST
  halite train mnist --resume              go on where the last run stopped
  halite devices                           what there is to run on
  halite plan gpt2-124m --target tpu:v5e:4x4   does it fit TPUs that are not here, and how fast at best
  halite plugins check PATH                whether a PJRT plugin works

Environment:
  HALITE_CACHE_DIR      where plugins, data and compiled programs are kept
  HALITE_COMPILE_CACHE  `off`, or where compiled programs are kept instead
  HALITE_LOG            what is logged: `warn`, `info`, `debug`
  HALITE_DEBUG          1: why each program is compiled, and what is worth changing
  PJRT_DEVICE           `TPU`, `CUDA` or `CPU`: what `--accelerator auto` means
More of them, and what they do, are in the README.")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Write what happens when to FILE, a trace for <https://ui.perfetto.dev> [default:
    /// HALITE_PROFILE]
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
    // A file that may not grow is then an error of the write, with advice, and not the end of the
    // process. (A pipe that nobody reads is: Rust's runtime ignores SIGPIPE.)
    #[cfg(unix)]
    if let Err(error) =
        signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::<AtomicBool>::default())
    {
        remark!("a limit on the size of files would end this process without a word: {error}");
    }
    let from_environment = || {
        std::env::var_os("HALITE_PROFILE")
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
    };
    let profile = cli.profile.or_else(from_environment);
    let profiled = profile.is_some();
    if let Err(error) = profile::init(profile) {
        return say_error(&error);
    }
    let result = match cli.command {
        None => match Cli::command().print_help() {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Error::new(ErrorKind::Io, "help", "cannot print").caused_by(error))
            }
            _ => Ok(ExitCode::SUCCESS),
        },
        Some(Command::Train(train)) => train.run(),
        Some(Command::Devices(devices)) => devices.run(),
        Some(Command::Plan(plan)) => plan.run(profiled),
        Some(Command::Plugins(plugins)) => plugins.run(),
        Some(Command::Data(data)) => data.run(),
        Some(Command::Cache(cache)) => cache.run(),
    };
    if Plugin::stuck_in_loader().is_some() {
        // A constructor that hangs holds the loader's lock. The process's end waits for it, and so
        // does a thread's first use of a variable that has a destructor: nothing else can be done
        // here.
        let failed = result.is_err();
        if let Err(error) = result {
            say_error(&error);
        }
        signal_hook::low_level::exit(i32::from(failed));
    }
    let traced = profile::finish();
    match result
        .and_then(|code| traced.map(|()| code))
        .and_then(|code| all_said().map(|()| code))
    {
        Ok(code) => {
            if let Some(code) = STOPPED.get() {
                // A compiler that nobody waits for any more may still be at work, and destructors
                // under it end badly.
                let _ = io::stdout().flush();
                signal_hook::low_level::exit((*code).into());
            }
            code
        }
        Err(error) => say_error(&error),
    }
}

/// The exit code of a run that was asked to stop, and did.
static STOPPED: OnceLock<u8> = OnceLock::new();

/// Why a line could not be printed; the first reason.
static UNSAID: OnceLock<io::Error> = OnceLock::new();

/// What `say!` does.
fn say_line(line: Arguments<'_>) {
    say_part(format_args!("{line}\n"));
}

/// Prints what is not a whole line yet.
fn say_part(text: Arguments<'_>) {
    if let Err(error) = io::stdout()
        .write_fmt(text)
        .and_then(|()| io::stdout().flush())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        _ = UNSAID.set(error);
    }
}

/// What `remark!` does.
fn remark_line(line: Arguments<'_>) {
    // As one write, so that lines of several threads do not mix.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Whether all of the output was written: on a full disk a script would go on with half of a table.
fn all_said() -> halite::Result<()> {
    match UNSAID.get() {
        None => Ok(()),
        Some(error) => Err(Error::new(
            ErrorKind::Io,
            "print",
            format!("the output could not be written whole: {error}"),
        )),
    }
}

/// A whole number from 1 on, refused before anything is fetched or opened.
fn positive<T: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<T, String> {
    let number = text
        .parse::<T>()
        .ok()
        .filter(|number| *number >= T::from(1));
    number.ok_or_else(|| "expected a whole number of at least 1".to_string())
}

/// A spinner on a terminal, for what takes long and has no steps to count.
fn waiting(message: String) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{spinner} {msg}, {elapsed}").expect("a template of our own");
    let spinner = ProgressBar::new_spinner()
        .with_style(style)
        .with_message(message);
    // Its thread is of use on a terminal alone.
    if !spinner.is_hidden() {
        spinner.enable_steady_tick(Duration::from_millis(200));
    }
    spinner
}

/// Says why, and ends the process at once: nothing is dropped, for what hangs would be waited for.
fn give_up(error: &Error, code: u8) -> ! {
    say_error(error);
    let _ = io::stdout().flush();
    signal_hook::low_level::exit(code.into())
}

fn say_error(error: &impl Display) -> ExitCode {
    let (red, plain) = if std::io::stderr().is_terminal() {
        ("\x1b[1;31m", "\x1b[0m")
    } else {
        ("", "")
    };
    remark!("{red}error{plain}: {error}");
    ExitCode::FAILURE
}
