//! One invocation of the command: its arguments, its output streams, and the state that commands
//! share. Nothing here belongs to the process, so one process can run several invocations, each on
//! its own thread.
//!
//! The invocation of a thread is a thread-local, not a parameter: lines are printed in most modules,
//! below visitors and callbacks of the library. The only other thread that prints, which reads the
//! stderr of a child process, [enters](Session::enter) the session of the thread that started it.

use std::{
    cell::RefCell,
    ffi::OsString,
    io::{self, IsTerminal, Write},
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::AtomicBool},
};

use halite::backends::pjrt::Profiler;

/// State of an invocation.
pub(crate) struct Session {
    /// The command line, program name included.
    pub(super) arguments: Vec<OsString>,
    pub(super) terminal: Terminal,
    /// True if `--trust-python` is given.
    pub(super) trust_python: AtomicBool,
    /// Configuration of the run, if the command trains.
    pub(super) config: OnceLock<String>,
    /// Profiler of the plugin that the command opened, if the plugin has one.
    pub(super) profiler: OnceLock<Profiler>,
    /// Exit code of a run that was stopped by a signal.
    pub(super) stopped: OnceLock<u8>,
    /// First error of printing a line.
    pub(super) print_error: OnceLock<io::Error>,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Session>>> = const { RefCell::new(None) };
}

impl Session {
    pub(super) fn new(arguments: Vec<OsString>, terminal: Terminal) -> Arc<Self> {
        Arc::new(Session {
            arguments,
            terminal,
            trust_python: AtomicBool::new(false),
            config: OnceLock::new(),
            profiler: OnceLock::new(),
            stopped: OnceLock::new(),
            print_error: OnceLock::new(),
        })
    }

    /// Makes this the session of the current thread, until the thread enters another one.
    pub(super) fn enter(self: &Arc<Self>) {
        CURRENT.set(Some(self.clone()));
    }

    /// Session of the current thread.
    ///
    /// # Panics
    /// If the thread has not entered one.
    pub(super) fn current() -> Arc<Self> {
        let session = CURRENT.with_borrow(Option::clone);
        session.expect("every thread of the command enters a session before it prints")
    }
}

/// Output streams of an invocation.
pub(crate) struct Terminal {
    pub(super) stdout: Stream,
    pub(super) stderr: Stream,
    /// True for the streams of the process, for which clap chooses the colors of its messages.
    pub(super) is_of_process: bool,
}

/// An output stream, which threads write to one after another.
pub(super) struct Stream {
    writer: Mutex<Box<dyn Write + Send>>,
    pub(super) is_terminal: bool,
}

impl Terminal {
    /// Streams that are not a terminal.
    pub(crate) fn new(
        stdout: impl Write + Send + 'static,
        stderr: impl Write + Send + 'static,
    ) -> Self {
        Terminal {
            stdout: Stream::new(stdout),
            stderr: Stream::new(stderr),
            is_of_process: false,
        }
    }

    /// Stdout and stderr of the process.
    pub(super) fn of_process() -> Self {
        let mut terminal = Terminal::new(io::stdout(), io::stderr());
        terminal.stdout.is_terminal = io::stdout().is_terminal();
        terminal.stderr.is_terminal = io::stderr().is_terminal();
        terminal.is_of_process = true;
        terminal
    }
}

impl Stream {
    fn new(writer: impl Write + Send + 'static) -> Self {
        Stream {
            writer: Mutex::new(Box::new(writer)),
            is_terminal: false,
        }
    }

    /// Writes a text as a whole, so that lines of several threads do not mix.
    pub(super) fn print(&self, text: &str) -> io::Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.write_all(text.as_bytes())?;
        writer.flush()
    }

    /// Replaces the destination of the stream.
    #[cfg(unix)]
    pub(super) fn redirect(&self, to: impl Write + Send + 'static) {
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(to);
    }
}
