//! `halite launch`: starts a job of many processes.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use halite::{
    Result,
    cluster::launch::{Ended, Launch as Job, Line, Stream},
    fetch,
    train::flags::positive,
};

/// Start a job of many processes of one program
///
/// The processes communicate by MPI, which is downloaded if it is missing. Each line of their output
/// is printed with the number of its process. If one fails, the others are ended, and the error says
/// which one it was and why.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  halite launch -n 2 -- halite train mnist          data parallel over two processes
  halite launch -n 4 --threads 1 -- ./my-training   four processes of one thread each
SIGTERM and Ctrl-C are passed on to all processes, so that a training saves a checkpoint; a second
one kills them.")]
pub(crate) struct Launch {
    /// Number of processes
    #[arg(short = 'n', long, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    processes: usize,
    /// Cores of each process [default: its part of the cores of this machine]
    #[arg(long, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Directory of a file rank-N.log with the output of each process
    /// [default: runs/launch/TIME]
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    /// Seconds that the other processes have, after one failed, to end by themselves
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    grace: u64,
    /// Cache directory of packages [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Program and arguments, after `--`
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Launch {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let logs = self.log_dir.unwrap_or_else(default_logs);
        let mut job = Job::new(self.processes, itself(self.program)?);
        job.threads = self.threads;
        job.grace = Duration::from_secs(self.grace);
        job.cache = self.cache_dir;
        job.log_dir = Some(logs.clone());
        let ended = job.run(&mut fetch::Bar::default(), &mut print)?;
        let code = match &ended {
            Ended::Finished => return Ok(ExitCode::SUCCESS),
            Ended::Stopped(signal) => u8::try_from(128 + signal).unwrap_or(1),
            _ => 1,
        };
        remark!(
            "halite launch: {ended}; the output of each process is in {}",
            logs.display()
        );
        Ok(ExitCode::from(code))
    }
}

/// The program; `halite` is this executable, wherever it is.
fn itself(mut program: Vec<OsString>) -> Result<Vec<OsString>> {
    if program.first().is_some_and(|name| name == "halite") {
        program[0] = env::current_exe()?.into();
    }
    Ok(program)
}

fn default_logs() -> PathBuf {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Path::new("runs/launch").join(format!("{}-{}", now.as_secs(), std::process::id()))
}

fn print(line: &Line) {
    match line.stream {
        Stream::Stdout => say!("[{}] {}", line.rank, line.text),
        Stream::Stderr => remark!("[{}] {}", line.rank, line.text),
    }
}
