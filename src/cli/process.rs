//! Child processes of the command, which load a vendor's plugin. A plugin that aborts ends only the
//! child; a plugin that hangs is killed with it.

use std::{
    collections::VecDeque,
    env,
    ffi::OsString,
    io::{self, BufRead, BufReader},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use halite::{Error, ErrorKind, Result, backends::pjrt::printable};

use crate::{cli::Session, panics};

/// Number of the last lines of the child's stderr that are kept for errors.
const KEPT_LINES: usize = 60;

/// A running child process, which is killed on drop.
pub(super) struct Child {
    /// The process. Its stdin is a pipe that closes when this process ends, for any reason.
    process: std::process::Child,
    lines: Receiver<String>,
    log: Arc<Mutex<VecDeque<String>>>,
    /// Closed when the log is complete; nothing is sent.
    log_complete: Receiver<()>,
}

impl Child {
    /// Starts this executable with other `arguments`. Errors name the operation `op`. The stderr of
    /// the child is logged, and with `echo` printed here too.
    pub(super) fn start(
        op: &'static str,
        arguments: impl IntoIterator<Item = OsString>,
        echo: bool,
    ) -> Result<Self> {
        let failed = |error: io::Error| {
            Error::new(ErrorKind::Io, op, "cannot start a process for the plugin").caused_by(error)
        };
        let mut command = Command::new(env::current_exe().map_err(failed)?);
        // This process writes the profile.
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
        let (reading, log_complete) = mpsc::channel();
        let stderr = lines_of(process.stderr.take().expect("stderr is piped"));
        let kept = log.clone();
        // From here on, an early return kills the process.
        let child = Child {
            process,
            lines,
            log,
            log_complete,
        };
        let no_thread = |error: io::Error| {
            Error::new(
                ErrorKind::Unavailable,
                op,
                "cannot start a thread that reads the output of the plugin's process",
            )
            .caused_by(error)
        };
        let named = |name: &str| thread::Builder::new().name(name.into());
        let read = move || _ = stdout.map(|line| send.send(line)).all(|sent| sent.is_ok());
        named("plugin-stdout").spawn(read).map_err(no_thread)?;
        let session = Session::current();
        let read = move || {
            let _reading = reading;
            session.enter();
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

    /// Receives the next line of the child's stdout. A plugin may write there as well.
    pub(super) fn line(&self, timeout: Duration) -> Result<String, RecvTimeoutError> {
        self.lines.recv_timeout(timeout)
    }

    /// Waits for the end of the process, and describes its status: `signal: 6 (SIGABRT)`.
    pub(super) fn status(&mut self) -> String {
        self.process
            .wait()
            .map_or_else(|error| error.to_string(), |status| status.to_string())
    }

    /// Waits for the end of the process, and returns true if halite panicked in it.
    pub(super) fn panicked(&mut self) -> bool {
        let code = self.process.wait().ok().and_then(|status| status.code());
        is_panic(code, &self.complete_log())
    }

    /// Kills the process, and returns the most informative lines of its stderr, if there are any.
    pub(super) fn last_output(&mut self) -> Option<String> {
        self.kill();
        last_output(&self.complete_log())
    }

    /// Waits for the rest of the log of an ended process. Its own children, such as assemblers, may
    /// still run and keep stderr open, so the wait is short.
    fn complete_log(&self) -> MutexGuard<'_, VecDeque<String>> {
        let _ = self.log_complete.recv_timeout(Duration::from_secs(2));
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kill(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Lines of a pipe. A plugin may print any bytes; invalid UTF-8 is replaced.
fn lines_of(pipe: impl io::Read) -> impl Iterator<Item = String> {
    BufReader::new(pipe)
        .split(b'\n')
        .map_while(io::Result::ok)
        .map(|line| String::from_utf8_lossy(&line).into_owned())
}

/// Returns true if the exit code and the log are those of a panic. A plugin may exit with the same
/// code.
fn is_panic(code: Option<i32>, log: &VecDeque<String>) -> bool {
    const PANIC: i32 = 101;
    code == Some(PANIC) && log.iter().any(|line| line.contains(panics::BUG))
}

/// Ends this process, a child, as soon as its parent ends for any reason: no compiler keeps running
/// without a parent.
///
/// # Errors
/// If the thread that watches the parent cannot be started.
pub(super) fn end_with_parent() -> Result<()> {
    let watch = || {
        // Nothing is ever written to stdin; the copy returns when it is closed.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        // Not `std::process::exit`: exit handlers of a plugin may wait for its running work.
        signal_hook::low_level::exit(1);
    };
    let watching = thread::Builder::new().name("parent".into()).spawn(watch);
    watching.map(drop).map_err(|error| {
        Error::new(
            ErrorKind::Unavailable,
            "watch the parent",
            "cannot start a thread",
        )
        .caused_by(error)
    })
}

/// Returns the fatal line of XLA's log or of a panic, else the last lines that are not of a stack
/// trace.
fn last_output(log: &VecDeque<String>) -> Option<String> {
    const LAST: usize = 3;
    let is_fatal = |line: &&str| {
        // `F1121 21:14:03.123456 1234 file.cc:7] ..`
        let mut start = line.bytes();
        let dated = start.next() == Some(b'F')
            && start.by_ref().take(4).filter(u8::is_ascii_digit).count() == 4;
        dated || line.contains("panicked at") || line.contains("terminate called")
    };
    let is_informative = |line: &&str| {
        !line.is_empty() && !line.starts_with(['@', '*']) && !line.starts_with("https://symbolize")
    };
    let lines = || log.iter().map(|line| line.trim());
    if let Some(at) = lines().position(|line| is_fatal(&line)) {
        let line = log[at].trim();
        // The message of a panic is on the line after its location.
        let reason = log.get(at + 1).filter(|_| line.contains("panicked at"));
        return Some(reason.map_or_else(
            || line.to_owned(),
            |reason| format!("{line} {}", reason.trim()),
        ));
    }
    let mut last: Vec<&str> = lines().rev().filter(is_informative).take(LAST).collect();
    last.reverse();
    (!last.is_empty()).then(|| last.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_alone_is_not_a_panic() {
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
    fn last_output_is_the_fatal_line_without_stack_traces() {
        let output = |text: &str| last_output(&text.lines().map(str::to_owned).collect());
        assert_eq!(output(""), None);
        assert_eq!(
            output("one\ntwo\nthree\nfour\n\n  @ 0x1234 main"),
            Some("two | three | four".into())
        );
        let fatal = "F1121 21:14:03.123456 77 topology.cc:7] Check failed: x <= 16";
        assert_eq!(
            output(&format!(
                "loaded\n{fatal}\n*** stack trace: ***\n@ 0x12\nFinally"
            )),
            Some(fatal.into())
        );
        let panic = "thread 'main' panicked at a.rs:1:2:\n1 is not 2\nnote: run with";
        assert_eq!(
            output(panic),
            Some("thread 'main' panicked at a.rs:1:2: 1 is not 2".into())
        );
    }
}
