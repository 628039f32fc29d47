//! The command line. It is parsed here; each command has a module. [`run`] has what one invocation
//! does, [`main`] what belongs to the process.

/// Prints a line. A closed pipe, as of `head`, is ignored, where `println!` would panic. Other
/// errors are reported at the end of the command.
macro_rules! say {
    ($($text:tt)*) => { $crate::cli::say_line(format_args!($($text)*)) };
}

/// Prints a line on stderr. A closed pipe or a full disk is ignored, where `eprintln!` would panic
/// and end the run.
macro_rules! remark {
    ($($text:tt)*) => { $crate::cli::remark_line(format_args!($($text)*)) };
}

mod cache;
mod checkpoint;
mod classify;
mod config;
mod convert;
mod data;
mod devices;
mod embed;
mod export;
mod generate;
mod image_args;
mod job;
mod launch;
mod new;
mod plan;
mod plugins;
mod predict;
mod process;
mod profile;
mod run;
mod runs;
mod session;
mod step;
mod train;
mod trained;

use std::{
    env,
    ffi::OsString,
    fmt::{Arguments, Display},
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use halite::{
    Error, ErrorKind,
    backends::{Accelerator, OpenOptions, Opened, pjrt::Plugin},
    fetch,
};
use indicatif::{ProgressBar, ProgressStyle};

use self::session::Session;
pub(crate) use self::session::Terminal;

/// Train models on CPUs, and on accelerators that have a PJRT plugin.
#[derive(Parser, Debug)]
#[command(name = "halite", version, long_about = None, after_help = "\
Examples:
  halite train mnist                       train a small CNN on handwritten digits; downloads what it needs
  halite train mnist --data fashion        the same on Fashion-MNIST
  halite train digits                      a smaller CNN and data set; downloads no data
  halite train mnist --resume              continue an interrupted run
  halite train imagenet --data DIR         train a ResNet-50 on folders of photographs
  halite train ct --data DIR               labels of CT slices: JPEG files and a CSV file
  halite predict RUN --images DIR --out FILE.csv   label images by a run of these two
  halite classify photo.jpg                name what a photograph shows; downloads published weights
  halite launch -n 2 -- halite train mnist   train with two processes
  halite new my-model                      write a project with a model, a task and a `main`
  halite checkpoint ls runs/mnist-cnn      list the checkpoints of a run; also show, verify, export
  halite train --config runs/mnist-cnn/config.toml --out runs/again   repeat a run, with the same bits
  halite finetune text --model DIR --data notes.txt --lora 8   train adapters of a published language model
  halite embed --model DIR texts.txt       embed texts with a sentence encoder such as MiniLM
  halite devices                           list the available devices
  halite plan gpt2-124m --target tpu:v5e:4x4   does it fit 16 TPU chips, and how fast can it be
  halite export runs/mnist-cnn -o cnn.jax  write a trained model for JAX
  halite run step.jax -i zeros             run a program that JAX exported
  halite generate --model FILE.gguf --prompt 'Once upon'   continue a text with a published model
  halite plugins check PATH                test a PJRT plugin

Environment:
  HALITE_CACHE_DIR      directory of plugins, data sets and compiled programs
  HALITE_COMPILE_CACHE  `off`, or another directory for compiled programs
  HALITE_LOG            log level: `warn`, `info`, `debug`
  HALITE_DEBUG          1: log why each program is compiled, and report findings
  PJRT_DEVICE           `TPU`, `CUDA` or `CPU`: restricts `--accelerator auto`
The README lists all of them.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Write a trace of the process to FILE, for <https://ui.perfetto.dev>, while it runs: of a
    /// process that is killed, FILE has the trace up to then. In a job of processes each has a file,
    /// as FILE.1.json [default: HALITE_PROFILE]
    #[arg(long, global = true, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Take a plugin of the Python environment even if halite does not know its digest
    /// [default: HALITE_TRUST_PYTHON]
    #[arg(long, global = true)]
    trust_python: bool,
}

/// Returns options of accelerators with this cache directory and what holds for every command.
fn open_options(cache: Option<PathBuf>) -> OpenOptions {
    let default = OpenOptions::default();
    OpenOptions {
        cache,
        trust_python: default.trust_python
            || Session::current().trust_python.load(Ordering::Relaxed),
        ..default
    }
}

/// Opens an accelerator with the options of [`open_options`].
fn open(
    accelerator: &Accelerator,
    cache: Option<PathBuf>,
    bar: &mut fetch::Bar,
) -> halite::Result<Opened> {
    let opened = accelerator.open_with(&open_options(cache), bar)?;
    profile::opened(&opened.driver);
    Ok(opened)
}

