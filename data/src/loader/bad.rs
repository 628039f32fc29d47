//! Samples that cannot be read: the policy, and the count of skipped ones.

use std::{
    collections::BTreeMap,
    fmt,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};

use halite_core::{Error, ErrorKind, Result};

use super::Position;

/// Number of skipped samples that are named in warnings.
const NAMED: usize = 5;

/// Treatment of samples that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadSample {
    /// An error takes the place of the batch.
    #[default]
    Fail,
    /// The row becomes a copy of a sample that can be read, at weight 0. The first skipped samples
    /// are named in warnings; [`Loader::skipped`](super::Loader::skipped) returns all.
    Skip {
        /// Most samples that are skipped, each counted once for all epochs; the next one is an
        /// error. Each process counts those of its rows, and a resumed run counts from 0.
        at_most: usize,
    },
}

/// `fail`, or `skip:N` for at most `N` samples.
impl FromStr for BadSample {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let skip = || text.strip_prefix("skip:")?.parse().ok();
        match (text, skip()) {
            ("fail", _) => Ok(BadSample::Fail),
            (_, Some(at_most)) => Ok(BadSample::Skip { at_most }),
            _ => Err("expected `fail` or `skip:N`, such as `skip:10`".into()),
        }
    }
}

impl fmt::Display for BadSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadSample::Fail => f.write_str("fail"),
            BadSample::Skip { at_most } => write!(f, "skip:{at_most}"),
        }
    }
}

/// A sample that was skipped because it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedSample {
    /// Index in the dataset.
    pub index: usize,
    /// The error.
    pub reason: String,
}

/// A failed read of a batch.
#[derive(Debug)]
pub(super) struct BadRead {
    pub(super) index: usize,
    pub(super) position: Position,
    pub(super) error: Error,
}

impl BadRead {
    pub(super) fn into_error(self) -> Error {
        let Position { epoch, batch } = self.position;
        let message = format!("sample {} (epoch {epoch}, batch {batch})", self.index);
        Error::new(self.error.kind(), "loader", message).caused_by(self.error)
    }

    /// Returns whether the sample is at fault, rather than the reader.
    pub(super) fn is_of_sample(&self) -> bool {
        !matches!(
            self.error.kind(),
            ErrorKind::Cancelled | ErrorKind::Internal
        )
    }
}

/// The skipped samples of a loader and its clones: reasons by index.
#[derive(Clone, Debug, Default)]
pub(super) struct Skipped(Arc<Mutex<BTreeMap<usize, String>>>);

impl Skipped {
    /// Counts the failed reads of a batch. Called in the order of batches, so that the batch that
    /// fails does not depend on the number of workers.
    pub(super) fn add(&self, reads: Vec<BadRead>, policy: BadSample) -> Result<()> {
        let BadSample::Skip { at_most } = policy else {
            return Ok(());
        };
        let mut skipped = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for read in reads {
            if skipped.contains_key(&read.index) {
                continue;
            }
            if skipped.len() >= at_most {
                let message = format!(
                    "more than {at_most} samples cannot be read (`bad_samples`, --bad-samples \
                     skip:{at_most})"
                );
                let error = read.into_error();
                return Err(Error::new(error.kind(), "loader", message).caused_by(error));
            }
            let (index, error) = (read.index, read.into_error());
            match skipped.len() {
                0..NAMED => tracing::warn!("skipped, at weight 0: {error}"),
                NAMED => tracing::warn!("more than {NAMED} samples are skipped"),
                _ => {}
            }
            skipped.insert(index, error.to_string());
        }
        Ok(())
    }

    pub(super) fn all(&self) -> Vec<SkippedSample> {
        let skipped = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = skipped.iter().map(|(&index, reason)| SkippedSample {
            index,
            reason: reason.clone(),
        });
        all.collect()
    }
}
