//! The processes of a job: each is a shell around a program, on this host or, by `ssh`, on another.
//! The shell tells how the program ended; if the process that started it is killed, so are they.

use std::{
    env,
    ffi::OsString,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, ToSocketAddrs, UdpSocket},
    os::{fd::OwnedFd, unix::net::UnixStream, unix::process::CommandExt},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use halite_core::{Error, ErrorKind, Result};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::{
    engine::{self, Engine},
    record, shared_memory,
};

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

/// Runs a program to its end and prints how it ended. Signals to the group reach the program, and
/// the shell waits for it. Its input is empty: a program that read a terminal would wait for it, and
/// so the job.
macro_rules! program {
    ($redirected:literal) => {
        concat!(
            "trap : HUP INT TERM USR1 USR2; \"$@\" ",
            $redirected,
            " </dev/null; status=$?; printf '\\036halite exited %s\\n' $status >&2; exit $status"
        )
    };
}

/// On this host: the input of the shell is the socket of PMI.
const HERE: &str = program!("5<&0");

/// The variable that names it.
const PMI_FD: (&str, &str) = ("PMI_FD", "5");

/// On another host: the input of the shell has the secret of the job, then the names of signals.
/// When it ends, so do all.
const THERE: &str = concat!(
    "IFS= read -r HALITE_JOB_SECRET; export HALITE_JOB_SECRET; exec 3<&0; ",
    "{ trap '' HUP INT TERM USR1 USR2; while read -r signal; do kill -s \"$signal\" 0; done; ",
    "kill -s KILL 0; } <&3 >/dev/null 2>&1 & ",
    program!("3<&-")
);

/// Kills the process groups that its input names when that ends.
const WATCHER: &str = "while read -r group; do all=\"$all -$group\"; done; \
                       [ -z \"$all\" ] || kill -s KILL -- $all";

/// Variables of the launcher of another job, which a process may have from its surroundings.
const OF_OTHERS: [&str; 2] = ["PMI_PORT", "PMI_ID"];

/// Lines of all processes that may wait to be handled.
const QUEUE: usize = 1024;

/// Time in which processes end after a signal.
pub(crate) const KILLED: Duration = Duration::from_secs(5);

/// What is common to the processes of a job.
pub(crate) struct Start<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) program: &'a [OsString],
    pub(crate) size: usize,
    /// Variables besides those of this process and of the job.
    pub(crate) variables: &'a [(String, OsString)],
    pub(crate) events: &'a SyncSender<Event>,
}

/// A started process. It is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    /// The way of signals to another host.
    remote: Option<ChildStdin>,
}

