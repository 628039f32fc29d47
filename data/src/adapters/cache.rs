//! Samples in memory.

use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use halite_core::Result;

#[cfg(doc)]
use super::DatasetExt;
use crate::{Dataset, Field, Key, SampleMut};

/// See [`DatasetExt::cache`].
#[derive(Debug)]
pub struct Cache<D> {
    inner: D,
    /// The bytes of all fields of each sample.
    samples: Vec<OnceLock<Box<[u8]>>>,
    sample_bytes: usize,
    /// Samples for which there is memory.
    left: AtomicUsize,
}

impl<D: Dataset> Cache<D> {
    pub(super) fn new(inner: D, bytes: usize) -> Self {
        let sizes = inner.fields().iter().map(|field| field.ty.checked_bytes());
        // Sizes beyond the address space are an error of the first read.
        let sample_bytes = sizes
            .map(|size| size.unwrap_or(usize::MAX))
            .fold(0, usize::saturating_add);
        let kept = (bytes / sample_bytes.max(1)).min(inner.len());
        let slots = if kept == 0 { 0 } else { inner.len() };
        Cache {
            samples: (0..slots).map(|_| OnceLock::new()).collect(),
            sample_bytes,
            left: AtomicUsize::new(kept),
            inner,
        }
    }

    /// Number of samples in memory.
    pub fn cached(&self) -> usize {
        self.samples
            .iter()
            .filter(|sample| sample.get().is_some())
            .count()
    }
}

impl<D: Dataset> Dataset for Cache<D> {
    // The digest, too: a cache changes no sample.
    of_inner!(len fields is_sequential name digest);

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        let fields = self.inner.fields().len();
        let slot = self.samples.get(index);
        if let Some(bytes) = slot.and_then(OnceLock::get) {
            let mut bytes = &bytes[..];
            for field in 0..fields {
                let to = into.bytes_mut(field);
                let (from, rest) = bytes.split_at(to.len());
                to.copy_from_slice(from);
                bytes = rest;
            }
            return Ok(());
        }
        let key = Key {
            index,
            ..Key::default()
        };
        self.inner
            .read(index, &mut into.fields_from(0).with_key(key))?;
        let Some(slot) = slot else { return Ok(()) };
        let taken = self
            .left
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        if taken.is_ok() {
            let mut bytes = Vec::with_capacity(self.sample_bytes);
            (0..fields).for_each(|field| bytes.extend_from_slice(into.bytes_mut(field)));
            if slot.set(bytes.into()).is_err() {
                // Another thread read the same sample meanwhile.
                self.left.fetch_add(1, Relaxed);
            }
        }
        Ok(())
    }
}
