//! Isolated calls of a plugin, which may hang, throw or end the process.
//!
//! Opening a plugin and compiling run whole subsystems of a vendor's code, and are rare. They go
//! through [`run`], on a separate thread:
//!
//! * A call that does not return is abandoned with its thread at its deadline.
//! * A C++ exception that leaves the plugin becomes an error. Rust cannot catch it (`catch_unwind`
//!   ends the process), so the thread reports it and never resumes the unwinding.
//! * A call of `exit`, which would end the process with the plugin's status, ends it with a message
//!   and status 1.
//!
//! All other calls are made on the caller's thread. An exception in one of these ends the process
//! with a message that names the plugin and the function ([`Boundary`]); nothing else is sound.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    env,
    ffi::c_int,
    io::{self, Write},
    sync::{
        Once,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use halite_core::{Error, ErrorKind, Result};

use crate::loader;

/// Options of an isolated call.
#[derive(Clone, Copy)]
pub(crate) struct Isolation {
    /// The name of the thread.
    pub(crate) thread: &'static str,
    /// The operation, for errors.
    pub(crate) op: &'static str,
    /// The plugin's file.
    pub(crate) plugin: &'static str,
    /// Deadline of the call.
    pub(crate) deadline: Duration,
    /// Time until the first warning about a call that has not returned.
    pub(crate) notice: Duration,
}

/// Takes the error that an exception is reported as.
type Report = Box<dyn FnOnce(Error)>;

thread_local! {
    /// Operation and plugin of the isolated call on this thread. Without a destructor, so that it
    /// can be read at exit.
    static CALL: Cell<Option<(&'static str, &'static str)>> = const { Cell::new(None) };
    /// Dropped when the isolated call returns or throws.
    static HELD: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
    /// Receiver of an exception on this thread.
    static REPORT: RefCell<Option<Report>> = const { RefCell::new(None) };
}

/// Keeps `guard` until the isolated call on this thread returns or throws. A local variable of the
/// call would never be dropped after an exception, which parks its thread.
pub(crate) fn hold(guard: Box<dyn Any>) {
    HELD.set(Some(guard));
}

/// Runs `call` on a separate thread; `None` if it has not returned at the deadline. Its result is
/// then dropped.
pub(crate) fn run<T: Send + 'static>(
    isolation: Isolation,
    call: impl FnOnce() -> Result<T> + Send + 'static,
) -> Option<Result<T>> {
    /// XLA's compiler is recursive, and was made for the stack of a main thread.
    const STACK: usize = 8 << 20;

    static AT_EXIT: Once = Once::new();
    // SAFETY: `atexit` is C's own, and the function lives as long as the program.
    AT_EXIT.call_once(|| _ = unsafe { atexit(explain_exit) });

    let Isolation {
        thread, op, plugin, ..
    } = isolation;
    let (send, receive) = mpsc::channel();
    let spawned = thread::Builder::new()
        .name(thread.into())
        .stack_size(STACK)
        .spawn(move || {
            CALL.set(Some((op, plugin)));
            let report = send.clone();
            // Nobody may be waiting any more, here and below.
            REPORT.set(Some(Box::new(move |error| _ = report.send(Err(error)))));
            let result = call();
            drop(HELD.take());
            CALL.set(None);
            _ = send.send(result);
        });
    if let Err(error) = spawned {
        return Some(Err(Error::new(
            ErrorKind::Unavailable,
            op,
            "no thread to call the plugin on",
        )
        .caused_by(error)));
    }
    wait(&isolation, &receive)
}

/// Opens a part of `plugin` by `open`, and returns to the working directory of before if the plugin
/// has changed it: relative paths of the program must not lead elsewhere then.
pub(crate) fn keep_directory<T>(plugin: &str, open: impl FnOnce() -> T) -> T {
    let before = env::current_dir();
    let opened = open();
    let (Ok(before), now) = (before, env::current_dir()) else {
        return opened;
    };
    if now.as_ref().ok() != Some(&before) {
        let now = now.map_or("one that cannot be read".into(), |now| {
            now.display().to_string()
        });
        let after = match env::set_current_dir(&before) {
            Ok(()) => format!("it is {} again", before.display()),
            Err(error) => format!("{} cannot be restored: {error}", before.display()),
        };
        halite_core::warning!(
            "{plugin} changed the working directory of the process to {now} while it was opened; \
             {after}"
        );
    }
    opened
}

