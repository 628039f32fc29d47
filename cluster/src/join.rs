//! Joining of processes that a scheduler started without PMI. Process 0 starts `mpiexec` at the
//! address where the processes meet; each process starts a proxy, which connects to it and runs the
//! executable again as a child, with the variables of PMI. The process itself waits for that child.

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    net::{Ipv4Addr, TcpListener},
    process,
    sync::mpsc::RecvTimeoutError,
    thread,
    time::{Duration, Instant},
};

use halite_core::{Error, ErrorKind, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::SIGINT;

use crate::{
    engine::Engine,
    environment::Recognized,
    hydra::{self, Event, KILLED, Mpiexec, Proxy, Stream},
    record::Record,
    signals::Signals,
};

/// Interval at which signals are looked at.
const TICK: Duration = Duration::from_millis(20);

/// Time between two attempts of a proxy to reach `mpiexec`.
const RETRY: Duration = Duration::from_secs(1);

/// Runs this executable again as the process of the job that `job` says, and exits as it does.
///
/// # Errors
/// If `mpiexec` or the proxy cannot be started, or the processes do not meet within `patience`.
pub(crate) fn rerun(
    job: &Recognized,
    coordinator: &str,
    engine: &Engine,
    patience: Duration,
) -> Result<()> {
    let (host, port) = coordinator.rsplit_once(':').unwrap_or((coordinator, ""));
    let port: u16 = port.parse().map_err(|_| {
        let message =
            format!("the address of the coordinator is `{coordinator}`; expected HOST:PORT");
        Error::invalid("job", message)
    })?;
    let signals = Signals::watch()?;
    let program: Vec<OsString> = std::iter::once(env::current_exe()?.into())
        .chain(env::args_os().skip(1))
        .collect();
    let mut mpiexec = match job.rank {
        0 => {
            check_port(port)?;
            Some(Mpiexec::start(engine, job.size, &program, Some(port))?)
        }
        _ => None,
    };
    let address = if job.rank == 0 { "127.0.0.1" } else { host };
    let command = engine.proxy(&format!("{address}:{port}"), job.rank);
    let start = Instant::now();
    let mut complaints = String::new();
    let status = loop {
        let left = patience.saturating_sub(start.elapsed());
        let mut complaint = String::new();
        if let Some(status) = run(&command, job.rank, engine, &signals, left, &mut complaint)? {
            break status;
        }
        // The last attempt may be too short for one.
        if !complaint.is_empty() {
            complaints = complaint;
        }
        let has_ended = mpiexec.as_mut().is_some_and(Mpiexec::has_ended);
        if start.elapsed() >= patience || has_ended {
            if let Some(mut mpiexec) = mpiexec {
                complaints = mpiexec.end();
            }
            let message = format!(
                "process {} of {} did not reach process 0 at {coordinator} within {:.0?}: \
                 {complaints}",
                job.rank,
                job.size,
                if has_ended { start.elapsed() } else { patience }
            );
            return Err(Error::new(ErrorKind::DeadlineExceeded, "job", message));
        }
        thread::sleep(RETRY);
    };
    if let Some(mut mpiexec) = mpiexec {
        // The proxies of the others are served until they end, but those that never came.
        let ended = Instant::now();
        while !mpiexec.has_ended() {
            let failed = !status.finished && ended.elapsed() >= KILLED;
            if failed || signals.take().is_some() {
                mpiexec.kill();
            }
            thread::sleep(TICK);
        }
        mpiexec.end();
    }
    process::exit(status.code)
}

/// Whether this process can listen at the port where the others meet it. A proxy of this job at the
/// `mpiexec` of another one would end that job.
///
/// # Errors
/// If it cannot.
fn check_port(port: u16) -> Result<()> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).map_err(|error| {
        let message = format!(
            "cannot listen at port {port}, where the processes meet; if another job meets there, set \
             HALITE_PROCESS_ID, HALITE_NUM_PROCESSES and HALITE_COORDINATOR_ADDRESS with another port"
        );
        Error::new(ErrorKind::Unavailable, "job", message).caused_by(error)
    })?;
    Ok(())
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
    failed: bool,
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
            Record::Failed(_) => self.failed = true,
            Record::Saved(_) => {}
        }
    }

    /// `None` if it did not run.
    fn status(&self) -> Option<Status> {
        let code = match self.exited {
            // Its program ended as if it had succeeded, and the others wait for it.
            Some(0) if self.pid.is_some() && !self.finished => {
                eprintln!("error: the process exited with status 0 before it had finished the job");
                1
            }
            // A scheduler that starts stopped jobs again knows them by their status.
            Some(0) => self.stopped.unwrap_or(0).into(),
            Some(other) => other,
            None => self.pid.map(|_| 1)?,
        };
        let finished = self.finished;
        Some(Status { code, finished })
    }
}

/// Passes on the output of the child, and returns its status; `None` if the proxy ended before it
/// ran, or it did not run within `patience`. `complaint` is why the proxy did not reach `mpiexec`.
fn run(
    command: &[String],
    rank: usize,
    engine: &Engine,
    signals: &Signals,
    patience: Duration,
    complaint: &mut String,
) -> Result<Option<Status>> {
    let (send, events) = hydra::events();
    let mut proxy = Proxy::start(command, rank, engine, &[], &send)?;
    drop(send);
    let start = Instant::now();
    let (mut reported, mut asked) = (Reported::default(), false);
    loop {
        match events.recv_timeout(TICK) {
            Ok(Event::Line(line)) => {
                let (text, record) = Record::split(&line.text);
                if let Some(record) = &record {
                    reported.record(record);
                }
                let is_proxy = text.starts_with("[proxy:");
                if is_proxy && reported.pid.is_none() && complaint.is_empty() {
                    // After the place in its code.
                    let why = text.split_once("): ").map_or(text, |(_, why)| why);
                    complaint.push_str(why);
                }
                // A proxy that does not reach `mpiexec` yet says so each time, and one that loses
                // it after a failure.
                let is_noise =
                    reported.pid.is_none() || reported.failed || reported.exited.is_some();
                let is_noise = is_noise && is_proxy;
                if (record.is_none() || !text.is_empty()) && !is_noise {
                    // A closed pipe, as of `head`, does not end the job.
                    _ = match line.stream {
                        Stream::Stdout => writeln!(io::stdout(), "{text}"),
                        Stream::Stderr => writeln!(io::stderr(), "{text}"),
                    };
                }
            }
            Ok(Event::Closed(_)) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if reported.pid.is_none() && start.elapsed() >= patience {
            proxy.kill();
            return Ok(None);
        }
        let Some(number) = signals.take() else {
            continue;
        };
        let Some(pid) = reported.pid.and_then(|pid| Pid::from_raw(pid as i32)) else {
            // It has not joined: there is nothing to save.
            proxy.kill();
            let (code, finished) = (128 + number, false);
            return Ok(Some(Status { code, finished }));
        };
        // Schedulers repeat SIGTERM; a second Ctrl-C is of a person who does not want to wait.
        let kill = asked && number == SIGINT;
        _ = kill_process(pid, if kill { Signal::KILL } else { Signal::TERM });
        asked = true;
    }
    Ok(reported.status())
}
