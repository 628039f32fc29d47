//! Iterators over batches, and the threads that read them ahead.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use halite_core::{
    Error, ErrorKind, Result,
    guard::panic_message,
    wait::{SLICE, Wait, default_limit},
};

use super::{Loader, LoaderOptions, cancelled, read::ReadBatch};
use crate::{
    batch::{HostBatch, Position},
    threads::{PATIENCE, Worker},
};

/// Iterator over batches in order. Dropping it stops the workers and waits for them for at most a
/// second: a worker that hangs in [`Dataset::read`](crate::Dataset::read) is abandoned, with a
/// warning.
///
/// An error takes the place of its batch; the next batch follows.
#[derive(Debug)]
pub struct Batches {
    loader: Loader,
    schedule: Schedule,
    waited: Duration,
    /// `None` if the caller's thread reads.
    workers: Option<Workers>,
    stop: Arc<AtomicBool>,
}

impl Batches {
    pub(super) fn start(loader: &Loader, next: Position, last_epoch: Option<u64>) -> Self {
        let schedule = Schedule {
            next,
            per_epoch: loader.batches_per_epoch(),
            last_epoch,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let workers = Workers::start(loader, schedule.clone(), &stop);
        Self {
            loader: loader.clone(),
            schedule,
            waited: Duration::ZERO,
            workers,
            stop,
        }
    }

    /// Position of the next batch, for a checkpoint. After the last batch of an epoch it is the
    /// first of the next epoch.
    pub fn next_position(&self) -> Position {
        self.schedule.next_position()
    }

    /// Total time that the consumer has waited for batches.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    pub(crate) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Cancels the batches in progress, which become errors.
    pub(crate) fn stopper(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    pub(crate) fn loader(&self) -> &Loader {
        &self.loader
    }
}

impl Iterator for Batches {
    type Item = Result<HostBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some(position) = self.schedule.next() else {
            // Threads end with the last batch, not with the iterator, which may live longer.
            self.workers = None;
            return None;
        };
        let start = Instant::now();
        let batch = match &mut self.workers {
            Some(workers) => workers.take(position),
            None => read_caught(&self.loader, position, &self.stop),
        };
        self.waited += start.elapsed();
        let (skipped, policy) = (&self.loader.skipped, self.loader.options.bad_samples);
        Some(batch.and_then(|batch| batch.admitted(skipped, policy)))
    }
}

/// Positions of a run, in order.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    next: Position,
    per_epoch: usize,
    last_epoch: Option<u64>,
}

impl Schedule {
    pub(crate) fn next_position(&self) -> Position {
        if self.next.batch < self.per_epoch {
            self.next
        } else {
            Position {
                epoch: self.next.epoch + 1,
                batch: 0,
            }
        }
    }
}

impl Iterator for Schedule {
    type Item = Position;

    fn next(&mut self) -> Option<Position> {
        let position = self.next_position();
        if self.last_epoch.is_some_and(|last| position.epoch > last) {
            return None;
        }
        self.next = Position {
            batch: position.batch + 1,
            ..position
        };
        Some(position)
    }
}

/// Threads that read batches ahead of the consumer.
#[derive(Debug)]
struct Workers {
    /// Batches that are not sent to a worker yet.
    schedule: Schedule,
    /// `None` only while being dropped.
    jobs: Option<Sender<Position>>,
    done: Receiver<(Position, Result<ReadBatch>)>,
    /// Batches that were ready out of order.
    early: HashMap<Position, Result<ReadBatch>>,
    threads: Vec<Worker>,
    stop: Arc<AtomicBool>,
}

impl Workers {
    /// Starts the threads; `None` if none is requested, or none can be created.
    fn start(loader: &Loader, mut schedule: Schedule, stop: &Arc<AtomicBool>) -> Option<Self> {
        let LoaderOptions { workers, ahead, .. } = loader.options;
        // The channels need no bound, because there are never more batches than jobs.
        let (jobs, taken) = unbounded::<Position>();
        let (finished, done) = unbounded();
        for position in schedule.by_ref().take(ahead.max(1)) {
            jobs.send(position).expect("the receiver is held above");
        }
        // More workers than concurrent jobs would be idle.
        let threads: Vec<_> = (0..workers.min(ahead.max(1)))
            .map_while(|index| {
                let (loader, taken, finished, stop) = (
                    loader.clone(),
                    taken.clone(),
                    finished.clone(),
                    stop.clone(),
                );
                let work = move || {
                    for position in taken {
                        if finished
                            .send((position, read_caught(&loader, position, &stop)))
                            .is_err()
                        {
                            return;
                        }
                    }
                };
                Worker::spawn(format!("halite-data-{index}"), work).ok()
            })
            .collect();
        (!threads.is_empty()).then(|| Self {
            schedule,
            jobs: Some(jobs),
            done,
            early: HashMap::new(),
            threads,
            stop: stop.clone(),
        })
    }

    /// Waits for the batch at `position`.
    fn take(&mut self, position: Position) -> Result<ReadBatch> {
        if let (Some(next), Some(jobs)) = (self.schedule.next(), &self.jobs) {
            // Fails only if all workers have ended, which `recv` reports.
            let _ = jobs.send(next);
        }
        // No warning here: the consumer of this batch reports the wait.
        let name = || format!("epoch {}, batch {}", position.epoch, position.batch);
        let mut wait = Wait::new(name(), default_limit()).silent();
        loop {
            if let Some(batch) = self.early.remove(&position) {
                return batch;
            }
            let begun = Instant::now();
            match self.done.recv_timeout(SLICE) {
                Ok((arrived, batch)) => _ = self.early.insert(arrived, batch),
                Err(RecvTimeoutError::Timeout) if self.stop.load(Relaxed) => {
                    return Err(cancelled());
                }
                Err(RecvTimeoutError::Timeout) => wait.slept(begun.elapsed())?,
                Err(RecvTimeoutError::Disconnected) => {
                    let message = format!("all workers ended before {}", name());
                    return Err(Error::new(ErrorKind::Internal, "loader", message));
                }
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.jobs = None;
        let deadline = Instant::now() + PATIENCE;
        self.threads
            .drain(..)
            .for_each(|thread| thread.join_by(deadline));
    }
}

/// Reads a batch. A panic becomes an error, so that the consumer does not wait forever.
fn read_caught(loader: &Loader, position: Position, stop: &AtomicBool) -> Result<ReadBatch> {
    catch_unwind(AssertUnwindSafe(|| loader.read_while(position, stop))).unwrap_or_else(|panic| {
        let message = format!(
            "a panic while epoch {}, batch {} was read: {}",
            position.epoch,
            position.batch,
            panic_message(&*panic)
        );
        Err(Error::new(ErrorKind::Internal, "loader", message))
    })
}