impl Start<'_> {
    /// Starts a process on this host, which speaks PMI on this socket.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn here(
        &self,
        rank: usize,
        socket: UnixStream,
        watcher: &Watcher,
    ) -> Result<Process> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", HERE, "sh"]).args(self.program);
        OF_OTHERS
            .iter()
            .for_each(|name| _ = command.env_remove(name));
        command.envs(self.of_job(rank)).env(PMI_FD.0, PMI_FD.1);
        command.stdin(OwnedFd::from(socket));
        let process = self.run(command, rank)?;
        watcher.watch(&process.child)?;
        Ok(process)
    }

    /// Starts a process by `ssh` (a command and its options) on another host, where program and MPI
    /// have the same paths. It joins the job at a port of this machine by a secret that no command
    /// line has, and gets the variables of the job, and those of this process that find programs
    /// and configure halite, but no credentials.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn on(
        &self,
        host: &str,
        ssh: &[String],
        rank: usize,
        port: u16,
        secret: &str,
    ) -> Result<Process> {
        let own = env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed));
        let own = own.map(|(name, value)| (name.to_string_lossy().into_owned(), value));
        let address = (COORDINATOR.to_owned(), facing(host, port).into());
        let all = own.chain(self.of_job(rank)).chain([address]);
        let pairs = all.map(|(name, value)| format!("{name}={}", value.to_string_lossy()));
        let words = ["env".to_owned()].into_iter().chain(pairs);
        let words = words.chain(["/bin/sh", "-c", THERE, "sh"].map(str::to_owned));
        let program = self
            .program
            .iter()
            .map(|word| word.to_string_lossy().into_owned());
        let quoted: Vec<String> = words.chain(program).map(|word| quoted(&word)).collect();
        let mut command = Command::new(&ssh[0]);
        command.args(&ssh[1..]).arg(host).arg(quoted.join(" "));
        command.stdin(Stdio::piped());
        let mut process = self.run(command, rank)?;
        process.remote = process.child.stdin.take();
        process.send(secret);
        Ok(process)
    }

    /// Variables of a process of the job.
    fn of_job(&self, rank: usize) -> Vec<(String, OsString)> {
        let library = self.engine.library.clone().into_os_string();
        let mut all = vec![
            (engine::VARIABLE.to_owned(), library),
            (record::VARIABLE.to_owned(), "1".into()),
            ("PMI_RANK".to_owned(), rank.to_string().into()),
            ("PMI_SIZE".to_owned(), self.size.to_string().into()),
            // MPICH guesses from the variables of other launchers otherwise.
            ("MPIR_CVAR_PMI_VERSION".to_owned(), "1".into()),
        ];
        all.extend_from_slice(self.variables);
        all
    }

    fn run(&self, mut command: Command, rank: usize) -> Result<Process> {
        let mut child = spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
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
        let process = Process {
            child,
            remote: None,
        };
        let open = Arc::new(AtomicUsize::new(streams.len()));
        for (stream, pipe) in streams {
            let (events, open) = (self.events.clone(), open.clone());
            let pipe = pipe.expect("both streams are piped");
            read("halite-output", pipe, move |text| match text {
                // The receiver is gone only when the job is over.
                Some(text) => _ = events.send(Event::Line(Line { rank, stream, text })),
                None if open.fetch_sub(1, SeqCst) == 1 => _ = events.send(Event::Closed(rank)),
                None => {}
            })?;
        }
        Ok(process)
    }
}

/// The variable with the address where processes meet.
pub(crate) const COORDINATOR: &str = "HALITE_COORDINATOR_ADDRESS";

impl Process {
    /// Sends a signal to the program and the processes that it started.
    pub(crate) fn signal(&mut self, signal: Signal) {
        let name = match signal {
            Signal::USR1 => "USR1",
            _ => "TERM",
        };
        match self.remote {
            Some(_) => self.send(name),
            None => self.signal_group(signal),
        }
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        // The end of its input kills a process on another host.
        self.remote = None;
        self.signal_group(Signal::KILL);
    }

    fn signal_group(&self, signal: Signal) {
        // Its id is taken until it is waited for.
        _ = kill_process_group(Pid::from_child(&self.child), signal);
    }

    /// Sends a line to a process on another host. One that has ended needs none.
    fn send(&mut self, line: &str) {
        if let Some(input) = &mut self.remote {
            _ = input.write_all(format!("{line}\n").as_bytes());
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        _ = self.child.wait();
    }
}

/// A process that kills those of this host when this process ends.
pub(crate) struct Watcher {
    child: Child,
    /// Held open: the watcher reads to its end.
    groups: ChildStdin,
}

impl Watcher {
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start() -> Result<Watcher> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", WATCHER]).stdin(Stdio::piped());
        let mut child = spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        let groups = child.stdin.take().expect("its input is piped");
        Ok(Watcher { child, groups })
    }