/// Makes the error of a file or folder that a command cannot read, write or create: `doing`.
fn io_error(
    context: &'static str,
    doing: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> Error {
    move |error| {
        let message = format!("cannot {doing} {}", path.display());
        Error::new(ErrorKind::Io, context, message).caused_by(error)
    }
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Train a model
    Train(train::Train),
    Finetune(train::finetune::Finetune),
    Embed(embed::Embed),
    /// Show the devices, their memory, and the plugin behind them
    Devices(devices::Devices),
    New(new::New),
    Classify(classify::Classify),
    Export(export::Export),
    Generate(generate::Generate),
    Predict(predict::Predict),
    Launch(launch::Launch),
    Job(job::Job),
    Run(run::Run),
    Runs(runs::Runs),
    Convert(convert::Convert),
    Plan(Box<plan::PlanCommand>),
    Checkpoint(checkpoint::CheckpointCommand),
    Plugins(plugins::Plugins),
    /// List, download, generate or look at data sets
    Data(data::Data),
    Cache(cache::Cache),
}

/// Runs the command line of this process, and returns its exit code or exits with it.
pub(crate) fn main() -> ExitCode {
    halite::train::main_starts();
    let code = run(
        env::args_os().collect(),
        Terminal::of_process(),
        execute_in_own_process,
    );
    match Session::current().stopped.get() {
        // An abandoned compiler thread may still run, and would crash in destructors. The code
        // differs if an error came after the stop.
        Some(stopped) if code == ExitCode::from(*stopped) => {
            signal_hook::low_level::exit((*stopped).into())
        }
        _ => code,
    }
}

/// Whether this process only starts the one that is in its job: without a launcher that connects them,
/// processes run the executable again.
fn runs_again() -> bool {
    let recognized = halite::cluster::Recognized::from_env();
    recognized.is_ok_and(|job| job.size > 1 && job.source != halite::cluster::Source::Mpi)
}

/// Executes a command in a process that has no other one: logs are written, the process is traced
/// if a profile is requested, and what else prints to stdout is sent to stderr.
fn execute_in_own_process(cli: Cli) -> halite::Result<ExitCode> {
    // A write beyond the limit on file sizes then returns an error, instead of ending the process.
    #[cfg(unix)]
    if let Err(error) =
        signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::<AtomicBool>::default())
    {
        remark!(
            "cannot handle SIGXFSZ; a write beyond the limit on file sizes ends this process: {error}"
        );
    }
    let from_environment = || {
        env::var_os("HALITE_PROFILE")
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
    };
    let profile = cli.profile.clone().or_else(from_environment);
    let joins = matches!(
        cli.command,
        Some(Command::Train(_) | Command::Finetune(_) | Command::Job(_))
    );
    let profile = profile.filter(|_| !(joins && runs_again())).map(|path| {
        // Each process of a job has a trace of its own.
        halite::core::files::of_process(path, |name| env::var_os(name))
    });
    let profiled = profile.is_some();
    profile::init(profile)?;
    if cli.command.is_some() {
        keep_output();
    }
    let result = cli.execute(profiled);
    if Plugin::stuck_in_loader().is_some() {
        // A constructor that hangs holds the lock of the dynamic loader. A normal exit waits for it,
        // and so does a thread's first use of a thread-local with a destructor.
        let failed = result.is_err();
        if let Err(error) = result {
            say_error(&error);
        }
        signal_hook::low_level::exit(i32::from(failed));
    }
    let traced = profile::finish();
    result.and_then(|code| traced.map(|()| code))
}

/// Runs a command line, and returns its exit code. The command prints to `terminal`, and so do help
/// and errors. `execute` executes the parsed command.
///
/// One process can run several command lines, each on its own thread.
pub(crate) fn run(
    arguments: Vec<OsString>,
    terminal: Terminal,
    execute: impl FnOnce(Cli) -> halite::Result<ExitCode>,
) -> ExitCode {
    let session = Session::new(arguments, terminal);
    session.enter();
    let command = Cli::command();
    let arguments = match config::expanded(&command, session.arguments.clone()) {
        Ok(arguments) => arguments,
        Err(error) => return say_error(&error),
    };
    let parsed = (command.clone().try_get_matches_from(arguments)).and_then(|matches| {
        config::remember(&command, &matches);
        Cli::from_arg_matches(&matches)
    });
    let cli = match parsed {
        Ok(cli) => cli,
        Err(message) => return say_usage(&message),
    };
    (session.trust_python).store(cli.trust_python, Ordering::Relaxed);
    match execute(cli).and_then(|code| all_printed().map(|()| code)) {
        Ok(code) => code,
        Err(error) => say_error(&error),
    }
}

impl Cli {
    /// Executes the command. With `profiled`, the process is traced.
    pub(crate) fn execute(self, profiled: bool) -> halite::Result<ExitCode> {
        match self.command {
            Some(command) => command.run(profiled),
            None => print_help(),
        }
    }
}