fn wait<T>(isolation: &Isolation, receive: &mpsc::Receiver<Result<T>>) -> Option<Result<T>> {
    let Isolation {
        op,
        plugin,
        deadline,
        ..
    } = *isolation;
    let started = Instant::now();
    let mut notice = isolation.notice;
    loop {
        match receive.recv_timeout(deadline.min(notice).saturating_sub(started.elapsed())) {
            Ok(result) => return Some(result),
            Err(RecvTimeoutError::Disconnected) => {
                let message = format!("a panic while {plugin} was called; this is a bug in halite");
                return Some(Err(Error::new(ErrorKind::Internal, op, message)));
            }
            Err(RecvTimeoutError::Timeout) if started.elapsed() >= deadline => return None,
            Err(RecvTimeoutError::Timeout) => {
                // While a constructor runs, a thread's first use of a variable with a destructor
                // blocks on the loader's lock, and logging is one.
                if loader::running().is_none() {
                    warn_waiting(op, plugin, started.elapsed(), deadline);
                }
                notice *= 3;
            }
        }
    }
}

/// Initializes the thread-local variables that waiting needs. It blocks while a constructor runs:
/// see [`Plugin::stuck_in_loader`](crate::Plugin::stuck_in_loader).
pub(crate) fn prepare_to_wait() {
    let (_send, receive) = mpsc::channel::<()>();
    _ = receive.recv_timeout(Duration::from_millis(1));
}

/// Warns that a call has not returned.
pub(crate) fn warn_waiting(op: &str, plugin: &str, waited: Duration, deadline: Duration) {
    let (waited, deadline) = (waited.as_secs_f32().round(), deadline.as_secs_f32());
    halite_core::warning!(
        "{op}: {plugin} has not returned after {waited} s; it is abandoned after {deadline} s"
    );
}

/// Time until the first warning about a wait that normally takes about a second.
pub(crate) fn first_notice(deadline: Duration) -> Duration {
    Duration::from_secs(10).min(deadline / 2)
}

/// Deadline of compiling one program: `HALITE_COMPILE_DEADLINE` seconds, or two hours.
pub(crate) fn compile_deadline() -> Result<Duration> {
    const NAME: &str = "HALITE_COMPILE_DEADLINE";
    let Some(value) = std::env::var_os(NAME).filter(|value| !value.is_empty()) else {
        return Ok(Duration::from_secs(7200));
    };
    let seconds = value
        .to_str()
        .and_then(|text| text.parse().ok())
        .filter(|seconds| *seconds > 0);
    let refused = || {
        Error::invalid(
            "compile",
            format!(
                "{NAME} is `{}`; expected a positive whole number of seconds",
                value.display()
            ),
        )
    };
    seconds.map(Duration::from_secs).ok_or_else(refused)
}

/// Guard around one call of a plugin's function. It is forgotten when the function returns, so that
/// only an exception drops it.
pub(crate) struct Boundary<'a> {
    pub(crate) plugin: &'a str,
    pub(crate) function: &'static str,
}

impl Drop for Boundary<'_> {
    #[cold]
    fn drop(&mut self) {
        let Boundary { plugin, function } = self;
        let message = format!(
            "{plugin}: {function} threw a C++ exception, which no function of a plugin may do; \
             use another build of it, \
             and report this to its vendor"
        );
        let op = CALL.get().map_or("call plugin", |(op, _)| op);
        let error = Error::new(ErrorKind::Internal, op, message);
        match REPORT.try_with(RefCell::take) {
            Ok(Some(report)) => {
                drop(HELD.take());
                report(error);
                // Rust has no way to end the unwinding but to let it end the process.
                loop {
                    thread::park();
                }
            }
            _ => {
                _ = writeln!(io::stderr(), "fatal: {error}");
                std::process::abort();
            }
        }
    }
}

unsafe extern "C" {
    fn atexit(callback: extern "C" fn()) -> c_int;
    fn _exit(status: c_int) -> !;
}

/// Runs at the end of the process, on the thread that called `exit`. If that is an isolated call of
/// a plugin, ends the process with a message and status 1.
pub(crate) extern "C" fn explain_exit() {
    if let Ok(Some((op, plugin))) = CALL.try_with(Cell::get) {
        // A closed stderr must not panic here.
        _ = writeln!(
            io::stderr(),
            "error: {op}: {plugin} ended the process (it called `exit`); use another build of it"
        );
        // SAFETY: it ends the process without running anything else of it.
        unsafe { _exit(1) }
    }
}
