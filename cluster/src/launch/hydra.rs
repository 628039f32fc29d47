//! The processes of a launch: Hydra's `mpiexec`, a proxy for each process, and a watcher that ends all
//! of them if this process is killed.

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, Read},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use halite_core::{Error, ErrorKind, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::{Launch, Line, Stream, cores};
use crate::{engine, engine::Engine, record};

/// What comes from the processes.
pub(super) enum Event {
    Line(Line),
    /// Both streams of a process are closed.
    Closed(usize),
}

/// Starts a proxy. Its process finds the streams of the job at 3 and 4, because Hydra gives it others.
const PROXY: &str = "exec 3>&1 4>&2; exec \"$@\" </dev/null >/dev/null";

/// Starts a program on these streams, and tells how it ended. Signals to the group reach the program,
/// and the shell waits for it.
const PROGRAM: &str = "trap : HUP INT TERM USR1 USR2; \
                       \"$@\" >&3 2>&4 3>&- 4>&-; status=$?; \
                       printf '\\036halite exited %s\\n' $status >&4; exit $status";

/// Kills `mpiexec`, which ends all proxies and their processes, when this process ends.
const WATCHER: &str = "read _; kill -9 \"$1\"";

/// Lines of all processes that may wait to be handled.
const QUEUE: usize = 1024;

/// Number of lines of `mpiexec` that are kept for errors.
const KEPT: usize = 20;

/// Time in which `mpiexec` tells how to start the proxies.
const START: Duration = Duration::from_secs(60);

pub(super) struct Running {
    mpiexec: Child,
    watcher: Child,
    /// Held open: the watcher reads to its end.
    _alive: ChildStdin,
    proxies: Vec<Child>,
    events: Receiver<Event>,
    complaints: Arc<Mutex<VecDeque<String>>>,
}

impl Running {
    /// Starts `mpiexec` and the proxies.
    ///
    /// # Errors
    /// If one cannot be started, or `mpiexec` does not tell how to start proxies.
    pub(super) fn start(launch: &Launch, engine: &Engine) -> Result<Running> {
        let hosts: Vec<String> = (0..launch.processes)
            .map(|rank| format!("rank{rank}"))
            .collect();
        let mut command = Command::new(&engine.mpiexec);
        command
            .args(["-launcher", "manual", "-disable-auto-cleanup", "-hosts"])
            .arg(hosts.join(","))
            .args([
                "-n",
                &launch.processes.to_string(),
                "/bin/sh",
                "-c",
                PROGRAM,
                "sh",
            ])
            .args(&launch.program)
            .env(engine::VARIABLE, &engine.library)
            .env(record::VARIABLE, "1")
            .envs(launch.variables.iter().map(|(name, value)| (name, value)));
        let mut mpiexec = spawn(command.stdin(Stdio::null()))?;
        let mut watcher = Command::new("/bin/sh");
        let pid = mpiexec.id().to_string();
        watcher
            .args(["-c", WATCHER, "sh", &pid])
            .stdin(Stdio::piped());
        let mut watcher = spawn(&mut watcher)?;
        let (send, events) = sync_channel(QUEUE);
        let complaints = Arc::<Mutex<VecDeque<String>>>::default();
        let stdout = mpiexec.stdout.take().expect("stdout is piped");
        let stderr = mpiexec.stderr.take().expect("stderr is piped");
        let commands = keep(stdout, &complaints)?;
        keep(stderr, &complaints)?;
        let mut running = Running {
            _alive: watcher.stdin.take().expect("stdin is piped"),
            mpiexec,
            watcher,
            proxies: Vec::new(),
            events,
            complaints,
        };
        for rank in 0..launch.processes {
            let Ok(arguments) = commands.recv_timeout(START) else {
                let message = format!(
                    "{} does not tell how to start its proxies: {}; halite needs MPICH's",
                    engine.mpiexec.display(),
                    running.end()
                );
                return Err(Error::new(ErrorKind::Unavailable, "launch", message));
            };
            let started = cores::within(rank, launch.processes, launch.threads, || {
                proxy(&arguments, rank, &send)
            });
            running.proxies.push(started?);
        }
        Ok(running)
    }

    pub(super) fn events(&self) -> &Receiver<Event> {
        &self.events
    }

    /// Asks all processes to end, by SIGTERM.
    pub(super) fn terminate(&self) {
        _ = kill_process(Pid::from_child(&self.mpiexec), Signal::TERM);
    }

    /// Kills all processes: proxies do so when `mpiexec` is gone.
    pub(super) fn kill(&mut self) -> Instant {
        _ = self.mpiexec.kill();
        Instant::now()
    }

    /// Ends what is left, and returns what `mpiexec` printed.
    pub(super) fn end(&mut self) -> String {
        // Before `mpiexec` is waited for, because then its id may be another process'.
        _ = self.watcher.kill();
        _ = self.watcher.wait();
        let start = Instant::now();
        while matches!(self.mpiexec.try_wait(), Ok(None)) && start.elapsed() < super::KILLED {
            thread::sleep(Duration::from_millis(2));
        }
        _ = self.mpiexec.kill();
        _ = self.mpiexec.wait();
        for proxy in &mut self.proxies {
            while matches!(proxy.try_wait(), Ok(None)) && start.elapsed() < 2 * super::KILLED {
                thread::sleep(Duration::from_millis(2));
            }
            _ = proxy.kill();
            _ = proxy.wait();
        }
        self.proxies.clear();
        let lines = self
            .complaints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        lines
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("; ")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.mpiexec.kill();
        self.end();
    }
}

/// Starts the proxy of a process and threads that read its output.
fn proxy(arguments: &[String], rank: usize, events: &SyncSender<Event>) -> Result<Child> {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", PROXY, "sh"])
        .args(arguments)
        .stdin(Stdio::null());
    let mut child = spawn(&mut command)?;
    let streams: [(_, Option<Box<dyn Read + Send>>); 2] = [
        (
            Stream::Stdout,
            child.stdout.take().map(|pipe| Box::new(pipe) as _),
        ),
        (
            Stream::Stderr,
            child.stderr.take().map(|pipe| Box::new(pipe) as _),
        ),
    ];
    let open = Arc::new(AtomicUsize::new(streams.len()));
    for (stream, pipe) in streams {
        let (events, open) = (events.clone(), open.clone());
        let pipe = pipe.expect("both streams are piped");
        read("halite-output", pipe, move |text| match text {
            // The receiver is gone only when the job is over.
            Some(text) => _ = events.send(Event::Line(Line { rank, stream, text })),
            None if open.fetch_sub(1, SeqCst) == 1 => _ = events.send(Event::Closed(rank)),
            None => {}
        })?;
    }
    Ok(child)
}

/// Keeps what `mpiexec` prints, and returns the commands of proxies in it.
fn keep(
    pipe: impl Read + Send + 'static,
    lines: &Arc<Mutex<VecDeque<String>>>,
) -> Result<Receiver<Vec<String>>> {
    let (send, commands) = sync_channel(QUEUE);
    let lines = lines.clone();
    read("halite-mpiexec", pipe, move |line| {
        let Some(line) = line else { return };
        if let Some(command) = line.strip_prefix("HYDRA_LAUNCH: ") {
            _ = send.send(local(command));
        } else if !line.is_empty() && line != "HYDRA_LAUNCH_END" {
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push_back(line);
            if lines.len() > KEPT {
                lines.pop_front();
            }
        }
    })?;
    Ok(commands)
}

/// The words of a proxy's command, which connects to this machine.
fn local(command: &str) -> Vec<String> {
    let mut words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    let option = words.iter().position(|word| word == "--control-port");
    if let Some(address) = option.and_then(|index| words.get_mut(index + 1))
        && let Some((_, port)) = address.rsplit_once(':')
    {
        // The name of a machine may not resolve, or to an address that is not reached.
        *address = format!("127.0.0.1:{port}");
    }
    words
}

/// Calls `each` on a thread with the lines of a pipe, and with `None` at its end.
fn read(
    name: &str,
    pipe: impl Read + Send + 'static,
    mut each: impl FnMut(Option<String>) + Send + 'static,
) -> Result<()> {
    let run = move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe
            .read_until(b'\n', &mut line)
            .is_ok_and(|count| count > 0)
        {
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            each(Some(String::from_utf8_lossy(text).into_owned()));
            line.clear();
        }
        each(None);
    };
    let spawned = thread::Builder::new().name(name.into()).spawn(run);
    spawned.map(drop).map_err(|error| {
        let message = "cannot start a thread that reads the output of a process";
        Error::new(ErrorKind::Unavailable, "launch", message).caused_by(error)
    })
}

/// Starts a command in a process group of its own, so that Ctrl-C reaches this process alone.
fn spawn(command: &mut Command) -> Result<Child> {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|error: io::Error| {
        let program = command.get_program().to_string_lossy();
        let message = format!("cannot start {program}");
        Error::new(ErrorKind::Unavailable, "launch", message).caused_by(error)
    })
}
