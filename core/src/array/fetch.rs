//! Fetches: copies to the host that do not block the caller.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    Array,
    parts::{is_whole, paste},
};
use crate::{AlignedBytes, DType, HostArray, Pending, Result, TensorType, host::LARGE};

impl Array {
    /// Queues a copy of the global array to the host.
    ///
    /// # Errors
    /// None at present; an error of the computation is returned with the value.
    pub fn fetch(&self) -> Result<Pending<HostArray>> {
        self.fetch_to(None)
    }

    /// Queues a copy of the global array to the host, into the memory of `spare`, whose elements are
    /// lost. An array of another type is dropped, and new memory is taken.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub fn fetch_into(&self, spare: HostArray) -> Result<Pending<HostArray>> {
        self.fetch_to((*spare.ty() == self.ty.with_dtype(self.stored)).then_some(spare))
    }

    fn fetch_to(&self, spare: Option<HostArray>) -> Result<Pending<HostArray>> {
        let parts = self.distinct_shards()?;
        let (pending, resolve) = Pending::new("fetch");
        let ty = self.ty.with_dtype(self.stored);
        // Large new memory is in huge pages, and aligned: bytes from elsewhere may have to be copied.
        let new = || match ty.bytes() < LARGE {
            true => None,
            false => HostArray::try_zeros(ty.clone()).ok(),
        };
        let spare = match (spare.or_else(new), &parts[..]) {
            (Some(spare), [(ranges, shard)]) if ty == self.ty && is_whole(ranges, &ty) => {
                let filled = move |memory: Result<AlignedBytes>| {
                    resolve(memory.and_then(|memory| HostArray::from_aligned(memory, ty)));
                };
                shard.fetch_into_then(spare.into_aligned(), Box::new(filled));
                return Ok(pending);
            }
            (spare, _) => spare,
        };
        let gathering = Arc::new(Mutex::new(Gathering {
            ty,
            host: spare,
            dtype: self.ty.dtype(),
            missing: parts.len(),
            resolve: Some(Box::new(resolve)),
        }));
        for (ranges, shard) in parts {
            let gathering = gathering.clone();
            shard.fetch_then(Box::new(move |bytes| {
                gathering
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .arrived(&ranges, bytes);
            }));
        }
        Ok(pending)
    }
}

/// A fetch in progress: the shards that have arrived.
struct Gathering {
    /// Global type, with the element type of the devices.
    ty: TensorType,
    /// The global array. Allocated when the first shard arrives, so that many fetches in progress do
    /// not all take memory.
    host: Option<HostArray>,
    /// Element type of the result.
    dtype: DType,
    missing: usize,
    /// `None` once resolved.
    resolve: Option<Box<dyn FnOnce(Result<HostArray>) + Send>>,
}

impl Gathering {
    fn arrived(&mut self, ranges: &[Range<usize>], bytes: Result<Vec<u8>>) {
        if self.resolve.is_none() {
            return;
        }
        if let Some(result) = bytes.and_then(|bytes| self.add(ranges, bytes)).transpose()
            && let Some(resolve) = self.resolve.take()
        {
            self.host = None;
            resolve(result);
        }
    }

    /// Adds a shard; returns the global array after the last.
    fn add(&mut self, ranges: &[Range<usize>], bytes: Vec<u8>) -> Result<Option<HostArray>> {
        self.missing -= 1;
        let host = if is_whole(ranges, &self.ty) {
            HostArray::from_aligned(AlignedBytes::from_vec(bytes)?, self.ty.clone())?
        } else {
            let mut host = match self.host.take() {
                Some(host) => host,
                None => HostArray::try_zeros(self.ty.clone())?,
            };
            paste(&mut host, ranges, &bytes);
            host
        };
        if self.missing > 0 {
            self.host = Some(host);
            return Ok(None);
        }
        if self.ty.dtype() == self.dtype {
            Ok(Some(host))
        } else {
            host.to_float(self.dtype).map(Some)
        }
    }
}
