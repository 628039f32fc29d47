//! This command once more, as a child that loads a vendor's plugin. A plugin that aborts ends the
//! child alone, and one that never comes back is ended with it.

use std::{
    collections::VecDeque,
    env,
    ffi::OsString,
    io::{self, BufRead, BufReader},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use halite::{Error, ErrorKind, Result, backends::pjrt::printable};

use crate::panics;

/// How many lines of what the plugin prints on stderr are kept.
const KEPT_LINES: usize = 60;

/// A child that runs, and is killed when this is dropped.
pub(super) struct Child {
    /// Its stdin is a pipe that nothing is written to: it closes when this process ends, however it
    /// ends.
    process: std::process::Child,
    lines: Receiver<String>,
    log: Arc<Mutex<VecDeque<String>>>,
    /// Says nothing; it is closed when all of the log was read.
    log_read: Receiver<()>,
}

impl Child {
    /// Runs this command with other arguments. `op` is what it is for, in errors. What it prints on
    /// stderr is kept, and with `echo` printed here too.
    pub(super) fn start(
        op: &'static str,
        arguments: impl IntoIterator<Item = OsString>,
        echo: bool,
    ) -> Result<Self> {
        let failed = |error: io::Error| {
            Error::new(ErrorKind::Io, op, "cannot start a process for the plugin").caused_by(error)
        };
        let mut command = Command::new(env::current_exe().map_err(failed)?);
        // The trace is this process's.
        command.args(arguments).env_remove("HALITE_PROFILE");
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (send, lines) = mpsc::channel();
        let stdout = lines_of(process.stdout.take().expect("stdout is piped"));
        let log = Arc::<Mutex<VecDeque<String>>>::default();
        let (reading, log_read) = mpsc::channel();
        let stderr = lines_of(process.stderr.take().expect("stderr is piped"));
        let kept = log.clone();
        // From here on, the process is ended when it is dropped.
        let child = Child {
            process,
            lines,
            log,
            log_read,
        };
        let no_thread = |error: io::Error| {
            Error::new(
                ErrorKind::Unavailable,
                op,
                "the system gives no thread to read what the plugin's process says",
            )
            .caused_by(error)
        };
        let named = |name: &str| thread::Builder::new().name(name.into());
        let read = move || _ = stdout.map(|line| send.send(line)).all(|sent| sent.is_ok());
        named("plugin-stdout").spawn(read).map_err(no_thread)?;
        let read = move || {
            let _reading = reading;
            for line in stderr {
                let line = printable(&line);
                if echo {
                    remark!("{line}");
                }
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_back(line);
                if kept.len() > KEPT_LINES {
                    kept.pop_front();
                }
            }
        };
        named("plugin-stderr").spawn(read).map_err(no_thread)?;
        Ok(child)
    }

    /// The next line of its stdout. A plugin may write there as well.
    pub(super) fn line(&self, patience: Duration) -> Result<String, RecvTimeoutError> {
        self.lines.recv_timeout(patience)
    }

    /// How it ended, for one whose stdout has: `signal: 6 (SIGABRT)`.
    pub(super) fn status(&mut self) -> String {
        self.process
            .wait()
            .map_or_else(|error| error.to_string(), |status| status.to_string())
    }

    /// Whether a panic of halite ended it, for one whose stdout has ended.
    pub(super) fn panicked(&mut self) -> bool {
        let code = self.process.wait().ok().and_then(|status| status.code());
        // What it started itself, as compilers do with assemblers, may live on and have its stderr.
        let _ = self.log_read.recv_timeout(Duration::from_secs(2));
        is_panic(
            code,
            &self.log.lock().unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Ends it, if it has not ended, and gives the lines of its stderr that tell most, if there are
    /// any.
    pub(super) fn last_words(&mut self) -> Option<String> {
        self.end();
        // What it started itself, as compilers do with assemblers, may live on and have its stderr.
        let _ = self.log_read.recv_timeout(Duration::from_secs(2));
        last_words(&self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn end(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// A plugin may print anything.
fn lines_of(pipe: impl io::Read) -> impl Iterator<Item = String> {
    BufReader::new(pipe)
        .split(b'\n')
        .map_while(io::Result::ok)
        .map(|line| String::from_utf8_lossy(&line).into_owned())
}

/// Whether an exit code and a log are those of a panic. A plugin may exit with any code.
fn is_panic(code: Option<i32>, log: &VecDeque<String>) -> bool {
    const PANIC: i32 = 101;
    code == Some(PANIC) && log.iter().any(|line| line.contains(panics::BUG))
}

/// Called in the child: ends it when its parent has ended, of whatever, so that no compiler goes on
/// for nobody.
///
/// # Errors
/// If the system has no thread to watch on.
pub(super) fn end_with_parent() -> Result<()> {
    let watch = || {
        // Nothing is ever written to it; this comes back when it is closed.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        // Not `std::process::exit`: what a plugin has to do at exit may wait for what it is doing.
        signal_hook::low_level::exit(1);
    };
    let watching = thread::Builder::new().name("parent".into()).spawn(watch);
    watching.map(drop).map_err(|error| {
        Error::new(
            ErrorKind::Unavailable,
            "watch the parent",
            "the system gives no thread for it",
        )
        .caused_by(error)
    })
}

/// The fatal line of XLA's log or a panic, or else the last lines that are no stack trace.
fn last_words(log: &VecDeque<String>) -> Option<String> {
    const LAST: usize = 3;
    let is_fatal = |line: &&str| {
        // `F1121 21:14:03.123456 1234 file.cc:7] ..`
        let mut start = line.bytes();
        let dated = start.next() == Some(b'F')
            && start.by_ref().take(4).filter(u8::is_ascii_digit).count() == 4;
        dated || line.contains("panicked at") || line.contains("terminate called")
    };
    let is_telling = |line: &&str| {
        !line.is_empty() && !line.starts_with(['@', '*']) && !line.starts_with("https://symbolize")
    };
    let lines = || log.iter().map(|line| line.trim());
    if let Some(at) = lines().position(|line| is_fatal(&line)) {
        let line = log[at].trim();
        // A panic's reason stands below its place.
        let reason = log.get(at + 1).filter(|_| line.contains("panicked at"));
        return Some(reason.map_or_else(
            || line.to_owned(),
            |reason| format!("{line} {}", reason.trim()),
        ));
    }
    let mut last: Vec<&str> = lines().rev().filter(is_telling).take(LAST).collect();
    last.reverse();
    (!last.is_empty()).then(|| last.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_exit_is_no_panic_of_halite() {
        let log: VecDeque<String> = [
            "thread 'main' panicked at x.rs:1:1:".to_owned(),
            panics::advice(),
        ]
        .into();
        assert!(is_panic(Some(101), &log));
        assert!(!is_panic(
            Some(101),
            &VecDeque::from(["terminate called".to_owned()])
        ));
        assert!(!is_panic(Some(1), &log));
        assert!(!is_panic(None, &log));
    }

    #[test]
    fn the_last_words_are_the_fatal_line_or_the_last_that_are_no_trace() {
        let words = |text: &str| last_words(&text.lines().map(str::to_owned).collect());
        assert_eq!(words(""), None);
        assert_eq!(
            words("one\ntwo\nthree\nfour\n\n  @ 0x1234 main"),
            Some("two | three | four".into())
        );
        let fatal = "F1121 21:14:03.123456 77 topology.cc:7] Check failed: x <= 16";
        assert_eq!(
            words(&format!(
                "loaded\n{fatal}\n*** stack trace: ***\n@ 0x12\nFinally"
            )),
            Some(fatal.into())
        );
        let panic = "thread 'main' panicked at a.rs:1:2:\n1 is not 2\nnote: run with";
        assert_eq!(
            words(panic),
            Some("thread 'main' panicked at a.rs:1:2: 1 is not 2".into())
        );
    }
}
