//! Whether a part of the program handles SIGINT, SIGTERM and SIGHUP at the moment. A handler stays
//! installed for the life of the process; when nobody handles the signals any more, it has to do
//! what the system would. A training and a launch of processes in one program share this state, so
//! that neither ends the program while the other one handles a signal.

use std::{
    fs,
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

static COUNT: Mutex<usize> = Mutex::new(0);
static UNHANDLED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Part of the program that handles the signals while this lives.
#[derive(Debug)]
pub struct Handling(());

impl Handling {
    /// Starts to handle them.
    pub fn begin() -> Self {
        change(|count| count + 1);
        Handling(())
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        change(|count| count - 1);
    }
}

fn change(change: impl FnOnce(usize) -> usize) {
    let mut count = COUNT.lock().unwrap_or_else(PoisonError::into_inner);
    *count = change(*count);
    UNHANDLED.store(*count == 0, SeqCst);
}

/// Flag that is true from the end of the last [`Handling`] to the next one.
pub fn unhandled() -> Arc<AtomicBool> {
    UNHANDLED.clone()
}

/// Signals of this process of one kind, `SigIgn:` or `SigCgt:`: bit 0 is signal 1. Known on Linux
/// only; 0 elsewhere.
pub fn mask(kind: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix(kind));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
