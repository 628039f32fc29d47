//! Mapped samples.

use std::sync::{Mutex, PoisonError};

use halite_core::Result;

use crate::{Dataset, Field, Key, Random, Rows, Sample, SampleMut, digest::digest_of_some};

#[cfg(doc)]
use super::DatasetExt;

/// See [`DatasetExt::map`].
#[derive(Debug)]
pub struct Map<D, F> {
    inner: D,
    fields: Vec<Field>,
    f: F,
    version: Option<String>,
    scratch: Scratch,
}

impl<D, F> Map<D, F> {
    pub(super) fn new(inner: D, fields: Vec<Field>, f: F) -> Self {
        Map {
            inner,
            fields,
            f,
            version: None,
            scratch: Scratch::default(),
        }
    }

    /// Names the function: the [digest](Dataset::digest) has this version instead of samples. For
    /// functions that are expensive, that differ in few samples, or that round otherwise on another
    /// machine. Another version is another run for a resume.
    pub fn version(self, version: impl Into<String>) -> Self {
        Map {
            version: Some(version.into()),
            ..self
        }
    }
}

impl<D, F> Dataset for Map<D, F>
where
    D: Dataset,
    F: Fn(Sample<'_>, &mut SampleMut<'_>) -> Result<()> + Send + Sync,
{
    of_inner!(len is_sequential name);

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        self.scratch.read(&self.inner, index, into.key(), |sample| {
            (self.f)(sample, into)
        })
    }

    /// Digest of the inner dataset, and of what the function makes of a few of its samples.
    fn digest(&self) -> Option<String> {
        let inner = self.inner.digest()?;
        let function = match &self.version {
            Some(version) => format!("{version:?}"),
            None => digest_of_some(self)?,
        };
        Some(format!("{inner}, map {function}"))
    }
}

/// See [`DatasetExt::map_random`].
#[derive(Debug)]
pub struct MapRandom<D, F> {
    inner: D,
    fields: Vec<Field>,
    f: F,
    purpose: String,
    scratch: Scratch,
}

impl<D, F> MapRandom<D, F> {
    pub(super) fn new(inner: D, purpose: String, fields: Vec<Field>, f: F) -> Self {
        MapRandom {
            inner,
            fields,
            f,
            purpose,
            scratch: Scratch::default(),
        }
    }
}

impl<D, F> Dataset for MapRandom<D, F>
where
    D: Dataset,
    F: Fn(Sample<'_>, &mut Random, &mut SampleMut<'_>) -> Result<()> + Send + Sync,
{
    of_inner!(len is_sequential name);

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        let key = into.key();
        let mut random = key.random(&self.purpose);
        self.scratch.read(&self.inner, index, key, |sample| {
            (self.f)(sample, &mut random, into)
        })
    }

    /// Digest of the inner dataset, the purpose, and what the function makes of a few samples.
    fn digest(&self) -> Option<String> {
        let (inner, function) = (self.inner.digest()?, digest_of_some(self)?);
        Some(format!("{inner}, map {:?} {function}", self.purpose))
    }
}

/// Buffers of one sample, one for each concurrent reader, so that no read allocates.
#[derive(Debug, Default)]
pub(super) struct Scratch(Mutex<Vec<Rows>>);

impl Scratch {
    /// Reads a sample into a buffer and calls `f` with it.
    pub(super) fn read(
        &self,
        dataset: &impl Dataset,
        index: usize,
        key: Key,
        f: impl FnOnce(Sample<'_>) -> Result<()>,
    ) -> Result<()> {
        let pool = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = pool().pop();
        let mut rows = match taken {
            Some(rows) => rows,
            None => Rows::zeros(dataset.fields(), 1)?,
        };
        dataset.read(index, &mut rows.sample_mut(0).with_key(key))?;
        f(rows.sample(0))?;
        pool().push(rows);
        Ok(())
    }
}
