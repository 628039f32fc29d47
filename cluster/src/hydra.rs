//! The processes of MPICH's launcher Hydra: `mpiexec`, and a proxy for each process of a job, which
//! are all ended if this process is killed.

mod proxy;

use std::{
    collections::VecDeque,
    ffi::OsString,
    io::{self, BufRead, BufReader, Read},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, channel, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use halite_core::{Error, ErrorKind, Result};
use rustix::process::{Pid, Signal, kill_process};

pub use self::proxy::is_credential;
pub(crate) use self::proxy::{Proxy, on_this_host};
use crate::engine::Engine;

/// Where a process wrote a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum Stream {
    Stdout,
    Stderr,
}

/// A line that a process wrote.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Line {
    /// The process.
    pub rank: usize,
    /// Where it wrote the line.
    pub stream: Stream,
    /// The line, without its end.
    pub text: String,
}

/// What comes from the processes.
pub(crate) enum Event {
    Line(Line),
    /// Both streams of a process are closed.
    Closed(usize),
}

/// Starts a program on these streams, and prints how it ended. Signals to the group reach the
/// program, and the shell waits for it. After a failure it stays for a second: `mpiexec` forwards
/// no signal once a proxy has ended, so the other processes would not learn of the failure.
const PROGRAM: &str = "trap : HUP INT TERM USR1 USR2; \
                       \"$@\" >&3 2>&4 3>&- 4>&-; status=$?; \
                       printf '\\036halite exited %s\\n' $status >&4; \
                       [ $status -eq 0 ] || { trap '' USR1; sleep 1; }; exit $status";

/// Kills a process when this one ends.
const WATCHER: &str = "read _; kill -9 \"$1\"";

/// Lines of all processes that may wait to be handled.
const QUEUE: usize = 1024;

/// Number of lines of `mpiexec` that are kept for errors.
const KEPT: usize = 20;

/// Time in which `mpiexec` prints the commands of the proxies.
const START: Duration = Duration::from_secs(60);

/// Time in which processes end after a signal.
pub(crate) const KILLED: Duration = Duration::from_secs(5);

/// `mpiexec`, to which the proxies connect. When it is killed, they end, and their processes with
/// them.
pub(crate) struct Mpiexec {
    child: Child,
    watcher: Watcher,
    commands: Receiver<Vec<String>>,
    complaints: Arc<Mutex<VecDeque<String>>>,
}

impl Mpiexec {
    /// Starts `mpiexec` for a job of `processes` processes of `program`. It listens on `port`, or
    /// on a free one.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start(
        engine: &Engine,
        processes: usize,
        program: &[OsString],
        port: Option<u16>,
    ) -> Result<Mpiexec> {
        // Hydra never looks these names up; with one for each process there is one proxy for each.
        let hosts: Vec<String> = (0..processes).map(|rank| format!("rank{rank}")).collect();
        let mut command = Command::new(&engine.mpiexec);
        command
            // Each process has its proxy's variables. Automatic cleanup stays on: it kills the
            // processes of the same proxy alone, because the shell exits with a status also where a
            // signal killed the program. Without it MPICH 5.0.2 takes each end after `MPI_Finalize`
            // for a failure, and signals to proxies that have ended kill `mpiexec` by SIGPIPE.
            .args(["-launcher", "manual", "-genvnone", "-hosts"])
            .arg(hosts.join(","))
            .args(["-n", &processes.to_string(), "/bin/sh", "-c", PROGRAM, "sh"])
            .args(program)
            .stdin(Stdio::null());
        if let Some(port) = port {
            command.env("MPIEXEC_PORT_RANGE", format!("{port}:{port}"));
        }
        let mut child = spawn(&mut command)?;
        let complaints = Arc::<Mutex<VecDeque<String>>>::default();
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        let watcher = Watcher::start(&child)?;
        let commands = keep(stdout, &complaints)?;
        keep(stderr, &complaints)?;
        Ok(Mpiexec {
            child,
            watcher,
            commands,
            complaints,
        })
    }

    /// The command of the next proxy.
    ///
    /// # Errors
    /// If `mpiexec` does not print it.
    pub(crate) fn proxy_command(&mut self, engine: &Engine) -> Result<Vec<String>> {
        self.commands.recv_timeout(START).map_err(|_| {
            let message = format!(
                "{} did not print the commands of its proxies: {}; halite needs the `mpiexec` of MPICH",
                engine.mpiexec.display(),
                self.end()
            );
            Error::new(ErrorKind::Unavailable, "launch", message)
        })
    }

    /// Asks all processes to end, by SIGTERM.
    pub(crate) fn terminate(&self) {
        _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
    }

    /// Tells all processes that another one failed, by SIGUSR1.
    pub(crate) fn warn(&self) {
        _ = kill_process(Pid::from_child(&self.child), Signal::USR1);
    }

    /// Kills all processes.
    pub(crate) fn kill(&mut self) {
        _ = self.child.kill();
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it, and returns what it printed.
    pub(crate) fn end(&mut self) -> String {
        // Before it is waited for, because then its id may be another process'.
        self.watcher.end();
        end(&mut self.child);
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

impl Drop for Mpiexec {
    fn drop(&mut self) {
        self.kill();
        self.end();
    }
}

/// Waits for a process for a while, and kills it then.
fn end(child: &mut Child) {
    let start = Instant::now();
    while matches!(child.try_wait(), Ok(None)) && start.elapsed() < KILLED {
        thread::sleep(Duration::from_millis(2));
    }
    _ = child.kill();
    _ = child.wait();
}

/// A process that kills another one when this process ends.
struct Watcher {
    child: Child,
    /// Held open: the watcher reads to its end.
    _alive: Option<ChildStdin>,
}

impl Watcher {
    fn start(watched: &Child) -> Result<Watcher> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", WATCHER, "sh", &watched.id().to_string()]);
        let mut child = spawn(command.stdin(Stdio::piped()))?;
        Ok(Watcher {
            _alive: child.stdin.take(),
            child,
        })
    }

    fn end(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A queue for what comes from processes.
pub(crate) fn events() -> (SyncSender<Event>, Receiver<Event>) {
    sync_channel(QUEUE)
}

/// Keeps what `mpiexec` prints, and returns the commands of proxies in it.
fn keep(
    pipe: impl Read + Send + 'static,
    lines: &Arc<Mutex<VecDeque<String>>>,
) -> Result<Receiver<Vec<String>>> {
    let (send, commands) = channel();
    let lines = lines.clone();
    read("halite-mpiexec", pipe, move |line| {
        let Some(line) = line else { return };
        if let Some(command) = line.strip_prefix("HYDRA_LAUNCH: ") {
            _ = send.send(words(command));
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

/// The words of a proxy's command as `mpiexec` prints it: the path of the program, which may have
/// spaces, is not quoted.
fn words(command: &str) -> Vec<String> {
    const FIRST: &str = "--control-port";
    let (program, options) = match command.find(FIRST) {
        Some(index) => command.split_at(index),
        None => command.split_at(0),
    };
    let program = Some(program.trim()).filter(|program| !program.is_empty());
    program
        .into_iter()
        .chain(options.split_whitespace())
        .map(str::to_owned)
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_proxy_may_have_spaces() {
        let printed = "/mnt/my data/bin/hydra_pmi_proxy --control-port node:41 --rmk user";
        let expected = [
            "/mnt/my data/bin/hydra_pmi_proxy",
            "--control-port",
            "127.0.0.1:41",
            "--rmk",
            "user",
        ];
        assert_eq!(on_this_host(&words(printed)), expected);
    }
}
