//! Options of a loader.

use std::{fmt, str::FromStr};

use super::BadSample;
#[cfg(doc)]
use super::Loader;
#[cfg(doc)]
use crate::Permutation;

/// Options of a [`Loader`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Rows of every batch, over all processes.
    pub batch_size: usize,
    /// The order of the samples.
    pub order: Order,
    /// Treatment of the samples that do not fill a batch.
    pub last: LastBatch,
    /// Treatment of samples that cannot be read.
    pub bad_samples: BadSample,
    /// Most batches of an epoch, the first ones of its order; `None` for all.
    pub limit: Option<usize>,
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
            bad_samples: BadSample::Fail,
            limit: None,
            workers: 2,
            ahead: 4,
            shard: Shard::default(),
        }
    }

    /// Options for training: [`new`](Self::new) with a random order in each epoch, and without the
    /// samples that do not fill a batch.
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

/// `pad` or `drop`.
impl FromStr for LastBatch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "pad" => Ok(LastBatch::Pad),
            "drop" => Ok(LastBatch::Drop),
            _ => Err("expected `pad` or `drop`".into()),
        }
    }
}

impl fmt::Display for LastBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LastBatch::Pad => "pad",
            LastBatch::Drop => "drop",
        })
    }
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
