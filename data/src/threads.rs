//! Threads with a deadline for their end.

use std::{
    convert::Infallible,
    fmt, io,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};

/// Longest wait for the end of a thread.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// A thread whose end can be awaited with a deadline.
pub(crate) struct Worker {
    name: String,
    thread: JoinHandle<()>,
    /// Nothing is ever sent; it is disconnected when the thread ends.
    ended: Receiver<Infallible>,
}

impl Worker {
    /// Starts `work` on a thread of this name.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub(crate) fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (alive, ended) = bounded(0);
        let work = move || {
            // Dropped last, after `work` and all that it owns.
            let _alive = alive;
            work();
        };
        let thread = thread::Builder::new().name(name.clone()).spawn(work)?;
        Ok(Worker {
            name,
            thread,
            ended,
        })
    }

    /// Waits for its end until `deadline`. A later thread, for instance one in a read that hangs,
    /// is abandoned with a warning, and ends after its read.
    pub(crate) fn join_by(self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.ended.recv_timeout(left) {
            Err(RecvTimeoutError::Timeout) => {
                halite_core::warning!(
                    "the thread `{}` still reads data after it was stopped; it is abandoned",
                    self.name
                );
            }
            // If it panicked, the panic has been printed and reported as an error.
            Ok(_) | Err(RecvTimeoutError::Disconnected) => _ = self.thread.join(),
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Worker({})", self.name)
    }
}
