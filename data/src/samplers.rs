//! Samplers: which samples an epoch has, and how often.

use std::{collections::BTreeMap, sync::Arc};

use halite_core::{Error, Result};

use crate::{Key, digest::digest_of, sampler::without_repetition};

/// Choice of the samples of an epoch, for [`DatasetExt::sampled`](crate::DatasetExt::sampled).
pub trait Sampler: Send + Sync {
    /// Number of samples in an epoch, from a dataset of `samples`; as many by default.
    ///
    /// # Errors
    /// If the sampler is for another number of samples.
    fn len(&self, samples: usize) -> Result<usize> {
        Ok(samples)
    }

    /// Index of the sample at `position` of an epoch: a pure function of the arguments.
    fn at(&self, seed: u64, epoch: u64, position: usize) -> usize;

    /// Description that differs if [`at`](Self::at) does, so that a run does not resume with
    /// another sampler.
    fn digest(&self) -> String;
}

/// Draws with replacement; the probability of a sample is proportional to its weight.
#[derive(Clone, Debug)]
pub struct WeightedSampler {
    /// Sums of the weights up to and including each sample's.
    sums: Arc<[f64]>,
    /// The last sample of a positive weight.
    last: usize,
    count: usize,
}

impl WeightedSampler {
    /// Creates a sampler of `count` draws an epoch. `weights` has one number for each sample.
    ///
    /// # Errors
    /// If a weight is negative or not finite, or if all are 0.
    pub fn new(weights: &[f64], count: usize) -> Result<Self> {
        let mut sum = 0.0;
        for (sample, weight) in weights.iter().enumerate() {
            sum += weight;
            if weight.is_nan() || *weight < 0.0 || !f64::is_finite(sum) {
                let message = format!(
                    "weight {weight} of sample {sample}; expected finite weights of at least 0"
                );
                return Err(Error::invalid("weighted sampler", message));
            }
        }
        let Some(last) = weights.iter().rposition(|&weight| weight > 0.0) else {
            let message = format!("none of the {} weights is above 0", weights.len());
            return Err(Error::invalid("weighted sampler", message));
        };
        let sums = weights.iter().scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Ok(Self {
            sums: sums.collect(),
            last,
            count,
        })
    }
}

impl Sampler for WeightedSampler {
    fn len(&self, samples: usize) -> Result<usize> {
        expect_samples("weighted sampler", self.sums.len(), samples)?;
        Ok(self.count)
    }

    fn at(&self, seed: u64, epoch: u64, position: usize) -> usize {
        let key = Key {
            seed,
            epoch,
            index: position,
        };
        let drawn = key.random("weighted sampler").f64() * self.sums[self.last];
        self.sums
            .partition_point(|&sum| sum <= drawn)
            .min(self.last)
    }

    fn digest(&self) -> String {
        let sums: Vec<u8> = self.sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        format!("{} by weights {}", self.count, digest_of([sums]))
    }
}

/// Draws each class equally often: successive positions have the classes in turn, and the samples
/// of a class come without repetition until all of them were drawn, over the bounds of epochs.
#[derive(Clone, Debug)]
pub struct BalancedSampler {
    /// Indices of the samples of each class.
    classes: Arc<[Vec<usize>]>,
    samples: usize,
    per_class: usize,
}

impl BalancedSampler {
    /// Creates a sampler of `per_class` draws from each class an epoch. `labels` has the class of
    /// each sample.
    ///
    /// # Errors
    /// If there are no labels, or if the number of draws exceeds the address space.
    pub fn new<T: Ord>(labels: &[T], per_class: usize) -> Result<Self> {
        let mut classes = BTreeMap::<&T, Vec<usize>>::new();
        for (sample, label) in labels.iter().enumerate() {
            classes.entry(label).or_default().push(sample);
        }
        if classes.is_empty() || classes.len().checked_mul(per_class).is_none() {
            let message = format!("{per_class} samples of each of {} classes", classes.len());
            return Err(Error::invalid("balanced sampler", message));
        }
        Ok(Self {
            classes: classes.into_values().collect(),
            samples: labels.len(),
            per_class,
        })
    }
}

impl Sampler for BalancedSampler {
    fn len(&self, samples: usize) -> Result<usize> {
        expect_samples("balanced sampler", self.samples, samples)?;
        Ok(self.classes.len() * self.per_class)
    }

    fn at(&self, seed: u64, epoch: u64, position: usize) -> usize {
        let (class, place) = (position % self.classes.len(), position / self.classes.len());
        let samples = &self.classes[class];
        let key = Key {
            seed,
            epoch: 0,
            index: class,
        };
        let seed = key.random("balanced sampler").u64();
        samples[without_repetition(samples.len(), self.per_class, seed, epoch, place)]
    }

    fn digest(&self) -> String {
        let classes = self.classes.iter().map(|samples| -> Vec<u8> {
            let bytes = samples.iter().map(|&sample| (sample as u64).to_le_bytes());
            bytes.flatten().collect()
        });
        format!("{} of each class {}", self.per_class, digest_of(classes))
    }
}

fn expect_samples(what: &'static str, own: usize, samples: usize) -> Result<()> {
    if own == samples {
        return Ok(());
    }
    let message = format!("made for {own} samples, the dataset has {samples}");
    Err(Error::invalid(what, message))
}
