//! Hydra's proxies: one for each process of a job, on this host or, by `ssh`, on another.

use std::{
    env,
    ffi::OsString,
    io::Read,
    net::UdpSocket,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::SyncSender,
    },
};

use halite_core::Result;

use super::{Event, Line, Stream, end, read, spawn};
use crate::{
    engine::{self, Engine},
    record,
};

/// Starts a proxy. Its process finds the streams of the job at 3 and 4, because Hydra gives it
/// others.
const PROXY: &str = "exec 3>&1 4>&2; exec \"$@\" </dev/null >/dev/null";

/// The proxy of one process, whose output is sent to `events`.
pub(crate) struct Proxy {
    child: Child,
}

impl Proxy {
    /// Starts a proxy and threads that read the output of its process. These variables, and those
    /// of the job, are added to those of this process.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start(
        arguments: &[String],
        rank: usize,
        engine: &Engine,
        variables: &[(String, OsString)],
        events: &SyncSender<Event>,
    ) -> Result<Proxy> {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", PROXY, "sh"])
            .args(arguments)
            .envs(of_job(engine, variables));
        Proxy::run(command, rank, events)
    }

    /// As [`start`](Self::start), by `ssh` (a command and its options) on another host, where the
    /// files of MPI have the same paths. The proxy gets the variables of the job, and those of this
    /// process that find programs and configure halite, but no credentials.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(crate) fn start_on(
        host: &str,
        ssh: &[String],
        arguments: &[String],
        rank: usize,
        engine: &Engine,
        variables: &[(String, OsString)],
        events: &SyncSender<Event>,
    ) -> Result<Proxy> {
        let own = env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed));
        let own = own.map(|(name, value)| (name.to_string_lossy().into_owned(), value));
        let all = own.chain(of_job(engine, variables));
        let pairs = all.map(|(name, value)| format!("{name}={}", value.to_string_lossy()));
        let words = ["env".to_owned()].into_iter().chain(pairs);
        let shell = ["/bin/sh", "-c", PROXY, "sh"].map(str::to_owned);
        let words = words.chain(shell).chain(reaching(host, arguments));
        let quoted: Vec<String> = words.map(|word| quoted(&word)).collect();
        let mut command = Command::new(&ssh[0]);
        command.args(&ssh[1..]).arg(host).arg(quoted.join(" "));
        Proxy::run(command, rank, events)
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        _ = self.child.kill();
    }

    fn run(mut command: Command, rank: usize, events: &SyncSender<Event>) -> Result<Proxy> {
        command.stdin(Stdio::null());
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
        Ok(Proxy { child })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Variables of the processes of a job.
fn of_job(engine: &Engine, variables: &[(String, OsString)]) -> Vec<(String, OsString)> {
    let mut all = vec![
        (
            engine::VARIABLE.to_owned(),
            engine.library.clone().into_os_string(),
        ),
        (record::VARIABLE.to_owned(), "1".into()),
    ];
    all.extend_from_slice(variables);
    all
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

/// The words of a proxy's command, which connects to `mpiexec` on this host.
pub(crate) fn on_this_host(words: &[String]) -> Vec<String> {
    // The name of a machine may not resolve, or to an address that is not reached.
    with_address(words, "127.0.0.1")
}

/// The words of a proxy's command on another host, which connects to the address of this machine
/// that faces it.
fn reaching(host: &str, words: &[String]) -> Vec<String> {
    let name = host.rsplit('@').next().unwrap_or(host);
    let address = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        // Sends nothing: the system chooses the route.
        socket.connect((name, 9))?;
        socket.local_addr()
    });
    match address {
        Ok(address) => with_address(words, &address.ip().to_string()),
        // A name that ssh alone knows.
        Err(_) => words.to_vec(),
    }
}

fn with_address(words: &[String], host: &str) -> Vec<String> {
    let mut words = words.to_vec();
    let option = words.iter().position(|word| word == "--control-port");
    if let Some(address) = option.and_then(|index| words.get_mut(index + 1))
        && let Some((_, port)) = address.rsplit_once(':')
    {
        *address = format!("{host}:{port}");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_passed_to_other_hosts() {
        for name in ["PATH", "LD_LIBRARY_PATH", "HALITE_CACHE_DIR", "HALITE_LOG"] {
            assert!(is_passed(name), "{name}");
        }
        for name in ["HOME", "HALITE_API_TOKEN", "HALITE_HUB_SECRET"] {
            assert!(!is_passed(name), "{name}");
        }
    }
}
