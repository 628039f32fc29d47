//! `halite launch`: starts a job of many processes.

use std::{
    collections::HashMap,
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
    core::files,
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
  halite launch -n 4 --hosts node1,node2 -- /opt/my-training   two processes on each of two hosts, by ssh
SIGTERM and Ctrl-C are passed on to all processes, so that a training saves a checkpoint; a second
one kills them.")]
pub(crate) struct Launch {
    /// Number of processes
    #[arg(short = 'n', long, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    processes: usize,
    /// Hosts of the processes, in equal parts, which are started by ssh. Program, working directory and
    /// cache directory have the same paths there
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    hosts: Vec<String>,
    /// File with a host on each line
    #[arg(long, value_name = "FILE", conflicts_with = "hosts")]
    hostfile: Option<PathBuf>,
    /// Command and options that start a command on a host
    #[arg(long, value_name = "COMMAND", default_value = "ssh -o BatchMode=yes")]
    ssh: String,
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
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = positive::<u32>, allow_negative_numbers = true)]
    start_deadline: u32,
    /// Seconds after which a process of which no heartbeat comes is gone
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = positive::<u32>, allow_negative_numbers = true)]
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
        job.hosts = match &self.hostfile {
            Some(file) => hosts_in(file)?,
            None => self.hosts,
        };
        job.ssh = self.ssh.split_whitespace().map(str::to_owned).collect();
        job.threads = self.threads;
        job.grace = Duration::from_secs(self.grace);
        job.cache = self.cache_dir;
        job.log_dir = Some(logs.clone());
        let seconds = |name: &str, value: u32| (name.to_owned(), value.to_string().into());
        let deadlines = [
            seconds("HALITE_JOB_START", self.start_deadline),
            seconds("HALITE_JOB_LOST", self.lost_deadline),
        ];
        let (mut attempt, number) = (0, number());
        let mut output = Output::default();
        loop {
            job.variables = deadlines.to_vec();
            job.variables.push((NUMBER.into(), number.clone().into()));
            job.variables.push(seconds(RESTART, attempt));
            let ended = job.run(&mut fetch::Bar::default(), &mut |line| output.print(line))?;
            let logs = logs.display();
            match ended {
                // A launcher that was told to stop does not start the job again.
                Ended::Failed(failure) if attempt < self.restarts && failure.stopped.is_none() => {
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
                Ended::NotJoined => {
                    remark!("halite launch: note: {ended}");
                    return Ok(ExitCode::SUCCESS);
                }
                _ => return Ok(ExitCode::SUCCESS),
            }
        }
    }
}

/// Environment variable with the number of restarts before this one.
pub(super) const RESTART: &str = "HALITE_RESTART";

/// Environment variable with the number of this launch, the same after a restart.
pub(super) const NUMBER: &str = "HALITE_LAUNCH";

/// The program; `halite` is this executable, wherever it is.
fn itself(mut program: Vec<OsString>) -> Result<Vec<OsString>> {
    if program.first().is_some_and(|name| name == "halite") {
        program[0] = env::current_exe()?.into();
    }
    Ok(program)
}

/// The hosts in a file: the first word of each line that is not a comment.
fn hosts_in(file: &Path) -> Result<Vec<String>> {
    let text = files::read_input_text(file).map_err(|error| {
        let message = format!("cannot read --hostfile {}", file.display());
        Error::new(ErrorKind::Io, "launch", message).caused_by(error)
    })?;
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    let hosts = lines.filter_map(|line| line.split_whitespace().next());
    Ok(hosts.map(str::to_owned).collect())
}

fn default_logs() -> PathBuf {
    Path::new("runs/launch").join(number())
}

/// Time and process: what no other launch has.
fn number() -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!("{}-{}", now.as_secs(), std::process::id())
}

/// Most different warnings that are compared.
const WARNINGS: usize = 1000;

/// What was printed of the processes' output.
#[derive(Default)]
struct Output {
    /// How often each process has printed a warning.
    warnings: HashMap<String, Vec<usize>>,
}

impl Output {
    /// Prints a line with the number of its process; of a warning that several processes print, that
    /// of the first.
    fn print(&mut self, line: &Line) {
        match line.stream {
            Stream::Stdout => say!("[{}] {}", line.rank, line.text),
            Stream::Stderr if self.is_repeated(line) => {}
            Stream::Stderr => remark!("[{}] {}", line.rank, line.text),
        }
    }

    /// Whether another process has printed the same warning as often before.
    fn is_repeated(&mut self, line: &Line) -> bool {
        let text = line.text.trim_start();
        let is_known = self.warnings.contains_key(text);
        if !text.starts_with("WARN ") || !is_known && self.warnings.len() >= WARNINGS {
            return false;
        }
        let counts = self.warnings.entry(text.to_owned()).or_default();
        let most = counts.iter().copied().max().unwrap_or(0);
        if counts.len() <= line.rank {
            counts.resize(line.rank + 1, 0);
        }
        counts[line.rank] += 1;
        counts[line.rank] <= most
    }
}
