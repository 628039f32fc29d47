//! Datasets made of other datasets: mapped samples, some of the samples, several datasets as one.

/// Methods of a dataset that are those of its inner dataset.
macro_rules! of_inner {
    ($($method:ident)+) => { $(of_inner!(@$method);)+ };
    (@len) => {
        fn len(&self) -> usize {
            self.inner.len()
        }
    };
    (@fields) => {
        fn fields(&self) -> &[Field] {
            self.inner.fields()
        }
    };
    (@is_sequential) => {
        fn is_sequential(&self) -> bool {
            self.inner.is_sequential()
        }
    };
    (@name) => {
        fn name(&self) -> String {
            self.inner.name()
        }
    };
    (@digest) => {
        fn digest(&self) -> Option<String> {
            self.inner.digest()
        }
    };
}

mod cache;
mod join;
mod map;
mod mix;
mod mixup;
mod select;

use std::sync::Arc;

use halite_core::{Error, Result};

pub use self::{
    cache::Cache,
    join::{Concat, Zip},
    map::{Map, MapRandom},
    mix::Mix,
    mixup::{Mixup, OneHot},
    select::{Every, Repeat, Sampled, Subset},
};
use crate::{Dataset, Field, Random, Sample, SampleMut, Sampler};

/// Adapters for any dataset.
pub trait DatasetExt: Dataset + Sized {
    /// Maps each sample to one with other fields by `f`, which runs at each read in the thread that
    /// reads.
    ///
    /// The [digest](Dataset::digest) has what `f` makes of eight samples, so a run does not resume
    /// with another function by mistake; [`Map::version`] names the function instead.
    ///
    /// ```
    /// use halite_core::{DType, HostArray, TensorType};
    /// use halite_data::{Dataset, DatasetExt, Field, InMemory, Rows};
    ///
    /// let bytes = HostArray::from_slice(&[0u8, 255, 51, 102], [2, 2])?;
    /// let scaled = InMemory::new([("pixels", bytes)])?
    ///     .map([Field::new("pixels", TensorType::new(DType::F32, [2]))], |sample, into| {
    ///         for (to, &from) in into.values_mut::<f32>(0)?.iter_mut().zip(sample.values::<u8>(0)?) {
    ///             *to = f32::from(from) / 255.0;
    ///         }
    ///         Ok(())
    ///     });
    /// let mut rows = Rows::zeros(scaled.fields(), 1)?;
    /// scaled.read(1, &mut rows.sample_mut(0))?;
    /// assert_eq!(rows.sample(0).values::<f32>(0)?, [0.2, 0.4]);
    /// # Ok::<(), halite_core::Error>(())
    /// ```
    fn map<F>(self, fields: impl Into<Vec<Field>>, f: F) -> Map<Self, F>
    where
        F: Fn(Sample<'_>, &mut SampleMut<'_>) -> Result<()> + Send + Sync,
    {
        Map::new(self, fields.into(), f)
    }

    /// Maps each sample to one with other fields by `f`, as [`map`](Self::map), with random numbers
    /// of the [key](crate::Key) of the read: augmentation that a resumed run repeats to the bit.
    /// `purpose` names the sequence of numbers; two maps of one pipeline need different ones to be
    /// independent.
    ///
    /// ```
    /// use halite_core::{DType, HostArray, TensorType};
    /// use halite_data::{Dataset, DatasetExt, Field, InMemory, Rows};
    ///
    /// let images = HostArray::from_slice(&[1u8, 2, 3, 4, 5, 6], [2, 3])?;
    /// let image = Field::new("image", TensorType::new(DType::U8, [3]));
    /// let flipped = InMemory::new([("image", images)])?.map_random("flip", [image], |sample, random, into| {
    ///     into.write(0, sample.values::<u8>(0)?)?;
    ///     if random.chance(0.5) {
    ///         into.bytes_mut(0).reverse();
    ///     }
    ///     Ok(())
    /// });
    /// # let mut rows = Rows::zeros(flipped.fields(), 1)?;
    /// # flipped.read(0, &mut rows.sample_mut(0))?;
    /// # assert!([[1, 2, 3], [3, 2, 1]].iter().any(|row| rows.sample(0).bytes(0) == row));
    /// # Ok::<(), halite_core::Error>(())
    /// ```
    fn map_random<F>(
        self,
        purpose: impl Into<String>,
        fields: impl Into<Vec<Field>>,
        f: F,
    ) -> MapRandom<Self, F>
    where
        F: Fn(Sample<'_>, &mut Random, &mut SampleMut<'_>) -> Result<()> + Send + Sync,
    {
        MapRandom::new(self, purpose.into(), fields.into(), f)
    }

