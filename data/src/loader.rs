//! Batches in order, assembled by worker threads ahead of time.
//!
//! Jobs (one per batch) go to the workers through one channel and come back through another, in any
//! order; the consumer restores the order. At most `ahead` batches are in progress or waiting: a
//! new job is sent when a batch is taken. So neither the batches nor their order depend on the
//! number of workers.

use std::{
    collections::HashMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use halite_core::{
    Error, ErrorKind, Result, TensorType,
    wait::{SLICE, Wait, default_limit},
};

use crate::{
    Dataset, Field, Permutation, Rows,
    batch::{HostBatch, Position, batch_types},
    threads::{PATIENCE, Worker},
};

/// Options of a [`Loader`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Rows of every batch, over all processes.
    pub batch_size: usize,
    /// The order of the samples.
    pub order: Order,
    /// Treatment of the samples that do not fill a batch.
    pub last: LastBatch,
    /// Threads that read samples. With 0 the caller's thread reads at each request of a batch.
    pub workers: usize,
    /// Batches read ahead of the consumer; at least 1 if there are workers.
    pub ahead: usize,
    /// Rows of each batch that this process reads.
    pub shard: Shard,
}

impl LoaderOptions {
    /// Batches of `batch_size` in the dataset's order with padding, two workers, four batches
    /// ahead.
    pub fn new(batch_size: usize) -> Self {
        Self {
            batch_size,
            order: Order::Sequential,
            last: LastBatch::Pad,
            workers: 2,
            ahead: 4,
            shard: Shard::default(),
        }
    }

    /// As [`new`](Self::new) with a random order in each epoch and without the samples that do not
    /// fill a batch: for training.
    pub fn shuffled(batch_size: usize, seed: u64) -> Self {
        Self {
            order: Order::Shuffled { seed },
            last: LastBatch::Drop,
            ..Self::new(batch_size)
        }
    }
}

/// The order of the samples in an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The order of the dataset.
    Sequential,
    /// A random [`Permutation`] for each epoch.
    Shuffled {
        /// Seed of the order, together with the epoch.
        seed: u64,
    },
}

/// Treatment of the samples at the end of an epoch that do not fill a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastBatch {
    /// Pads the batch with the epoch's first samples, at weight 0. These are real samples because a
    /// row of zeros can make a model's output infinite, and infinity times weight 0 is not 0.
    Pad,
    /// Omits them from this epoch.
    Drop,
}

/// The part of each batch that one of several processes reads: its `batch_size / of` consecutive
/// rows. The batches themselves do not depend on the number of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Index of the part, from 0.
    pub index: usize,
    /// Number of parts.
    pub of: usize,
}

impl Default for Shard {
    fn default() -> Self {
        Self { index: 0, of: 1 }
    }
}

/// Assembles batches of a dataset. Cheap to clone.
///
/// ```
/// use halite_core::HostArray;
/// use halite_data::{InMemory, Loader, LoaderOptions};
///
/// let numbers: Vec<i32> = (0..10).collect();
/// let dataset = InMemory::new([("number", HostArray::from_slice(&numbers, [10])?)])?;
/// let loader = Loader::new(dataset, LoaderOptions::new(4))?;
/// assert_eq!(loader.batches_per_epoch(), 3);
/// let last = loader.epoch(0).last().unwrap()?;
/// assert_eq!(last.arrays[0].as_slice::<i32>()?, [8, 9, 0, 1]); // filled up ..
/// assert_eq!(last.arrays[1].as_slice::<f32>()?, [1.0, 1.0, 0.0, 0.0]); // .. with rows that do not count
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Loader {
    dataset: Arc<dyn Dataset>,
    options: LoaderOptions,
}

impl Loader {
    /// Creates a loader.
    ///
    /// # Errors
    /// If the dataset is empty or too small for one batch without padding, or if the batch size is
    /// not a multiple of the number of processes.
    pub fn new(dataset: impl Dataset + 'static, options: LoaderOptions) -> Result<Self> {
        Self::shared(Arc::new(dataset), options)
    }

