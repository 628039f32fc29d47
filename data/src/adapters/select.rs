//! Some of the samples of a dataset, or all of them several times.

use std::sync::Arc;

use halite_core::{Error, Result};

use crate::{Dataset, Field, Key, Rows, Sample, SampleMut, Sampler, digest::digest_of};

#[cfg(doc)]
use super::DatasetExt;

/// See [`DatasetExt::subset`] and [`DatasetExt::split`].
#[derive(Clone, Debug)]
pub struct Subset<D> {
    inner: D,
    indices: Arc<[usize]>,
}

impl<D: Dataset> Subset<D> {
    pub(super) fn new(inner: D, indices: Arc<[usize]>) -> Result<Self> {
        if let Some(index) = indices.iter().find(|&&index| index >= inner.len()) {
            return Err(Error::invalid(
                "subset",
                format!("sample {index} of a dataset of {}", inner.len()),
            ));
        }
        Ok(Subset { inner, indices })
    }

    /// Reads all samples and keeps those of which `keep` returns true.
    pub(super) fn filtered(
        inner: D,
        mut keep: impl FnMut(usize, Sample<'_>) -> Result<bool>,
    ) -> Result<Self> {
        let mut rows = Rows::zeros(inner.fields(), 1)?;
        let mut indices = Vec::new();
        for index in 0..inner.len() {
            let key = Key {
                index,
                ..Key::default()
            };
            let kept = inner
                .read(index, &mut rows.sample_mut(0).with_key(key))
                .and_then(|()| keep(index, rows.sample(0)))
                .map_err(|error| {
                    Error::new(error.kind(), "filter", format!("sample {index}")).caused_by(error)
                })?;
            if kept {
                indices.push(index);
            }
        }
        Ok(Subset {
            inner,
            indices: indices.into(),
        })
    }

    /// Indices of the samples in the inner dataset.
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    of_inner!(fields is_sequential name);

    fn len(&self) -> usize {
        self.indices.len()
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        self.inner.read(self.indices[index], into)
    }

    fn digest(&self) -> Option<String> {
        let inner = self.inner.digest()?;
        let indices: Vec<u8> = self
            .indices
            .iter()
            .flat_map(|&index| (index as u64).to_le_bytes())
            .collect();
        Some(digest_of([inner.as_bytes(), &indices]))
    }
}

/// See [`DatasetExt::take`] and [`DatasetExt::shard`].
#[derive(Clone, Debug)]
pub struct Every<D> {
    pub(super) inner: D,
    pub(super) first: usize,
    pub(super) step: usize,
    pub(super) len: usize,
}

impl<D: Dataset> Dataset for Every<D> {
    of_inner!(fields is_sequential name);

    fn len(&self) -> usize {
        self.len
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        self.inner.read(self.first + index * self.step, into)
    }

    fn digest(&self) -> Option<String> {
        let inner = self.inner.digest()?;
        Some(format!(
            "{inner}, {} samples from {} by {}",
            self.len, self.first, self.step
        ))
    }
}

/// See [`DatasetExt::repeat`].
#[derive(Clone, Debug)]
pub struct Repeat<D> {
    pub(super) inner: D,
    pub(super) times: usize,
}

impl<D: Dataset> Dataset for Repeat<D> {
    of_inner!(fields is_sequential name);

    fn len(&self) -> usize {
        self.inner.len() * self.times
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        self.inner.read(index % self.inner.len(), into)
    }

    fn digest(&self) -> Option<String> {
        let inner = self.inner.digest()?;
        Some(format!("{inner}, {} times", self.times))
    }
}

/// See [`DatasetExt::sampled`].
#[derive(Clone, Debug)]
pub struct Sampled<D, S> {
    inner: D,
    sampler: S,
    len: usize,
}

impl<D: Dataset, S: Sampler> Sampled<D, S> {
    pub(super) fn new(inner: D, sampler: S) -> Result<Self> {
        if inner.is_sequential() {
            let message = format!(
                "{} is a stream, which is read in its order; read it into an `InMemory`, or use a dataset with samples by index",
                inner.name()
            );
            return Err(Error::invalid("sampled", message));
        }
        let len = sampler.len(inner.len())?;
        Ok(Sampled {
            inner,
            sampler,
            len,
        })
    }
}

impl<D: Dataset, S: Sampler> Dataset for Sampled<D, S> {
    of_inner!(fields name);

    fn len(&self) -> usize {
        self.len
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        let Key { seed, epoch, .. } = into.key();
        let sample = self.sampler.at(seed, epoch, index);
        if sample >= self.inner.len() {
            let message = format!(
                "the sampler returned sample {sample} at position {index} of epoch {epoch}, the dataset has {}",
                self.inner.len()
            );
            return Err(Error::invalid("sampled", message));
        }
        self.inner.read(sample, into)
    }

    fn digest(&self) -> Option<String> {
        let inner = self.inner.digest()?;
        Some(format!("{inner}, sampled {}", self.sampler.digest()))
    }
}
