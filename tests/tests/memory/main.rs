//! Memory of the process: nothing else may run beside these tests, so they have an executable of
//! their own and run one at a time.
#![cfg(target_os = "linux")]

mod plan_memory;
mod soak;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits for the other tests.
fn alone() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