    /// As [`new`](Self::new), for a shared dataset.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn shared(dataset: Arc<dyn Dataset>, options: LoaderOptions) -> Result<Self> {
        let LoaderOptions {
            batch_size,
            last,
            shard,
            ..
        } = options;
        let invalid = |message| Err(Error::invalid("loader", message));
        if dataset.is_empty() {
            return invalid("the dataset has no samples".into());
        }
        if batch_size == 0 || shard.of == 0 || batch_size % shard.of != 0 {
            return invalid(format!(
                "a batch size of {batch_size} cannot be split into {} equal parts of at least one row",
                shard.of
            ));
        }
        if shard.index >= shard.of {
            return invalid(format!(
                "part {} of {}: parts count from 0",
                shard.index, shard.of
            ));
        }
        if last == LastBatch::Drop && dataset.len() < batch_size {
            let message = format!(
                "a dataset of {} samples does not fill a batch of {batch_size}; use a batch size of at most {}, or LastBatch::Pad",
                dataset.len(),
                dataset.len()
            );
            return invalid(message);
        }
        let loader = Self { dataset, options };
        // Sizes are checked here once, so that workers cannot get a shape that exceeds memory.
        loader
            .batch_types()
            .iter()
            .try_for_each(|ty| ty.checked_bytes().map(drop))?;
        Ok(loader)
    }

    /// Number of batches in an epoch.
    pub fn batches_per_epoch(&self) -> usize {
        let len = self.dataset.len();
        match self.options.last {
            LastBatch::Pad => len.div_ceil(self.options.batch_size),
            LastBatch::Drop => len / self.options.batch_size,
        }
    }

    /// Number of rows of each batch that this process reads.
    pub fn rows(&self) -> usize {
        self.options.batch_size / self.options.shard.of
    }

    /// The types of a batch's arrays: the fields in order, `[rows, ..]` each, and last the weights,
    /// `f32[rows]`.
    pub fn batch_types(&self) -> Vec<TensorType> {
        batch_types(self.dataset.fields(), self.rows())
    }

    /// The dataset.
    pub fn dataset(&self) -> &Arc<dyn Dataset> {
        &self.dataset
    }

    /// Options of a [`Loader`].
    pub fn options(&self) -> &LoaderOptions {
        &self.options
    }

    /// The batches of one epoch.
    pub fn epoch(&self, epoch: u64) -> Batches {
        self.epoch_from(Position { epoch, batch: 0 })
    }

    /// The batches of one epoch from `start` on, equal to those of [`epoch`](Self::epoch). Earlier
    /// samples are not read.
    pub fn epoch_from(&self, start: Position) -> Batches {
        Batches::start(self, start, Some(start.epoch))
    }

    /// All batches from `start` on in an endless sequence of epochs, so that the first batches of
    /// the next epoch are read during the last steps of this one.
    pub fn endless(&self, start: Position) -> Batches {
        Batches::start(self, start, None)
    }

    /// Reads one batch in the caller's thread.
    ///
    /// # Errors
    /// If a sample cannot be read; the message names it.
    ///
    /// # Panics
    /// If an epoch has no such batch.
    pub fn read(&self, position: Position) -> Result<HostBatch> {
        self.read_while(position, &AtomicBool::new(false))
    }

    fn read_while(&self, position: Position, stop: &AtomicBool) -> Result<HostBatch> {
        assert!(
            position.batch < self.batches_per_epoch(),
            "batch {} of {}",
            position.batch,
            self.batches_per_epoch()
        );
        let (len, rows) = (self.dataset.len(), self.rows());
        let order = match self.options.order {
            Order::Sequential => None,
            Order::Shuffled { seed } => Some(Permutation::new(len, seed, position.epoch)),
        };
        let first = position.batch * self.options.batch_size + self.options.shard.index * rows;
        let mut batch = Rows::zeros(self.dataset.fields(), rows)?;
        let mut weights = vec![0.0; rows];
        for (row, weight) in weights.iter_mut().enumerate() {
            if stop.load(Relaxed) {
                return Err(unwanted());
            }
            let place = first + row;
            *weight = if place < len { 1.0 } else { 0.0 };
            let index = order
                .as_ref()
                .map_or(place % len, |order| order.at(place % len));
            self.dataset
                .read(index, &mut batch.sample_mut(row))
                .map_err(|error| {
                    let message = format!(
                        "sample {index} (epoch {}, batch {})",
                        position.epoch, position.batch
                    );
                    Error::new(error.kind(), "loader", message).caused_by(error)
                })?;
        }
        Ok(HostBatch::new(batch, &weights, position))
    }
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<String> = self
            .dataset
            .fields()
            .iter()
            .map(|Field { name, ty }| format!("{name}: {ty}"))
            .collect();
        f.debug_struct("Loader")
            .field("samples", &self.dataset.len())
            .field("fields", &fields)
            .field("options", &self.options)
            .finish()
    }
}

/// Iterator over batches in order. Dropping it stops the workers and waits for them for at most a
/// second: a worker that hangs in [`Dataset::read`] is abandoned, with a warning.
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
    fn start(loader: &Loader, next: Position, last_epoch: Option<u64>) -> Self {
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
        Some(batch)
    }
}

/// The positions of a run, in order.
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

#[derive(Debug)]
struct Workers {
    /// Batches that no worker has got yet.
    schedule: Schedule,
    /// `None` only while being dropped.
    jobs: Option<Sender<Position>>,
    done: Receiver<(Position, Result<HostBatch>)>,
    /// Batches that were ready out of order.
    early: HashMap<Position, Result<HostBatch>>,
    threads: Vec<Worker>,
    stop: Arc<AtomicBool>,
}

impl Workers {
    /// `None` if no thread is requested, or none can be created.
    fn start(loader: &Loader, mut schedule: Schedule, stop: &Arc<AtomicBool>) -> Option<Self> {
        let LoaderOptions { workers, ahead, .. } = loader.options;
        // The channels need no bound: there are never more batches than jobs.
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

    fn take(&mut self, position: Position) -> Result<HostBatch> {
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
                Err(RecvTimeoutError::Timeout) if self.stop.load(Relaxed) => return Err(unwanted()),
                Err(RecvTimeoutError::Timeout) => wait.slept(begun.elapsed())?,
                Err(RecvTimeoutError::Disconnected) => {
                    let message = format!("all workers ended before {}", name());
                    return Err(Error::new(ErrorKind::Internal, "loader", message));
                }
            }
        }
    }
}

fn unwanted() -> Error {
    Error::new(ErrorKind::Cancelled, "loader", "the batches were cancelled")
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

/// Reads a batch; a panic of the dataset becomes an error, so that the consumer does not wait for
/// ever.
fn read_caught(loader: &Loader, position: Position, stop: &AtomicBool) -> Result<HostBatch> {
    catch_unwind(AssertUnwindSafe(|| loader.read_while(position, stop))).unwrap_or_else(|panic| {
        let words = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let message = format!(
            "the dataset panicked while epoch {}, batch {} was read: {}",
            position.epoch,
            position.batch,
            words.unwrap_or("no message")
        );
        Err(Error::new(ErrorKind::Internal, "loader", message))
    })
}