    /// Restricts the dataset to these samples, in this order.
    ///
    /// # Errors
    /// If an index is not below [`len`](Dataset::len).
    fn subset(self, indices: impl Into<Arc<[usize]>>) -> Result<Subset<Self>> {
        Subset::new(self, indices.into())
    }

    /// Restricts the dataset to the samples of which `keep`, called with the index and the sample,
    /// returns true. Reads each sample once, here; [`subset`](Self::subset) selects by index alone.
    ///
    /// # Errors
    /// If a sample cannot be read, or if `keep` fails; the message names the sample.
    fn filter(self, keep: impl FnMut(usize, Sample<'_>) -> Result<bool>) -> Result<Subset<Self>> {
        Subset::filtered(self, keep)
    }

    /// Restricts the dataset to its first `count` samples, or to all if there are fewer.
    fn take(self, count: usize) -> Every<Self> {
        Every {
            first: 0,
            step: 1,
            len: count.min(self.len()),
            inner: self,
        }
    }

    /// Restricts the dataset to part `index` of `of`: samples `index`, `index + of`, .. The parts
    /// have no sample in common, and their lengths differ by at most 1.
    ///
    /// Training over several processes needs no such part: loaders divide each batch.
    ///
    /// # Errors
    /// If `index` is not below `of`.
    fn shard(self, index: usize, of: usize) -> Result<Every<Self>> {
        if index >= of {
            let message = format!("part {index} of {of}: parts count from 0");
            return Err(Error::invalid("shard", message));
        }
        Ok(Every {
            first: index,
            step: of,
            len: self.len().saturating_sub(index).div_ceil(of),
            inner: self,
        })
    }

    /// Repeats the samples: an epoch has each of them `times` times, with a different
    /// [key](crate::Key) each time.
    ///
    /// # Errors
    /// If the number of samples exceeds the address space.
    fn repeat(self, times: usize) -> Result<Repeat<Self>> {
        if self.len().checked_mul(times).is_none() {
            let message = format!("{} samples {times} times are more than 2^64", self.len());
            return Err(Error::invalid("repeat", message));
        }
        Ok(Repeat { inner: self, times })
    }

    /// Samples of this dataset and of `other` with the same index as one sample: the fields of this
    /// dataset, then those of `other`.
    ///
    /// # Errors
    /// If the numbers of samples differ.
    fn zip<O: Dataset>(self, other: O) -> Result<Zip<Self, O>> {
        Zip::new(self, other)
    }

    /// The samples of this dataset, then those of `other`.
    ///
    /// # Errors
    /// If the fields differ in name, type or order.
    fn concat<O: Dataset>(self, other: O) -> Result<Concat<Self, O>> {
        Concat::new(self, other)
    }

    /// Keeps samples in memory after their first read, up to `bytes` of them; the others are read
    /// each time.
    ///
    /// The dataset below is read with a key of seed 0, epoch 0 and its index, so random maps belong
    /// above the cache: `dataset.cache(bytes).map_random(..)`. Below it, each sample would have one
    /// random choice for all epochs.
    fn cache(self, bytes: usize) -> Cache<Self> {
        Cache::new(self, bytes)
    }

    /// Samples that a [`Sampler`] draws: the sample at position `p` of epoch `e` is that of
    /// `sampler.at(seed, e, p)`, with the seed of the loader's order. A shuffled order shuffles the
    /// positions.
    ///
    /// # Errors
    /// If the sampler was made for another number of samples, or if the dataset is a stream.
    fn sampled<S: Sampler>(self, sampler: S) -> Result<Sampled<Self, S>> {
        Sampled::new(self, sampler)
    }

    /// Replaces the class of a sample, an integer `[]`, by `f32[classes]`: 1 for the class, else 0.
    /// A loss takes it as probabilities, such as `soft_cross_entropy` of `halite-nn`.
    ///
    /// # Errors
    /// If there is no such field, or if it is not an integer of one element.
    fn one_hot(self, label: &str, classes: usize) -> Result<OneHot<Self>> {
        OneHot::new(self, label, classes)
    }

    /// Mixes each sample with a random other one (mixup; Zhang et al. 2018): `lambda * image +
    /// (1 - lambda) * other_image`, the labels too, with `lambda` of the beta distribution of
    /// (`alpha`, `alpha`). Images are `u8`, rounded, or `f32`; labels `f32[..]`, of
    /// [`one_hot`](Self::one_hot) or several 0 and 1. Other fields stay as they are.
    ///
    /// Both samples are read as at their own places of the epoch, with the augmentation below; the
    /// partner and `lambda` are a pure function of the [key](crate::Key), so a run resumes to the
    /// bit.
    ///
    /// ```
    /// use halite_core::HostArray;
    /// use halite_data::{Dataset, DatasetExt, InMemory, Rows};
    ///
    /// let images = HostArray::from_slice(&[0u8, 0, 200, 200], [2, 2])?;
    /// let labels = HostArray::from_slice(&[0u32, 1], [2])?;
    /// let data = InMemory::new([("image", images), ("label", labels)])?
    ///     .one_hot("label", 2)?
    ///     .mixup("image", "label", 0.2)?;
    /// let mut rows = Rows::zeros(data.fields(), 1)?;
    /// data.read(0, &mut rows.sample_mut(0))?;
    /// let label = rows.sample(0).values::<f32>(1)?;
    /// assert!((label[0] + label[1] - 1.0).abs() < 1e-6);
    /// # Ok::<(), halite_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no such fields, or of other types; if `alpha` is not between 1e-3 and 1e6, or
    /// the dataset is empty or a stream.
    fn mixup(self, image: &str, label: &str, alpha: f64) -> Result<Mixup<Self>> {
        Mixup::new(self, image, label)?.or_mixup(alpha)
    }

    /// Replaces a rectangle of each image, `[height, width, ..]`, by that of a random other one,
    /// and the labels by their share of the pixels (CutMix; Yun et al. 2019), else as
    /// [`mixup`](Self::mixup). `data.mixup("image", "label", 0.2)?.or_cutmix(1.0)?` does either.
    ///
    /// # Errors
    /// As [`mixup`](Self::mixup).
    fn cutmix(self, image: &str, label: &str, alpha: f64) -> Result<Mixup<Self>> {
        Mixup::new(self, image, label)?.or_cutmix(alpha)
    }

    /// Splits the dataset at random, by `seed`, into `first` samples and the rest.
    ///
    /// # Errors
    /// If there are fewer than `first` samples.
    fn split(self, first: usize, seed: u64) -> Result<[Subset<Arc<Self>>; 2]> {
        let len = self.len();
        if first > len {
            return Err(Error::invalid(
                "split",
                format!("{first} samples requested for the first part of a dataset of {len}"),
            ));
        }
        let order = crate::Permutation::new(len, seed, 0);
        let indices: Vec<usize> = (0..len).map(|position| order.at(position)).collect();
        let shared = Arc::new(self);
        Ok([
            shared.clone().subset(&indices[..first])?,
            shared.subset(&indices[first..])?,
        ])
    }
}

impl<D: Dataset> DatasetExt for D {}