impl Command {
    fn run(self, profiled: bool) -> halite::Result<ExitCode> {
        match self {
            Command::Train(train) => train.run(),
            Command::Finetune(finetune) => finetune.run(),
            Command::Embed(embed) => embed.run(),
            Command::Devices(devices) => devices.run(),
            Command::New(new) => new.run(),
            Command::Classify(classify) => classify.run(),
            Command::Export(export) => export.run(),
            Command::Generate(generate) => generate.run(),
            Command::Predict(predict) => predict.run(),
            Command::Launch(launch) => launch.run(),
            Command::Job(job) => job.run(),
            Command::Run(run) => run.run(),
            Command::Runs(runs) => runs.run(),
            Command::Convert(convert) => convert.run(),
            Command::Plan(plan) => plan.run(profiled),
            Command::Checkpoint(checkpoint) => checkpoint.run(),
            Command::Plugins(plugins) => plugins.run(),
            Command::Data(data) => data.run(),
            Command::Cache(cache) => cache.run(),
        }
    }
}

fn print_help() -> halite::Result<ExitCode> {
    let (session, mut command) = (Session::current(), Cli::command());
    let printed = if session.terminal.is_of_process {
        command.print_help()
    } else {
        (session.terminal.stdout).print(&command.render_help().to_string())
    };
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::new(ErrorKind::Io, "help", "cannot print").caused_by(error))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Prints a message of clap, which is help, the version, or an error in the arguments.
fn say_usage(message: &clap::Error) -> ExitCode {
    let session = Session::current();
    let Terminal {
        stdout,
        stderr,
        is_of_process,
    } = &session.terminal;
    // As in `clap::Error::exit`, a message that cannot be printed is ignored.
    _ = match (is_of_process, message.use_stderr()) {
        (true, _) => message.print(),
        (false, true) => stderr.print(&message.render().to_string()),
        (false, false) => stdout.print(&message.render().to_string()),
    };
    ExitCode::from(message.exit_code() as u8)
}

/// Keeps stdout for this command, and gives stderr to whatever else writes to it: plugins print
/// when they are loaded, or at exit, when C's buffers are written, and stdout may be a program or
/// JSON.
fn keep_output() {
    #[cfg(unix)]
    if let Ok(own) = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)
        && rustix::stdio::dup2_stdout(rustix::stdio::stderr()).is_ok()
    {
        (Session::current().terminal.stdout).redirect(std::fs::File::from(own));
    }
}

/// Returns true if the output is a terminal.
fn prints_to_terminal() -> bool {
    Session::current().terminal.stdout.is_terminal
}

/// Whether terminals get colors: not if `NO_COLOR` is set (<https://no-color.org>), and not those that
/// have none.
fn is_colored() -> bool {
    let is_set = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !is_set && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Implements `say!`.
fn say_line(line: Arguments<'_>) {
    say_part(format_args!("{line}\n"));
}

/// Prints a part of a line.
fn say_part(text: Arguments<'_>) {
    let session = Session::current();
    if let Err(error) = session.terminal.stdout.print(&text.to_string())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        _ = session.print_error.set(error);
    }
}

/// Implements `remark!`.
fn remark_line(line: Arguments<'_>) {
    _ = (Session::current().terminal.stderr).print(&format!("{line}\n"));
}

/// Returns an error if the output was not written completely, as on a full disk.
fn all_printed() -> halite::Result<()> {
    match Session::current().print_error.get() {
        None => Ok(()),
        Some(error) => Err(Error::new(
            ErrorKind::Io,
            "print",
            format!("the output is incomplete: {error}"),
        )),
    }
}

/// Shows a spinner on a terminal, for long work without countable steps.
fn waiting(message: String) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{spinner} {msg}, {elapsed}").expect("a template of our own");
    let spinner = if Session::current().terminal.stderr.is_terminal {
        ProgressBar::new_spinner()
    } else {
        ProgressBar::hidden()
    };
    let spinner = spinner.with_style(style).with_message(message);
    // The thread of the ticks is useless without a terminal.
    if !spinner.is_hidden() {
        spinner.enable_steady_tick(Duration::from_millis(200));
    }
    spinner
}

/// Prints an error and exits without dropping anything, because a drop would wait for what hangs.
fn give_up(error: &Error, code: u8) -> ! {
    say_error(error);
    signal_hook::low_level::exit(code.into())
}

fn say_error(error: &impl Display) -> ExitCode {
    let is_terminal = Session::current().terminal.stderr.is_terminal;
    let (red, plain) = if is_terminal && is_colored() {
        ("\x1b[1;31m", "\x1b[0m")
    } else {
        ("", "")
    };
    remark!("{red}error{plain}: {error}");
    halite::cluster::tell_launcher(error);
    ExitCode::FAILURE
}
