//! Bytes on the host, aligned so that a device of the same machine can use them in place.

use std::fmt;

use super::storage::{Pinned, Storage};
use crate::{Error, ErrorKind, Result};

/// Byte buffer aligned to [`AlignedBytes::ALIGNMENT`], as zero-copy uploads need.
pub struct AlignedBytes {
    storage: Storage,
    offset: usize,
    pub(super) len: usize,
}

impl AlignedBytes {
    /// Alignment in bytes that XLA's CPU plugin needs to use host memory in place.
    pub const ALIGNMENT: usize = 64;

    /// Allocates `len` zero bytes. Aborts the process if memory is exhausted; see
    /// [`try_zeroed`](Self::try_zeroed).
    pub fn zeroed(len: usize) -> Self {
        let storage = Storage::pages(len);
        Self::aligned_in(
            storage.unwrap_or_else(|| Storage::Heap(vec![0; len + Self::ALIGNMENT])),
            len,
        )
    }

    /// Allocates `len` zero bytes.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if the host has too little memory.
    pub fn try_zeroed(len: usize) -> Result<Self> {
        let heap = || {
            let size = len.checked_add(Self::ALIGNMENT)?;
            let bytes = bytemuck::allocation::try_zeroed_vec(size).ok()?;
            Some(Storage::Heap(bytes))
        };
        Storage::pages(len)
            .or_else(heap)
            .map(|storage| Self::aligned_in(storage, len))
            .ok_or_else(|| no_memory(len))
    }

    /// Takes `bytes` without a copy if they are aligned, and copies them otherwise.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if a copy is needed, and the host has too little memory.
    pub fn from_vec(bytes: Vec<u8>) -> Result<Self> {
        if bytes.as_ptr().align_offset(Self::ALIGNMENT) == 0 {
            let len = bytes.len();
            return Ok(AlignedBytes {
                storage: Storage::Heap(bytes),
                offset: 0,
                len,
            });
        }
        Self::try_copy_of(&bytes)
    }

    /// Copies `bytes`.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if the host has too little memory.
    pub fn try_copy_of(bytes: &[u8]) -> Result<Self> {
        let mut copy = Self::try_zeroed(bytes.len())?;
        copy.as_mut().copy_from_slice(bytes);
        Ok(copy)
    }

    /// The first `len` bytes of page-locked memory.
    ///
    /// # Errors
    /// If it is shorter, or not aligned: the backend has broken its contract.
    pub(crate) fn of_pinned(pinned: Pinned, len: usize) -> Result<Self> {
        let storage = Storage::Pinned(pinned);
        let given = storage.bytes();
        if given.len() < len || given.as_ptr().align_offset(Self::ALIGNMENT) != 0 {
            let message = format!(
                "`Backend::pinned_memory` returned {} bytes at {:?}, expected {len} or more, aligned \
                 to {}",
                given.len(),
                given.as_ptr(),
                Self::ALIGNMENT
            );
            return Err(Error::new(ErrorKind::Internal, "pinned memory", message));
        }
        Ok(AlignedBytes {
            storage,
            offset: 0,
            len,
        })
    }

    fn aligned_in(storage: Storage, len: usize) -> Self {
        // The block does not move when its owner does, so the offset stays valid.
        let offset = storage.bytes().as_ptr().align_offset(Self::ALIGNMENT);
        AlignedBytes {
            storage,
            offset,
            len,
        }
    }

    /// Copies `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut copy = Self::zeroed(bytes.len());
        copy.as_mut().copy_from_slice(bytes);
        copy
    }
}

fn no_memory(bytes: usize) -> Error {
    Error::new(
        ErrorKind::OutOfMemory,
        "host array",
        format!("the host cannot allocate {bytes} bytes"),
    )
}

impl AsRef<[u8]> for AlignedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.storage.bytes()[self.offset..self.offset + self.len]
    }
}

impl AsMut<[u8]> for AlignedBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.storage.bytes_mut()[self.offset..self.offset + self.len]
    }
}

impl Clone for AlignedBytes {
    fn clone(&self) -> Self {
        Self::copy_of(self.as_ref())
    }
}

impl fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBytes({})", self.len)
    }
}
