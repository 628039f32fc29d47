//! The bytes of tensors.

use std::{
    ops::{Deref, Range},
    sync::Arc,
};

use halite_kernels::grow;

/// The bytes of a tensor, in memory that is aligned for the type of its elements where the fast
/// executor allocated it.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    Bytes(Vec<u8>),
    /// Elements of 32 bits.
    Words(Vec<u32>),
    /// A range of other bytes, which is copied when it is written to.
    Part(Arc<Storage>, Range<usize>),
}

impl Storage {
    /// The elements of 32 bits; `None` if the bytes are not aligned for them.
    pub(crate) fn words(&self) -> Option<&[u32]> {
        match self {
            Storage::Bytes(bytes) => bytemuck::try_cast_slice(bytes).ok(),
            Storage::Words(words) => Some(words),
            Storage::Part(..) => bytemuck::try_cast_slice(self).ok(),
        }
    }

    /// The same bytes, in memory of their own.
    pub(crate) fn whole(self: Arc<Self>) -> Arc<Self> {
        match &*self {
            Storage::Part(..) => Arc::new(self.copied()),
            _ => self,
        }
    }

    fn copied(&self) -> Self {
        match self.words() {
            Some(words) => Storage::Words(copy(words)),
            None => Storage::Bytes(copy(self)),
        }
    }

    /// The same bytes, aligned for elements of 32 bits if they can be such.
    pub(crate) fn aligned(self: Arc<Self>) -> Arc<Self> {
        if !self.len().is_multiple_of(size_of::<u32>()) || self.words().is_some() {
            return self;
        }
        let mut words = Vec::new();
        grow(&mut words, self.len() / size_of::<u32>(), 0u32);
        bytemuck::must_cast_slice_mut(&mut words).copy_from_slice(&self);
        Arc::new(Storage::Words(words))
    }

    /// The bytes, to be written.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        if let Storage::Part(..) = self {
            *self = self.copied();
        }
        match self {
            Storage::Part(..) => &mut [],
            Storage::Bytes(bytes) => bytes,
            Storage::Words(words) => bytemuck::must_cast_slice_mut(words),
        }
    }
}

/// A copy, in memory that is allocated with an error.
fn copy<T: Clone + Default>(values: &[T]) -> Vec<T> {
    let mut copy = Vec::new();
    grow(&mut copy, values.len(), T::default());
    copy.clone_from_slice(values);
    copy
}

impl Deref for Storage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Storage::Bytes(bytes) => bytes,
            Storage::Words(words) => bytemuck::must_cast_slice(words),
            Storage::Part(whole, range) => &whole[range.clone()],
        }
    }
}

impl From<Vec<u8>> for Storage {
    fn from(bytes: Vec<u8>) -> Self {
        Storage::Bytes(bytes)
    }
}
