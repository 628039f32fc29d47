//! Weighted mix of datasets.

use std::{fmt, sync::Arc};

use halite_core::{Error, Result};

use super::join::expect_fields;
use crate::{
    Dataset, Field, Key, Permutation, SampleMut, digest::digest_of, sampler::without_repetition,
};

/// Mix of datasets in proportions. Each epoch has the same number of samples of a dataset, its
/// share of the weights rounded, at random positions. Samples of a dataset come in a random order,
/// without repetition until all of them were read; epochs continue where the one before ended.
///
/// The sample at a position is a pure function of seed, epoch and position.
///
/// ```
/// use std::sync::Arc;
/// use halite_core::HostArray;
/// use halite_data::{Dataset, InMemory, Mix};
///
/// let numbers = |values: &[i32]| -> halite_core::Result<Arc<dyn Dataset>> {
///     Ok(Arc::new(InMemory::new([("number", HostArray::from_slice(values, [values.len()])?)])?))
/// };
/// let mix = Mix::new([(numbers(&[1, 2])?, 3.0), (numbers(&[10, 20, 30])?, 1.0)], 100)?;
/// assert_eq!(mix.counts().collect::<Vec<_>>(), [75, 25]);
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Mix {
    sources: Vec<Source>,
    len: usize,
}

#[derive(Clone)]
struct Source {
    dataset: Arc<dyn Dataset>,
    /// Samples in an epoch.
    count: usize,
}

impl Mix {
    /// Creates a mix of `len` samples an epoch from datasets with their weights, which need not sum
    /// to 1.
    ///
    /// # Errors
    /// If there are no datasets, a weight is negative or not finite, all are 0, the fields differ,
    /// or a dataset that has a share is empty or a stream.
    pub fn new(
        sources: impl IntoIterator<Item = (Arc<dyn Dataset>, f64)>,
        len: usize,
    ) -> Result<Self> {
        let (datasets, weights): (Vec<_>, Vec<f64>) = sources.into_iter().unzip();
        let invalid = |message| Err(Error::invalid("mix", message));
        let total: f64 = weights.iter().sum();
        if weights
            .iter()
            .any(|weight| weight.is_nan() || *weight < 0.0)
            || !(total > 0.0 && total.is_finite())
        {
            return invalid(format!(
                "weights {weights:?}; expected finite weights of at least 0 and one above 0"
            ));
        }
        for dataset in &datasets {
            expect_fields("mix", &**dataset, &*datasets[0])?;
            if dataset.is_empty() || dataset.is_sequential() {
                let kind = if dataset.is_empty() {
                    "empty"
                } else {
                    "a stream"
                };
                return invalid(format!(
                    "{} is {kind}; a mix reads samples by index",
                    dataset.name()
                ));
            }
        }
        // Positions between two cumulative shares, rounded, so that the counts sum to `len`.
        let (mut sum, mut from) = (0.0, 0);
        let sources = datasets.into_iter().zip(&weights).map(|(dataset, weight)| {
            sum += weight;
            let to = ((sum / total * len as f64).round() as usize).min(len);
            let count = to - from;
            from = to;
            Source { dataset, count }
        });
        Ok(Mix {
            sources: sources.collect(),
            len,
        })
    }

    /// Number of samples of each dataset in an epoch.
    pub fn counts(&self) -> impl Iterator<Item = usize> + '_ {
        self.sources.iter().map(|source| source.count)
    }
}

impl Dataset for Mix {
    fn len(&self) -> usize {
        self.len
    }

    fn fields(&self) -> &[Field] {
        self.sources[0].dataset.fields()
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        let Key { seed, epoch, .. } = into.key();
        let seed_of = |purpose: &str, index| {
            let key = Key {
                seed,
                epoch: 0,
                index,
            };
            key.random(purpose).u64()
        };
        let mut place = Permutation::new(self.len, seed_of("mix", 0), epoch).at(index);
        for (number, source) in self.sources.iter().enumerate() {
            if place >= source.count {
                place -= source.count;
                continue;
            }
            let seed = seed_of("mix source", number);
            let sample = without_repetition(source.dataset.len(), source.count, seed, epoch, place);
            return source.dataset.read(sample, into).map_err(|error| {
                let message = format!("sample {sample} of {}", source.dataset.name());
                Error::new(error.kind(), "mix", message).caused_by(error)
            });
        }
        unreachable!("the counts sum to the length")
    }

    fn digest(&self) -> Option<String> {
        let parts: Option<Vec<String>> = self
            .sources
            .iter()
            .map(|source| Some(format!("{} of {}", source.count, source.dataset.digest()?)))
            .collect();
        Some(format!("mix {}", digest_of(parts?)))
    }

    fn name(&self) -> String {
        let names: Vec<String> = self
            .sources
            .iter()
            .map(|source| source.dataset.name())
            .collect();
        format!("mix of {}", names.join(", "))
    }
}

impl fmt::Debug for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mix")
            .field("name", &self.name())
            .field("counts", &self.counts().collect::<Vec<_>>())
            .finish()
    }
}
