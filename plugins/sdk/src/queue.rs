//! Helpers for backends: completion events, and a queue of work for each device.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    thread,
};

use halite_core::{Error, ErrorKind, Event, OnReady, Result};

use crate::{
    promise::{Completion, Promise},
    status::{Status, panic_text},
};

/// A completion event that its owner completes with a [`Signal`].
///
/// ```
/// use halite_core::Event;
/// use halite_plugin::SignalEvent;
///
/// let (signal, event) = SignalEvent::new();
/// assert!(!event.is_ready());
/// signal.complete(Ok(()));
/// event.wait()?;
/// # halite_core::Result::<()>::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct SignalEvent(Completion);

/// Completes a [`SignalEvent`]: with an error if it is dropped before.
#[derive(Debug)]
pub struct Signal(Promise);

impl SignalEvent {
    /// An event that is not ready, and what completes it.
    #[allow(clippy::new_ret_no_self, reason = "the two halves belong together")]
    pub fn new() -> (Signal, SignalEvent) {
        let (promise, completion) = Promise::new("the signal was dropped before it was completed");
        (Signal(promise), SignalEvent(completion))
    }

    /// An event of work that is done.
    pub fn ready() -> Self {
        SignalEvent(Completion::done())
    }
}

impl Signal {
    /// Completes the event, and runs its callbacks on this thread: it delays what the thread does
    /// next, and a callback that waits for that never ends.
    pub fn complete(self, result: Result<()>) {
        self.0.set(result.map_err(Status::from));
    }
}

impl Event for SignalEvent {
    fn is_ready(&self) -> bool {
        self.0.outcome().is_some()
    }

    fn wait(&self) -> Result<()> {
        self.0.wait().map_err(Error::from)
    }

    fn on_ready(&self, then: OnReady) {
        self.0
            .on_ready(move |outcome| then(outcome.map_err(Error::from)));
    }
}

/// A queue of work for one device: a thread that runs jobs in the order in which they were queued.
///
/// Dropping it waits for the jobs that are queued. A panic of a job is the error of its event, and
/// the next job runs. Callbacks of events run on the thread of the queue; they may launch, and
/// must not wait for work of the device.
///
/// ```
/// use halite_core::Event;
/// use halite_plugin::DeviceQueue;
///
/// let queue = DeviceQueue::new("device 0")?;
/// let event = queue.push(|| Ok(()));
/// event.wait()?;
/// # halite_core::Result::<()>::Ok(())
/// ```
pub struct DeviceQueue {
    name: Arc<str>,
    /// `None` when it is dropped.
    jobs: Option<Sender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
}

type Job = Box<dyn FnOnce() + Send>;

impl DeviceQueue {
    /// Starts a queue, whose thread has this name.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the system cannot create a thread.
    pub fn new(name: impl Into<Arc<str>>) -> Result<Self> {
        let name = name.into();
        let (jobs, queued) = mpsc::channel::<Job>();
        let thread = thread::Builder::new()
            .name(name.to_string())
            .spawn(move || queued.into_iter().for_each(|job| job()))
            .map_err(|error| {
                let message = format!("no thread for the queue of {name}");
                Error::new(ErrorKind::Unavailable, "create queue", message).caused_by(error)
            })?;
        Ok(DeviceQueue {
            name,
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Queues a job, and returns the event of its end.
    pub fn push(&self, job: impl FnOnce() -> Result<()> + Send + 'static) -> SignalEvent {
        let (signal, event) = SignalEvent::new();
        let job: Job = Box::new(move || {
            // The job is dropped before its event is ready, so that what it holds is free then.
            let result = catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|payload| {
                let message = format!("a queued job panicked: {}", panic_text(payload));
                Err(Error::new(ErrorKind::Internal, "run", message))
            });
            signal.complete(result);
        });
        if let Some(jobs) = &self.jobs {
            // A job that cannot be queued is dropped, which fails its event.
            _ = jobs.send(job);
        }
        event
    }
}

impl Drop for DeviceQueue {
    fn drop(&mut self) {
        self.jobs = None;
        let Some(thread) = self.thread.take() else {
            return;
        };
        // The last owner may be a job of the queue itself, which ends after it.
        if thread.thread().id() != thread::current().id() {
            _ = thread.join();
        }
    }
}

impl fmt::Debug for DeviceQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceQueue({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn jobs_run_in_order() {
        let queue = DeviceQueue::new("test").unwrap();
        let ran = Arc::new(Mutex::new(Vec::new()));
        for number in 0..100 {
            let ran = ran.clone();
            queue.push(move || {
                ran.lock().unwrap().push(number);
                Ok(())
            });
        }
        drop(queue);
        assert!(ran.lock().unwrap().iter().copied().eq(0..100));
    }

    #[test]
    fn panic_of_a_job_is_its_error() {
        let queue = DeviceQueue::new("test").unwrap();
        let failed = queue.push(|| panic!("no"));
        let next = queue.push(|| Ok(()));
        assert!(
            failed
                .wait()
                .unwrap_err()
                .to_string()
                .contains("a queued job panicked: no")
        );
        next.wait().unwrap();
    }

    #[test]
    fn dropped_signal_is_an_error() {
        let (signal, event) = SignalEvent::new();
        drop(signal);
        assert_eq!(event.wait().unwrap_err().kind(), ErrorKind::Internal);
    }

    #[test]
    fn queue_may_be_dropped_by_its_job() {
        let queue = Arc::new(DeviceQueue::new("test").unwrap());
        let held = queue.clone();
        let (send, go) = mpsc::channel::<()>();
        let event = queue.push(move || {
            go.recv().ok();
            drop(held);
            Ok(())
        });
        drop(queue);
        drop(send);
        event.wait().unwrap();
    }
}
