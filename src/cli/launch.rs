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
    Error, ErrorKind, Result,
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
  halite launch -n 2 --restarts 3 -- halite train mnist   again from the last checkpoint after a failure
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
    /// Start all processes again after a failure, at most N times; `halite train` continues from its
    /// last checkpoint then
    #[arg(long, value_name = "N", default_value_t = 0)]
    restarts: u32,
    /// Seconds in which all processes have to join
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    start_deadline: u32,
    /// Seconds after which a process of which no heartbeat comes is gone
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    lost_deadline: u32,
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
        let seconds = |name: &str, value: u32| (name.to_owned(), value.to_string().into());
        let deadlines = [
            seconds("HALITE_JOB_START", self.start_deadline),
            seconds("HALITE_JOB_LOST", self.lost_deadline),
        ];
        let mut attempt = 0;
        loop {
            job.variables = deadlines.to_vec();
            job.variables.push(seconds(RESTART, attempt));
            let ended = job.run(&mut fetch::Bar::default(), &mut print)?;
            let logs = logs.display();
            match ended {
                Ended::Failed(failure) if attempt < self.restarts => {
                    attempt += 1;
                    let of = self.restarts;
                    remark!("halite launch: {failure}; starting again ({attempt} of {of})");
                    job.log_dir = Some(format!("{logs}/restart-{attempt}").into());
                }
                Ended::Failed(failure) => {
                    let message = format!("{failure}; the output of each process is in {logs}");
                    return Err(Error::new(ErrorKind::Unavailable, "launch", message));
                }
                Ended::Stopped(signal) => {
                    remark!("halite launch: {ended}; the output of each process is in {logs}");
                    return Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)));
                }
                _ => return Ok(ExitCode::SUCCESS),
            }
        }
    }
}

/// Environment variable with the number of restarts before this one.
pub(super) const RESTART: &str = "HALITE_RESTART";

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
