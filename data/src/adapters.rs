//! Datasets made of another dataset: mapped samples, and some of the samples.

use std::sync::{Arc, Mutex, PoisonError};

use halite_core::{Error, Result};

use crate::{
    Dataset, Field, Rows, Sample, SampleMut,
    digest::{digest_of, digest_of_some},
};

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
        Map {
            inner: self,
            fields: fields.into(),
            f,
            version: None,
            scratch: Mutex::new(Vec::new()),
        }
    }

    /// Restricts the dataset to these samples, in this order.
    ///
    /// # Errors
    /// If an index is not below [`len`](Dataset::len).
    fn subset(self, indices: impl Into<Arc<[usize]>>) -> Result<Subset<Self>> {
        let indices = indices.into();
        if let Some(index) = indices.iter().find(|&&index| index >= self.len()) {
            return Err(Error::invalid(
                "subset",
                format!("sample {index} of a dataset of {}", self.len()),
            ));
        }
        Ok(Subset {
            inner: self,
            indices,
        })
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

/// See [`DatasetExt::map`].
#[derive(Debug)]
pub struct Map<D, F> {
    inner: D,
    fields: Vec<Field>,
    f: F,
    version: Option<String>,
    /// Buffers of one sample, one for each concurrent reader, so that no read allocates.
    scratch: Mutex<Vec<Rows>>,
}

impl<D, F> Map<D, F> {
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
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        let pool = || self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = pool().pop();
        let mut rows = match taken {
            Some(rows) => rows,
            None => Rows::zeros(self.inner.fields(), 1)?,
        };
        let key = into.key();
        self.inner
            .read(index, &mut rows.sample_mut(0).with_key(key))?;
        (self.f)(rows.sample(0), into)?;
        pool().push(rows);
        Ok(())
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

    fn name(&self) -> String {
        self.inner.name()
    }
}

/// See [`DatasetExt::subset`] and [`DatasetExt::split`].
#[derive(Clone, Debug)]
pub struct Subset<D> {
    inner: D,
    indices: Arc<[usize]>,
}

impl<D: Dataset> Dataset for Subset<D> {
    fn len(&self) -> usize {
        self.indices.len()
    }

    fn fields(&self) -> &[Field] {
        self.inner.fields()
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

    fn name(&self) -> String {
        self.inner.name()
    }
}
