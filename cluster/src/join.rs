//! Joining of processes that a scheduler started without PMI. Process 0 starts `mpiexec` at the address
//! where the processes meet; each process starts a proxy, which connects to it and runs the executable
//! again as a child, with the variables of PMI. The process itself waits for that child.

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    process,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::RecvTimeoutError,
    },
    thread,
    time::{Duration, Instant},
};

use halite_core::{Error, ErrorKind, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::{
    engine::Engine,
    environment::Recognized,
    hydra::{self, Event, Mpiexec, Proxy, Stream},
    record::Record,
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
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register_usize(number, signal.clone(), number as usize)?;
    }
    let program: Vec<OsString> = std::iter::once(env::current_exe()?.into())
        .chain(env::args_os().skip(1))
        .collect();
    let mpiexec = match job.rank {
        0 => Some(Mpiexec::start(engine, job.size, &program, Some(port))?),
        _ => None,
    };
    let address = if job.rank == 0 { "127.0.0.1" } else { host };
    let command = engine.proxy(&format!("{address}:{port}"), job.rank);
    let start = Instant::now();
    let status = loop {
        let status = run(&command, job.rank, engine, &signal)?;
        if let Some(status) = status {
            break status;
        }
        if start.elapsed() >= patience {
            let mut complaints = String::new();
            if let Some(mut mpiexec) = mpiexec {
                complaints = format!(": {}", mpiexec.end());
            }
            let message = format!(
                "process {} of {} did not reach process 0 at {coordinator} within \
                 {patience:?}{complaints}",
                job.rank, job.size
            );
            return Err(Error::new(ErrorKind::DeadlineExceeded, "job", message));
        }
        thread::sleep(RETRY);
    };
    if let Some(mut mpiexec) = mpiexec {
        // The proxies of the others are served until they end.
        mpiexec.wait();
    }
    process::exit(status)
}

/// Passes on the output of the child, and returns its status; `None` if the proxy ended before it ran.
fn run(
    command: &[String],
    rank: usize,
    engine: &Engine,
    signal: &AtomicUsize,
) -> Result<Option<i32>> {
    let (send, events) = hydra::events();
    let _proxy = Proxy::start(command, rank, engine, &[], &send)?;
    drop(send);
    let (mut exited, mut pid, mut finished) = (None, None, false);
    loop {
        match events.recv_timeout(TICK) {
            Ok(Event::Line(line)) => {
                let (text, record) = Record::split(&line.text);
                match record {
                    Some(Record::Exited(status)) => exited = Some(status),
                    Some(Record::Joined { pid: id, .. }) => pid = Some(id),
                    Some(Record::Finished) => finished = true,
                    _ => {}
                }
                // A proxy that does not reach `mpiexec` yet says so each time.
                let is_retry = pid.is_none() && text.starts_with("[proxy:");
                if (record.is_none() || !text.is_empty()) && !is_retry {
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
        if signal.swap(0, Relaxed) != 0 {
            // Before it has joined, nothing is lost if it goes on to the deadline of the others.
            if let Some(pid) = pid.and_then(|pid| Pid::from_raw(pid as i32)) {
                _ = kill_process(pid, Signal::TERM);
            }
        }
    }
    Ok(match exited {
        // Its program ended as if it had succeeded, and the others wait for it.
        Some(0) if pid.is_some() && !finished => {
            eprintln!("error: the process exited with status 0 before it had finished the job");
            Some(1)
        }
        other => other.or(pid.map(|_| 1)),
    })
}
