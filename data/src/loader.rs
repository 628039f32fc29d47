//! Batches in order, assembled by worker threads ahead of time.
//!
//! Jobs (one per batch) go to the workers through one channel and come back through another, in any
//! order; the consumer restores the order. At most `ahead` batches are in progress or waiting: a
//! new job is sent when a batch is taken. So neither the batches nor their order depend on the
//! number of workers.

mod bad;
mod batches;
mod options;
mod read;

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
};

use halite_core::{Error, ErrorKind, PinnedPool, Result, TensorType};

use self::bad::Skipped;
pub(crate) use self::batches::Schedule;
pub use self::{
    bad::{BadSample, SkippedSample},
    batches::Batches,
    options::{LastBatch, LoaderOptions, Order, Shard},
};
use crate::{
    Dataset, Field,
    batch::{HostBatch, Position, batch_types},
};

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
    skipped: Skipped,
    pinned: Option<PinnedPool>,
}

impl Loader {
    /// Creates a loader.
    ///
    /// # Errors
    /// If the dataset is empty or too small for one batch without padding, if it is a stream and
    /// the order is shuffled, or if the batch size is not a multiple of the number of processes.
    pub fn new(dataset: impl Dataset + 'static, options: LoaderOptions) -> Result<Self> {
        Self::shared(Arc::new(dataset), options)
    }

    /// Creates a loader of a shared dataset.
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
                "a dataset of {} samples does not fill a batch of {batch_size}; use a batch size of at most {}, or LastBatch::Pad (`last_batch`, --last-batch pad)",
                dataset.len(),
                dataset.len()
            );
            return invalid(message);
        }
        if options.limit == Some(0) {
            return invalid("a limit of 0 batches leaves none of the dataset".into());
        }
        if dataset.is_sequential() && options.order != Order::Sequential {
            let message = format!(
                "{} is a stream, which cannot be shuffled; use `Order::Sequential` and shuffle the \
                 source, or read it into an `InMemory`",
                dataset.name()
            );
            return invalid(message);
        }
        let loader = Self {
            dataset,
            options,
            skipped: Skipped::default(),
            pinned: None,
        };
        // Sizes are checked here once, so that workers cannot get a shape that exceeds memory.
        loader
            .batch_types()
            .iter()
            .try_for_each(|ty| ty.checked_bytes().map(drop))?;
        Ok(loader)
    }

    /// Number of batches in an epoch.
    pub fn batches_per_epoch(&self) -> usize {
        let all = self.batches_of_all();
        self.options.limit.map_or(all, |limit| limit.min(all))
    }

    /// Number of batches that all samples make.
    fn batches_of_all(&self) -> usize {
        let len = self.dataset.len();
        match self.options.last {
            LastBatch::Pad => len.div_ceil(self.options.batch_size),
            LastBatch::Drop => len / self.options.batch_size,
        }
    }

    /// This loader with another [limit](LoaderOptions::limit) of the batches of an epoch.
    ///
    /// # Errors
    /// If it is 0.
    pub fn limited(self, batches: usize) -> Result<Self> {
        let options = LoaderOptions {
            limit: Some(batches),
            ..self.options
        };
        let (skipped, pinned) = (self.skipped, self.pinned);
        let limited = Self::shared(self.dataset, options)?;
        Ok(Self {
            skipped,
            pinned,
            ..limited
        })
    }

    /// This loader with batches in the page-locked memory of a pool, which is that of the client
    /// that they are uploaded to. The batches have the same values.
    ///
    /// A batch that is dropped, or uploaded by a [`Prefetch`](crate::Prefetch) and arrived, returns
    /// its memory.
    pub fn with_pinned_memory(self, pool: &PinnedPool) -> Self {
        Self {
            pinned: Some(pool.clone()),
            ..self
        }
    }

    pub(crate) fn pinned_pool(&self) -> Option<&PinnedPool> {
        self.pinned.as_ref()
    }

    /// This loader with the rows of all processes in each batch.
    pub fn whole(&self) -> Self {
        Loader {
            dataset: self.dataset.clone(),
            skipped: self.skipped.clone(),
            pinned: self.pinned.clone(),
            options: LoaderOptions {
                shard: Shard::default(),
                ..self.options.clone()
            },
        }
    }

    /// Number of rows of an epoch's last batch, over all processes, that are padding.
    pub fn padding(&self) -> usize {
        let LoaderOptions {
            batch_size, last, ..
        } = self.options;
        match last {
            LastBatch::Pad if self.batches_per_epoch() == self.batches_of_all() => {
                self.dataset.len().next_multiple_of(batch_size) - self.dataset.len()
            }
            LastBatch::Pad | LastBatch::Drop => 0,
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

    /// The options of this loader.
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
        self.read_while(position, &AtomicBool::new(false))?
            .admitted(&self.skipped, self.options.bad_samples)
    }

    /// The samples that were [skipped](BadSample::Skip) so far by this loader and its clones, by
    /// index.
    pub fn skipped(&self) -> Vec<SkippedSample> {
        self.skipped.all()
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

/// The error of a batch that was being read when its iterator was dropped.
fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "loader", "the batches were cancelled")
}
