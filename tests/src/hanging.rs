//! Threads that hang on purpose, and tests that must not.
//!
//! Tests of other packages include this file by its path: a dependency on `halite-tests` would make
//! them compile everything.
#![allow(unreachable_pub, reason = "private where tests include this file")]

use std::{
    sync::{Arc, Condvar, Mutex, mpsc},
    thread,
    time::Duration,
};

/// A limit that no test reaches unless it hangs, not even on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A place where threads wait until a test opens it.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    reached: bool,
    open: bool,
}

impl Gate {
    /// Waits until the gate is open.
    pub fn pass(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        state.reached = true;
        changed.notify_all();
        while !state.open {
            state = changed.wait(state).unwrap();
        }
    }

    /// Waits until a thread is at the gate.
    ///
    /// # Panics
    /// If none comes within two minutes.
    pub fn reached(&self) {
        let (state, changed) = &*self.0;
        let state = state.lock().unwrap();
        let waited = changed.wait_timeout_while(state, LIMIT, |state| !state.reached);
        assert!(!waited.unwrap().1.timed_out(), "no thread came to the gate");
    }

    /// Lets all threads pass, now and later.
    pub fn open(&self) {
        self.0.0.lock().unwrap().open = true;
        self.0.1.notify_all();
    }
}

/// Opens a gate when it is dropped, also by a test that fails.
#[derive(Debug)]
pub struct OpenAtEnd(pub Gate);

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Runs `work` on a thread of its own and returns its result.
///
/// # Panics
/// If it takes more than two minutes.
pub fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || _ = send.send(work()));
    receive.recv_timeout(LIMIT).expect("the work does not end")
}
