//! Promises: events that the SDK completes, and that fail if nobody does.

use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use halite_core::{Error, ErrorKind, wait};

use crate::status::{Outcome, Status, guard};

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

#[derive(Default)]
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
        let completion = Completion(Arc::default());
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn callback_runs_once_on_set() {
        let (send, ran) = mpsc::channel();
        let (promise, event) = Promise::new("dropped");
        let before = send.clone();
        event.on_ready(move |outcome| before.send(outcome).unwrap());
        promise.set(Err(Status::internal("no")));
        event.on_ready(move |outcome| send.send(outcome).unwrap());
        let outcomes: Vec<_> = ran.iter().collect();
        assert_eq!(outcomes, vec![Err(Status::internal("no")); 2]);
        assert_eq!(event.wait(), Err(Status::internal("no")));
    }

    #[test]
    fn dropped_promise_is_an_error() {
        let (promise, event) = Promise::new("dropped");
        drop(promise);
        assert_eq!(event.outcome(), Some(Err(Status::internal("dropped"))));
    }

    #[test]
    fn panicking_callback_does_not_stop_others() {
        let (send, ran) = mpsc::channel();
        let (promise, event) = Promise::new("dropped");
        event.on_ready(|_| panic!("in a callback"));
        event.on_ready(move |_| send.send(()).unwrap());
        promise.set(Ok(()));
        assert_eq!(ran.recv(), Ok(()));
    }
}
