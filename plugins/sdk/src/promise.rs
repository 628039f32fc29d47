//! Promises: events that the SDK completes, and that fail if nobody does.
//!
//! `tests/interleavings.rs` compiles this file against loom, which runs every order of its threads.

use std::{fmt, sync::PoisonError};

use halite_core::{Error, ErrorKind, wait};

use crate::{
    status::{Outcome, Status, guard},
    sync::{Arc, Condvar, Mutex, MutexGuard},
};

/// Completes a [`Completion`], as `std::promise` does a future: with an error if it is dropped
/// before.
pub(crate) struct Promise {
    /// `None` once it is set.
    state: Option<Completion>,
    /// Message of the error if it is dropped.
    broken: &'static str,
}

/// Completion of work that the SDK follows.
#[derive(Clone)]
pub(crate) struct Completion(Arc<State>);

struct State {
    progress: Mutex<Progress>,
    done: Condvar,
}

#[derive(Default)]
struct Progress {
    outcome: Option<Outcome>,
    callbacks: Vec<Box<dyn FnOnce(Outcome) + Send>>,
}

impl Promise {
    /// A promise, and what it completes. `broken` is the message of the error if it is dropped.
    pub(crate) fn new(broken: &'static str) -> (Promise, Completion) {
        let completion = Completion(Arc::new(State {
            progress: Mutex::default(),
            done: Condvar::new(),
        }));
        let state = Some(completion.clone());
        (Promise { state, broken }, completion)
    }

    /// Completes the work, and runs the callbacks on this thread.
    pub(crate) fn set(mut self, outcome: Outcome) {
        if let Some(completion) = self.state.take() {
            completion.complete(outcome);
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(completion) = self.state.take() {
            completion.complete(Err(Status::internal(self.broken)));
        }
    }
}

impl fmt::Debug for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Promise")
    }
}

impl Completion {
    /// Completion of work that is done.
    pub(crate) fn done() -> Self {
        let (promise, completion) = Promise::new("");
        promise.set(Ok(()));
        completion
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0
            .progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn complete(&self, outcome: Outcome) {
        let callbacks = {
            let mut progress = self.lock();
            progress.outcome = Some(outcome.clone());
            self.0.done.notify_all();
            std::mem::take(&mut progress.callbacks)
        };
        for callback in callbacks {
            let outcome = outcome.clone();
            _ = guard(move || {
                callback(outcome);
                Ok(())
            });
        }
    }

    /// The outcome, if the work is done.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.lock().outcome.clone()
    }

    /// Runs `then` once, on the thread that completes the work; at once if it is done.
    pub(crate) fn on_ready(&self, then: impl FnOnce(Outcome) + Send + 'static) {
        let outcome = {
            let mut progress = self.lock();
            match &progress.outcome {
                None => {
                    progress.callbacks.push(Box::new(then));
                    return;
                }
                Some(outcome) => outcome.clone(),
            }
        };
        then(outcome);
    }

    /// Blocks until the work is done, at most for the default limit of waits.
    pub(crate) fn wait(&self) -> Outcome {
        let limit = wait::default_limit();
        let waited = wait::wait_until(
            || "an event".to_owned(),
            limit,
            || false,
            |slice| {
                let progress = self.lock();
                if progress.outcome.is_some() {
                    return progress.outcome.clone();
                }
                let (progress, _) = self
                    .0
                    .done
                    .wait_timeout(progress, slice)
                    .unwrap_or_else(PoisonError::into_inner);
                progress.outcome.clone()
            },
        );
        match waited {
            Ok(outcome) => outcome.expect("nobody cancels this wait"),
            Err(_) => Err(Error::new(
                ErrorKind::DeadlineExceeded,
                "wait",
                format!("an event was not complete within {} s", limit.as_secs()),
            )
            .into()),
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Completion({:?})", self.outcome())
    }
}
