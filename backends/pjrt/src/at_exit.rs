//! Process exit while a thread compiles.
//!
//! Ending a process destroys statics of the plugin. A compiler that uses them at that moment ends
//! the process with a signal, so the end waits for compilers, and if they take long, leaves with
//! the same status without destroying anything.
//!
//! Exit handlers of a process run in reverse order of registration, and a compiler
//! registers more as it goes. So the wait is registered when a compilation begins, and once more by
//! the thread that ends the process, in its thread-local destructors: these run before everything
//! that is registered.

use std::{
    ffi::{c_int, c_void},
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use halite_core::{Error, ErrorKind, Result};

use crate::isolate;

/// Compilations under way.
static COMPILING: AtomicUsize = AtomicUsize::new(0);
static ENDING: AtomicBool = AtomicBool::new(false);
/// Time that the end of the process waits for compilers.
const PATIENCE: Duration = Duration::from_secs(5);

/// A compilation under way; the process ends after it.
pub(crate) struct Compiling(());

impl Compiling {
    /// # Errors
    /// If the process is ending.
    pub(crate) fn begin(op: &'static str) -> Result<Self> {
        watch_thread();
        COMPILING.fetch_add(1, SeqCst);
        let this = Compiling(());
        register();
        if ENDING.load(SeqCst) {
            return Err(Error::new(
                ErrorKind::Cancelled,
                op,
                "the process is ending",
            ));
        }
        Ok(this)
    }
}

impl Drop for Compiling {
    fn drop(&mut self) {
        COMPILING.fetch_sub(1, SeqCst);
    }
}

/// Makes this thread wait for compilations on other threads if it ends the process.
pub(crate) fn watch_thread() {
    struct ThreadEnd;

    impl Drop for ThreadEnd {
        fn drop(&mut self) {
            // Also where only the thread ends: one call more that finds nothing to wait for.
            if COMPILING.load(SeqCst) > 0 {
                register();
            }
        }
    }

    thread_local! {
        static THREAD_END: ThreadEnd = const { ThreadEnd };
    }
    // A thread that is ending already has no place for it.
    _ = THREAD_END.try_with(|_| ());
}

/// Waits for compilers, and leaves at once with this status if they take too long.
extern "C" fn wait_or_leave(status: c_int, _: *mut c_void) {
    // One for all that are registered.
    static DEADLINE: OnceLock<Instant> = OnceLock::new();
    // The thread that ends the process may be a compiler's own: then nobody else ends it, and it
    // would wait for itself.
    isolate::explain_exit();
    ENDING.store(true, SeqCst);
    while COMPILING.load(SeqCst) > 0 {
        if Instant::now() >= *DEADLINE.get_or_init(|| Instant::now() + PATIENCE) {
            // SAFETY: it ends the process and touches nothing of it.
            unsafe { _exit(status) };
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn register() {
    // SAFETY: glibc's own function, and the callback lives as long as the program. If there is no
    // room for it, the process ends as it would without.
    _ = unsafe { on_exit(wait_or_leave, std::ptr::null_mut()) };
}

/// Does nothing: other C libraries do not report the exit status.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn register() {
    _ = wait_or_leave;
}

unsafe extern "C" {
    fn _exit(status: c_int) -> !;
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn on_exit(callback: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}