    fn watch(&self, child: &Child) -> Result<()> {
        Ok(writeln!(&self.groups, "{}", child.id())?)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Before its input ends, because then the groups may be other processes'.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A queue for what comes from processes.
pub(crate) fn events() -> (SyncSender<Event>, Receiver<Event>) {
    sync_channel(QUEUE)
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
    command
        .process_group(0)
        .spawn()
        .map_err(|error: io::Error| {
            let program = command.get_program().to_string_lossy();
            let message = format!("cannot start {program}");
            Error::new(ErrorKind::Unavailable, "launch", message).caused_by(error)
        })
}

/// Whether the name of a variable is that of a credential, which belongs neither on a command line,
/// which every user of a host can read, nor in a report.
pub fn is_credential(name: &str) -> bool {
    const PARTS: [&str; 6] = ["TOKEN", "SECRET", "PASSWORD", "KEY", "AUTH", "CREDENTIAL"];
    let upper = name.to_uppercase();
    PARTS.iter().any(|part| upper.contains(part))
}

/// Whether processes on other hosts get a variable of this process.
fn is_passed(name: &str) -> bool {
    let is_ours = name.starts_with("HALITE_") && !is_credential(name);
    is_ours || ["PATH", "LD_LIBRARY_PATH"].contains(&name)
}

/// A word that a shell reads as it is.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The port at the address of this machine that faces another host.
fn facing(host: &str, port: u16) -> String {
    let name = host.rsplit('@').next().unwrap_or(host);
    let own = |there: SocketAddr| {
        let any = if there.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        // Sends nothing: the system chooses the route.
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(there).ok()?;
        Some(SocketAddr::new(socket.local_addr().ok()?.ip(), port).to_string())
    };
    let mut there = (name, 9).to_socket_addrs().into_iter().flatten();
    // A name that ssh alone knows may know this machine by its name.
    there.find_map(own).unwrap_or_else(|| {
        let uname = rustix::system::uname();
        format!("{}:{port}", uname.nodename().to_string_lossy())
    })
}

/// Checks that this is the name of a host, and not an option of ssh.
///
/// # Errors
/// If it is not.
pub(crate) fn check_host(host: &str) -> Result<()> {
    let is_option = host.split('@').any(|part| part.starts_with('-'));
    let is_odd = |c: char| c.is_whitespace() || c.is_control();
    if host.is_empty() || is_option || host.contains(is_odd) {
        let message = format!("`{host}` is not the name of a host; expected HOST or USER@HOST");
        return Err(Error::invalid("launch", message));
    }
    Ok(())
}

/// Variables of MPICH's network library for processes of this machine, which those of this process
/// override.
///
/// # Errors
/// If the machine has too little shared memory for them.
pub(crate) fn of_one_machine(processes: usize) -> Result<Vec<(String, OsString)>> {
    let little = shared_memory::variable(processes)?;
    let transports = little.map_or("^tcp", |_| "^tcp,posix");
    // Without the network it does not listen; with other transports of a user, only here.
    let all = [("UCX_TLS", transports), ("UCX_NET_DEVICES", "lo")];
    Ok(not_set(all))
}

/// Those of these variables that this process does not have.
pub(crate) fn not_set(
    variables: impl IntoIterator<Item = (&'static str, &'static str)>,
) -> Vec<(String, OsString)> {
    let missing = variables
        .into_iter()
        .filter(|(name, _)| env::var_os(name).is_none());
    missing
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_passed_to_other_hosts() {
        for name in ["PATH", "LD_LIBRARY_PATH", "HALITE_CACHE_DIR", "HALITE_LOG"] {
            assert!(is_passed(name), "{name}");
        }
        for name in [
            "HOME",
            "HALITE_API_TOKEN",
            "HALITE_HUB_SECRET",
            "HALITE_JOB_SECRET",
        ] {
            assert!(!is_passed(name), "{name}");
        }
    }

    #[test]
    fn options_are_not_hosts() {
        for host in ["node1", "user@node1", "10.0.0.1", "fe80::1"] {
            check_host(host).unwrap();
        }
        for host in [
            "",
            "-oProxyCommand=id",
            "-l@node1",
            "user@-node1",
            "a b",
            "a\n",
        ] {
            let error = check_host(host).unwrap_err().to_string();
            assert!(error.contains("is not the name of a host"), "{error}");
        }
    }
}
