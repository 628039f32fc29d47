//! Joining of processes that a scheduler started without PMI. The process that serves the job listens
//! at the address where the processes meet: process 0, or `halite launch` for other hosts. Each
//! process connects to it and runs the executable again as a child, with the variables of PMI and a
//! socket that leads there. The process itself waits for that child.

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
    process,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use halite_core::{Error, ErrorKind, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGUSR1};

use crate::{
    engine::Engine,
    environment::{Recognized, Source},
    gate::{self, Gate},
    key::{self, Key},
    pmi::Server,
    processes::{self, Event, KILLED, Process, Start, Stream, Watcher},
    record::{self, Record},
    shared_memory,
    signals::Signals,
};

/// Interval at which signals are looked at.
const TICK: Duration = Duration::from_millis(20);

/// Time after the end of another process in which its own report may come.
const TOLD: Duration = Duration::from_secs(1);

/// Runs this executable again as the process of the job that `job` says, and exits as it does.
///
/// # Errors
/// If the processes do not meet within `patience`, or the child cannot be started.
pub(crate) fn rerun(
    job: &Recognized,
    coordinator: &str,
    engine: &Engine,
    patience: Duration,
) -> Result<()> {
    // Before the others are waited for.
    let variables = variables(job, coordinator)?;
    let signals = Signals::watch()?;
    let key = match env::var(key::SECRET).ok().filter(|text| !text.is_empty()) {
        Some(secret) => Key::secret(&secret),
        None => Key::of(job.size, &job.identity),
    };
    let (send, events) = processes::events();
    let (ours, theirs) = UnixStream::pair()?;
    let (mut served, mut lost) = (None, None);
    if job.rank == 0 && job.source != Source::Mpi {
        let server = Server::new(job.size)?;
        server.start(0, ours.try_clone()?, ours)?;
        let listeners = gate::listen(coordinator, &job.description())?;
        served = Some((Gate::open(listeners, &key, job.size, &server)?, server));
    } else {
        let mut stopped = None;
        let reached = gate::reach(job, coordinator, &key, patience, || {
            stopped = signals.take();
            stopped.is_some()
        })?;
        let Some(stream) = reached else {
            process::exit(128 + stopped.unwrap_or(0));
        };
        lost = Some(relay(stream, ours)?);
    }
    let program: Vec<OsString> = std::iter::once(env::current_exe()?.into())
        .chain(env::args_os().skip(1))
        .collect();
    let start = Start {
        engine,
        program: &program,
        size: job.size,
        variables: &variables,
        events: &send,
    };
    let watcher = Watcher::start()?;
    let child = start.here(job.rank, theirs, &watcher)?;
    drop(send);
    let server = served.as_ref().map(|(_, server)| server);
    let mut parent = Parent {
        job,
        coordinator,
        child,
        server,
        note: Some(Instant::now() + gate::NOTE),
        reported: Reported::default(),
        lost,
        warned: false,
        killed: None,
    };
    let status = parent.run(&events, &signals)?;
    if let Some((_gate, server)) = served.as_ref().filter(|_| status.finished) {
        serve_others(server, &signals);
    }
    drop(watcher);
    process::exit(status.code)
}

/// Serves the other processes until they have left the job.
fn serve_others(server: &Server, signals: &Signals) {
    let is_over = |at: Instant| at.elapsed() >= KILLED;
    while !server.all_left()
        && !server.failed_since().is_some_and(is_over)
        && signals.take().is_none()
    {
        thread::sleep(TICK);
    }
}

/// Variables of the child for its MPI library.
fn variables(job: &Recognized, coordinator: &str) -> Result<Vec<(String, OsString)>> {
    // `halite launch` may have hosts besides this one.
    if job.source != Source::Mpi && gate::is_of_one_machine(coordinator) {
        return processes::of_one_machine(job.size);
    }
    let here = shared_memory::at_most(job.size);
    Ok(processes::not_set(shared_memory::variable(here)?))
}

/// Passes on what the child and the server of the job say to each other. Returns the time of the
/// server's end, once it comes.
fn relay(server: TcpStream, child: UnixStream) -> Result<Arc<OnceLock<Instant>>> {
    let lost = Arc::<OnceLock<Instant>>::default();
    let ended = lost.clone();
    let (to_server, from_child) = (server.try_clone()?, child.try_clone()?);
    let up = move || {
        _ = io::copy(&mut &from_child, &mut &to_server);
        _ = to_server.shutdown(Shutdown::Write);
    };
    let down = move || {
        _ = io::copy(&mut &server, &mut &child);
        _ = child.shutdown(Shutdown::Both);
        _ = ended.set(Instant::now());
    };
    for work in [Box::new(up) as Box<dyn FnOnce() + Send>, Box::new(down)] {
        let thread = thread::Builder::new().name("halite-pmi".into());
        thread.spawn(work).map_err(|error| {
            let message = "cannot start a thread that connects a process to its job";
            Error::new(ErrorKind::Unavailable, "job", message).caused_by(error)
        })?;
    }
    Ok(lost)
}

/// End of a child.
struct Status {
    code: i32,
    /// Whether it had finished its part of the job.
    finished: bool,
}

/// What a child has reported.
#[derive(Default)]
struct Reported {
    pid: Option<u32>,
    finished: bool,
    /// Status of the signal that stopped it.
    stopped: Option<u8>,
    exited: Option<i32>,
}

