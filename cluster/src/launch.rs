//! Launching of jobs: one shell around each process, whose output, end and failures the launcher
//! knows by rank.
//!
//! The launcher serves PMI, by which the processes find each other. So processes start on any host by
//! any means, survivors of a failure live long enough to report what they waited for, and the
//! launcher, not MPI, decides when the job is over. On one machine nothing listens: each process has
//! a socket of the launcher. Processes of other hosts connect to it, and prove that they know a secret.

mod cores;
mod verdict;

use std::{
    ffi::OsString,
    fmt,
    fs::{self, File},
    io::Write,
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use halite_core::{Error, ErrorKind, Result};
use halite_fetch::Progress;
use rustix::process::Signal;

pub use self::verdict::Failure;
use self::verdict::Verdict;
pub use crate::processes::{Line, Stream, is_credential};
use crate::{
    engine::Engine,
    environment::MOST,
    gate::{self, Gate},
    key::{self, Key},
    pmi::Server,
    processes::{self, Event, KILLED, Process, Start, Watcher},
    record::Record,
    signals::Signals,
};

/// A job to launch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Launch {
    /// Number of processes.
    pub processes: usize,
    /// Program and arguments.
    pub program: Vec<OsString>,
    /// Hosts of the processes, in equal parts and in this order; none is this one.
    pub hosts: Vec<String>,
    /// Command and options that start a command on a host.
    pub ssh: Vec<String>,
    /// Environment variables that the processes get besides those of this process.
    pub variables: Vec<(String, OsString)>,
    /// Directory of a file `rank-N.log` with the output of each process.
    pub log_dir: Option<PathBuf>,
    /// Cores of each process; `None` divides those of this machine.
    pub threads: Option<usize>,
    /// Time that the others have, after a failure, to end by themselves.
    pub grace: Duration,
    /// Cache directory of the MPI package; `None` is the default one.
    pub cache: Option<PathBuf>,
}

/// How a job ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Ended {
    /// Every process finished.
    Finished,
    /// Every one of several processes exited with 0, and none joined the job: each did all the work.
    NotJoined,
    /// A process failed first, and the others were ended.
    Failed(Failure),
    /// Every process ended because of this signal, to the launcher or to one of them.
    Stopped(i32),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Finished => f.write_str("every process finished"),
            Ended::NotJoined => f.write_str(
                "no process joined the job, so each of them did the whole work by itself; a program \
                 joins by `Job::from_env()` at the beginning of `main`",
            ),
            Ended::Failed(failure) => write!(f, "{failure}"),
            Ended::Stopped(number) => match signal_hook::low_level::signal_name(*number) {
                Some(name) => write!(f, "stopped by {name}"),
                None => write!(f, "stopped by signal {number}"),
            },
        }
    }
}

/// The processes of a launch.
struct Running {
    // In the order in which they end.
    processes: Vec<Process>,
    _watcher: Watcher,
    _gate: Option<Gate>,
    server: Server,
    events: Receiver<Event>,
}

impl Running {
    fn signal(&mut self, signal: Signal) {
        for process in &mut self.processes {
            process.signal(signal);
        }
    }
}

/// A launch until its end.
struct Watch {
    running: Running,
    verdict: Verdict,
    logs: Vec<File>,
    /// The signal that was passed on.
    stopped: Option<i32>,
    /// Whether the processes were notified of a failure.
    warned: bool,
    /// Time at which they were killed.
    killed: Option<Instant>,
}

impl Watch {
    fn line(&mut self, mut line: Line, output: &mut dyn FnMut(&Line)) {
        let (printed, record) = Record::split(&line.text);
        if let Some(record) = &record {
            self.verdict.record(line.rank, record);
        }
        if record.is_some() && printed.is_empty() {
            return;
        }
        line.text.truncate(printed.len());
        if let Some(log) = self.logs.get_mut(line.rank) {
            // The output of the job counts more than its copy.
            _ = writeln!(log, "{}", line.text);
        }
        output(&line);
    }

    fn signal(&mut self, number: i32) {
        match self.stopped {
            None => {
                self.stopped = Some(number);
                self.running.signal(Signal::TERM);
            }
            Some(_) => self.kill(),
        }
    }

    fn kill(&mut self) {
        if self.killed.is_none() {
            self.running.processes.iter_mut().for_each(Process::kill);
            self.killed = Some(Instant::now());
        }
    }

    /// After a failure, lets the others report what they waited for, and then kills them.
    fn failure(&mut self, grace: Duration) {
        if self.running.server.is_aborted() {
            self.kill();
        }
        let Some(since) = self.verdict.failed_since() else {
            return;
        };
        // A program that does not handle a signal ends by it, and others may need time to.
        if self.stopped.is_some() && !self.verdict.reported() {
            return;
        }
        if !self.warned {
            self.running.signal(Signal::USR1);
            self.warned = true;
        }
        if since.elapsed() >= grace {
            self.kill();
        }
    }

