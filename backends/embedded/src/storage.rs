//! The bytes of tensors.

use std::{
    ops::{Deref, Range},
    sync::Arc,
};

use bytemuck::Pod;
use halite_kernels::grow;

/// The bytes of a tensor.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    /// Bytes as the oracle computes them and callers upload them, of any alignment.
    Bytes(Vec<u8>),
    /// Bytes that are aligned for elements of any size.
    Aligned(Aligned),
    /// A range of other bytes, which is copied when it is written to.
    Part(Arc<Storage>, Range<usize>),
}

/// Bytes at the start of words of 64 bits.
#[derive(Clone, Debug)]
pub(crate) struct Aligned {
    words: Vec<u64>,
    length: usize,
}

impl Aligned {
    /// Zeros. Unwinds with [`CannotAllocate`](halite_kernels::CannotAllocate).
    pub(crate) fn zeros(length: usize) -> Self {
        let mut words = Vec::new();
        grow(&mut words, length.div_ceil(size_of::<u64>()), 0);
        Aligned { words, length }
    }

    fn bytes(&self) -> &[u8] {
        &bytemuck::must_cast_slice(&self.words)[..self.length]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::must_cast_slice_mut(&mut self.words)[..self.length]
    }
}

impl Storage {
    /// The elements; `None` if the bytes are not aligned for them, or are no whole number of them.
    pub(crate) fn elements<T: Pod>(&self) -> Option<&[T]> {
        bytemuck::try_cast_slice(self).ok()
    }

    /// The same bytes, in memory of their own.
    pub(crate) fn whole(self: Arc<Self>) -> Arc<Self> {
        match &*self {
            Storage::Part(..) => Arc::new(self.copied()),
            _ => self,
        }
    }

    fn copied(&self) -> Self {
        let mut copy = Aligned::zeros(self.len());
        copy.bytes_mut().copy_from_slice(self);
        Storage::Aligned(copy)
    }

    /// The same bytes, aligned for elements of any size.
    pub(crate) fn aligned(self: Arc<Self>) -> Arc<Self> {
        if self.as_ptr().cast::<u64>().is_aligned() {
            return self;
        }
        Arc::new(self.copied())
    }

    /// The bytes, to be written.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        if let Storage::Part(..) = self {
            *self = self.copied();
        }
        match self {
            Storage::Part(..) => &mut [],
            Storage::Bytes(bytes) => bytes,
            Storage::Aligned(aligned) => aligned.bytes_mut(),
        }
    }
}

impl Deref for Storage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Storage::Bytes(bytes) => bytes,
            Storage::Aligned(aligned) => aligned.bytes(),
            Storage::Part(whole, range) => &whole[range.clone()],
        }
    }
}

impl From<Vec<u8>> for Storage {
    fn from(bytes: Vec<u8>) -> Self {
        Storage::Bytes(bytes)
    }
}