impl Reported {
    fn record(&mut self, record: &Record) {
        match record {
            Record::Joined { pid, .. } => self.pid = Some(*pid),
            Record::Finished => self.finished = true,
            Record::Stopped(status) => self.stopped = Some(*status),
            Record::Exited(status) => self.exited = Some(*status),
            Record::Saved(_) | Record::Failed(_) => {}
        }
    }

    fn status(&self) -> Status {
        let code = match self.exited {
            // Its program ended as if it had succeeded, and the others wait for it.
            Some(0) if self.pid.is_some() && !self.finished => {
                eprintln!("error: the process exited with status 0 before it had finished the job");
                1
            }
            // A scheduler that starts stopped jobs again knows them by their status.
            Some(0) => self.stopped.unwrap_or(0).into(),
            Some(other) => other,
            None => 1,
        };
        let finished = self.finished;
        Status { code, finished }
    }
}

/// This process, while its child runs.
struct Parent<'a> {
    job: &'a Recognized,
    coordinator: &'a str,
    child: Process,
    /// In the process that serves the others.
    server: Option<&'a Server>,
    /// Time at which it says which processes it waits for, if any are missing.
    note: Option<Instant>,
    reported: Reported,
    /// Time of the end of the job's server, in the other processes.
    lost: Option<Arc<OnceLock<Instant>>>,
    /// Whether the child was told that another process failed.
    warned: bool,
    killed: Option<Instant>,
}

impl Parent<'_> {
    /// Passes on the output of the child and signals to it, and returns its status.
    fn run(&mut self, events: &Receiver<Event>, signals: &Signals) -> Result<Status> {
        let warned = Arc::new(AtomicBool::new(false));
        if record::is_launched() {
            signal_hook::flag::register(SIGUSR1, warned.clone())?;
        }
        let mut asked = false;
        // What a process left running may hold its output open.
        while self.killed.is_none_or(|at| at.elapsed() < KILLED) {
            match events.recv_timeout(TICK) {
                Ok(Event::Line(line)) => self.line(&line),
                Ok(Event::Closed(_)) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.failure();
            self.note();
            if warned.swap(false, Relaxed) {
                self.send(Signal::USR1);
            }
            let Some(number) = signals.take() else {
                continue;
            };
            // Schedulers repeat SIGTERM; a second Ctrl-C is of a person who does not want to wait.
            let kill = asked && number == SIGINT;
            if !self.send(if kill { Signal::KILL } else { Signal::TERM }) {
                // It has not joined: there is nothing to save.
                self.child.kill();
                let (code, finished) = (128 + number, false);
                return Ok(Status { code, finished });
            }
            asked = true;
        }
        Ok(self.reported.status())
    }

    fn line(&mut self, line: &processes::Line) {
        let (text, record) = Record::split(&line.text);
        if let Some(record) = &record {
            self.reported.record(record);
            // The launcher hears of the end from its own shell.
            if !matches!(record, Record::Exited(_)) {
                record.send();
            }
        }
        if record.is_none() || !text.is_empty() {
            // A closed pipe, as of `head`, does not end the job.
            _ = match line.stream {
                Stream::Stdout => writeln!(io::stdout(), "{text}"),
                Stream::Stderr => writeln!(io::stderr(), "{text}"),
            };
        }
    }

    /// Ends the child when the job is over, after an abort or the early end of another process: tells
    /// it first, so that it reports what it waited for, and kills it some time later.
    fn failure(&mut self) {
        if self.reported.finished || self.reported.exited.is_some() || self.killed.is_some() {
            return;
        }
        let ended = self.server.and_then(Server::failed_since);
        let lost = self.lost.as_ref().and_then(|at| at.get().copied());
        let Some(since) = ended.or(lost).map(|at| at.elapsed()) else {
            return;
        };
        let is_aborted = self.server.is_some_and(Server::is_aborted);
        if !is_aborted && since < KILLED {
            if since >= TOLD && !self.warned {
                self.warned = true;
                self.send(Signal::USR1);
            }
            return;
        }
        let at = self.coordinator;
        match self.server {
            Some(_) if is_aborted => eprintln!("error: job: a process aborted it"),
            Some(_) => eprintln!("error: job: another process ended before it had finished"),
            None => eprintln!("error: job: its server at {at} ended, or the network is gone"),
        }
        self.child.kill();
        self.killed = Some(Instant::now());
    }

    /// Sends a signal to the child; returns false if it has not joined the job.
    fn send(&self, signal: Signal) -> bool {
        let pid = self.reported.pid.and_then(|pid| Pid::from_raw(pid as i32));
        if let Some(pid) = pid {
            _ = kill_process(pid, signal);
        }
        pid.is_some()
    }

    /// Says which processes have not come, once.
    fn note(&mut self) {
        let Some(server) = self
            .server
            .filter(|_| self.note.is_some_and(|at| Instant::now() >= at))
        else {
            return;
        };
        self.note = None;
        let missing = server.missing();
        if let [first, ..] = missing[..] {
            let others = match missing.len() {
                1 => String::new(),
                more => format!(" and {} others", more - 1),
            };
            let (job, at) = (self.job.description(), self.coordinator);
            eprintln!("halite: {job} waits at {at} for process {first}{others}");
        }
    }
}
