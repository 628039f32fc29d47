//! The bytes of tensors.

use std::{ops::Deref, sync::Arc};

/// The bytes of a tensor, in memory that is aligned for the type of its elements where the fast
/// executor allocated it.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    Bytes(Vec<u8>),
    /// Elements of 32 bits.
    Words(Vec<u32>),
}

impl Storage {
    /// The elements of 32 bits; `None` if the bytes are not aligned for them.
    pub(crate) fn words(&self) -> Option<&[u32]> {
        match self {
            Storage::Bytes(bytes) => bytemuck::try_cast_slice(bytes).ok(),
            Storage::Words(words) => Some(words),
        }
    }

    /// The same bytes, aligned for elements of 32 bits if they can be such.
    pub(crate) fn aligned(self: Arc<Self>) -> Arc<Self> {
        if !self.len().is_multiple_of(size_of::<u32>()) || self.words().is_some() {
            return self;
        }
        Arc::new(Storage::Words(bytemuck::pod_collect_to_vec(&self)))
    }

    /// The bytes, to be written.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Storage::Bytes(bytes) => bytes,
            Storage::Words(words) => bytemuck::must_cast_slice_mut(words),
        }
    }
}

impl Deref for Storage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Storage::Bytes(bytes) => bytes,
            Storage::Words(words) => bytemuck::must_cast_slice(words),
        }
    }
}

impl From<Vec<u8>> for Storage {
    fn from(bytes: Vec<u8>) -> Self {
        Storage::Bytes(bytes)
    }
}