    fn end(mut self) -> Ended {
        self.running.processes.clear();
        let asked = self.stopped.filter(|_| !self.verdict.reported());
        let failure = self.verdict.failure();
        match (asked, failure, self.verdict.stopped()) {
            (Some(number), ..) => Ended::Stopped(number),
            (None, Some(failure), _) => Ended::Failed(Failure {
                stopped: self.stopped,
                ..failure
            }),
            (None, None, Some(number)) => Ended::Stopped(number),
            (None, None, None) if self.verdict.is_apart() => Ended::NotJoined,
            (None, None, None) => Ended::Finished,
        }
    }
}

/// Interval at which signals and deadlines are looked at.
const TICK: Duration = Duration::from_millis(20);

impl Launch {
    /// A job of `processes` processes. `program` is the path of an executable and its arguments.
    pub fn new(processes: usize, program: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Launch {
            processes,
            program: program.into_iter().map(Into::into).collect(),
            hosts: Vec::new(),
            ssh: ["ssh", "-o", "BatchMode=yes"].map(str::to_owned).to_vec(),
            variables: Vec::new(),
            log_dir: None,
            threads: None,
            grace: Duration::from_secs(5),
            cache: None,
        }
    }

    /// Runs the job to its end. `output` is called with each line that a process writes.
    ///
    /// SIGINT, SIGTERM and SIGHUP, unless this process ignores them, are passed on to all processes
    /// once, and kill them the second time. Afterwards they end this process as before.
    ///
    /// # Errors
    /// If MPI cannot be installed or started, or log files cannot be written.
    pub fn run(&self, progress: &mut dyn Progress, output: &mut dyn FnMut(&Line)) -> Result<Ended> {
        if self.processes > MOST {
            let message = format!("{} processes: a job has at most {MOST}", self.processes);
            return Err(Error::invalid("launch", message));
        }
        if self.processes == 0 || self.program.is_empty() || self.ssh.is_empty() {
            let message = "at least one process of a program, and a command for ssh, are needed";
            return Err(Error::invalid("launch", message));
        }
        for host in &self.hosts {
            processes::check_host(host)?;
        }
        let engine = Engine::find(self.cache.as_deref(), progress)?;
        let logs = self.logs()?;
        let signals = Signals::watch()?;
        let running = self.start(&engine)?;
        let mut ended = self.watch(running, &signals, logs, output);
        // One that came while the processes ended.
        if let (Ended::Failed(failure), Some(number)) = (&mut ended, signals.end()) {
            failure.stopped.get_or_insert(number);
        }
        Ok(ended)
    }

    /// The host of a process.
    fn host(&self, rank: usize) -> Option<&str> {
        let index = rank * self.hosts.len() / self.processes;
        self.hosts.get(index).map(String::as_str)
    }

    fn start(&self, engine: &Engine) -> Result<Running> {
        let server = Server::new(self.processes)?;
        let (send, events) = processes::events();
        let watcher = Watcher::start()?;
        let secret = key::hex(&key::random::<32>()?);
        let mut gate = None;
        let mut variables = self.variables.clone();
        if self.hosts.is_empty() {
            variables.extend(processes::of_one_machine(self.processes)?);
        } else {
            let (listeners, key) = (gate::listen_everywhere(0)?, Key::secret(&secret));
            gate = Some(Gate::open(listeners, &key, self.processes, &server)?);
        }
        let start = Start {
            engine,
            program: &self.program,
            size: self.processes,
            variables: &variables,
            events: &send,
        };
        let port = gate.as_ref().map_or(0, Gate::port);
        let mut processes = Vec::new();
        for rank in 0..self.processes {
            let started = match self.host(rank) {
                Some(host) => start.on(host, &self.ssh, rank, port, &secret),
                None => {
                    let (ours, theirs) = UnixStream::pair()?;
                    server.start(rank, ours.try_clone()?, ours)?;
                    cores::within(rank, self.processes, self.threads, || {
                        start.here(rank, theirs, &watcher)
                    })
                }
            };
            processes.push(started?);
        }
        Ok(Running {
            processes,
            _watcher: watcher,
            _gate: gate,
            server,
            events,
        })
    }

    fn logs(&self) -> Result<Vec<File>> {
        let Some(directory) = &self.log_dir else {
            return Ok(Vec::new());
        };
        let failed = |error: std::io::Error| {
            let message = format!("cannot write log files to {}", directory.display());
            Error::new(ErrorKind::Io, "launch", message).caused_by(error)
        };
        fs::create_dir_all(directory).map_err(failed)?;
        let log = |rank| File::create(directory.join(format!("rank-{rank}.log")));
        (0..self.processes)
            .map(|rank| log(rank).map_err(failed))
            .collect()
    }

    fn watch(
        &self,
        running: Running,
        signals: &Signals,
        logs: Vec<File>,
        output: &mut dyn FnMut(&Line),
    ) -> Ended {
        let mut watch = Watch {
            running,
            verdict: Verdict::new(self.processes),
            logs,
            stopped: None,
            warned: false,
            killed: None,
        };
        // What a process left running may hold its output open.
        while !watch.verdict.all_ended() && watch.killed.is_none_or(|at| at.elapsed() < KILLED) {
            match watch.running.events.recv_timeout(TICK) {
                Ok(Event::Line(line)) => watch.line(line, output),
                Ok(Event::Closed(rank)) => watch.verdict.closed(rank),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if let Some(number) = signals.take() {
                watch.signal(number);
            }
            watch.failure(self.grace);
        }
        watch.end()
    }
}
