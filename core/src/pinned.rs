//! Reuse of page-locked host memory. Nothing here uploads.

use std::{
    fmt, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::{
    AlignedBytes, Client, HostArray, PinnedMemory, Result, TensorType,
    host::{Pinned, Recycle},
};

/// Pool of page-locked host memory of one client, for arrays that are uploaded: the driver copies
/// them to the devices without a copy to memory of its own first. Cheap to clone.
///
/// Dropped arrays, uploaded ones when they have arrived, return their memory to the pool, which
/// releases it when it is dropped itself. Beyond the limit, arrays are in pageable memory. The
/// values are the same in both.
///
/// ```
/// use halite_core::{Client, DType, Null, PinnedPool, TensorType};
///
/// let client = Client::new(Null::new(1));
/// let pool = PinnedPool::new(&client, PinnedPool::DEFAULT_LIMIT)?.expect("`Null` has such memory");
/// let batch = pool.zeros(TensorType::new(DType::F32, [8, 3]))?;
/// assert_eq!(batch.as_slice::<f32>()?, [0.0; 24]);
/// # halite_core::Result::<()>::Ok(())
/// ```
#[derive(Clone)]
pub struct PinnedPool(Arc<Pool>);

struct Pool {
    client: Client,
    limit: usize,
    blocks: Mutex<Blocks>,
}

#[derive(Default)]
struct Blocks {
    free: Vec<Box<dyn PinnedMemory>>,
    /// Bytes of all blocks, those in use included.
    bytes: usize,
    /// True after a failure: every further allocation would fail, too.
    failed: bool,
}

impl PinnedPool {
    /// Default of the most bytes that are page-locked: 1 GiB.
    pub const DEFAULT_LIMIT: usize = 1 << 30;

    /// Creates a pool that page-locks at most `limit` bytes, as they are needed. `None` where the
    /// backend has no such memory.
    ///
    /// # Errors
    /// If the backend cannot lock a page.
    pub fn new(client: &Client, limit: usize) -> Result<Option<Self>> {
        let Some(first) = client.pinned_block(1)? else {
            return Ok(None);
        };
        let blocks = Blocks {
            bytes: length(&*first),
            free: vec![first],
            failed: false,
        };
        Ok(Some(PinnedPool(Arc::new(Pool {
            client: client.clone(),
            limit,
            blocks: Mutex::new(blocks),
        }))))
    }

    /// Creates an array of zero bits: 0, or `false`.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) if the host has too little memory.
    pub fn zeros(&self, ty: TensorType) -> Result<HostArray> {
        let len = ty.checked_bytes()?;
        let bytes = match self.0.block(len) {
            Some(memory) => {
                let pool: Weak<Pool> = Arc::downgrade(&self.0);
                AlignedBytes::of_pinned(Pinned::new(memory, Some(pool)), len)?
            }
            None => AlignedBytes::try_zeroed(len)?,
        };
        HostArray::from_aligned(bytes, ty)
    }

    /// Number of bytes that are page-locked, in use or not.
    pub fn bytes(&self) -> usize {
        self.0.blocks().bytes
    }
}

impl Pool {
    /// Page-locked memory of `len` zero bytes or more. `None` if there is none within the limit.
    fn block(&self, len: usize) -> Option<Box<dyn PinnedMemory>> {
        let mut blocks = self.blocks();
        let has_room = !blocks.failed && blocks.bytes.saturating_add(len) <= self.limit;
        // A block of twice the size is worth keeping for a larger array, while there is room.
        let largest = if has_room {
            len.saturating_mul(2).max(SMALL)
        } else {
            usize::MAX
        };
        if let Some(mut memory) = blocks.take(len, largest) {
            drop(blocks);
            (*memory).as_mut()[..len].fill(0);
            return Some(memory);
        }
        if blocks.failed {
            return None;
        }
        let released = blocks.make_room(len, self.limit)?;
        blocks.bytes += len;
        // Releasing and locking pages take long.
        drop(blocks);
        drop(released);
        let memory = self.client.pinned_block(len);
        let mut blocks = self.blocks();
        blocks.bytes -= len;
        match memory {
            Ok(Some(memory)) => {
                blocks.bytes += length(&*memory);
                Some(memory)
            }
            Ok(None) => None,
            Err(error) => {
                let is_first = !mem::replace(&mut blocks.failed, true);
                drop(blocks);
                if is_first {
                    crate::warning!("{error}; further arrays are uploaded from pageable memory");
                }
                None
            }
        }
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes below which the size of a block does not matter.
const SMALL: usize = 64 << 10;

impl Blocks {
    /// Takes the smallest free block of `least` to `most` bytes.
    fn take(&mut self, least: usize, most: usize) -> Option<Box<dyn PinnedMemory>> {
        let lengths = self.free.iter().map(|memory| length(&**memory));
        let fitting = lengths
            .enumerate()
            .filter(|(_, length)| (least..=most).contains(length));
        let (index, _) = fitting.min_by_key(|(_, length)| *length)?;
        Some(self.free.swap_remove(index))
    }

    /// Takes as many free blocks as must be released before `len` bytes are within the limit.
    /// `None`, with all of them kept, if that is not enough.
    fn make_room(&mut self, len: usize, limit: usize) -> Option<Vec<Box<dyn PinnedMemory>>> {
        let free: usize = self.free.iter().map(|memory| length(&**memory)).sum();
        if (self.bytes - free).saturating_add(len) > limit {
            return None;
        }
        let mut released = Vec::new();
        while self.bytes + len > limit {
            let memory = self.free.pop()?;
            self.bytes -= length(&*memory);
            released.push(memory);
        }
        Some(released)
    }
}

impl Recycle for Pool {
    fn recycle(&self, memory: Box<dyn PinnedMemory>) {
        self.blocks().free.push(memory);
    }
}

fn length(memory: &dyn PinnedMemory) -> usize {
    memory.as_ref().len()
}

impl fmt::Debug for PinnedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedPool({} of {} bytes)", self.bytes(), self.0.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Null};

    fn pool(limit: usize) -> PinnedPool {
        let client = Client::new(Null::new(1));
        PinnedPool::new(&client, limit).unwrap().unwrap()
    }

    fn bytes(pool: &PinnedPool, len: usize) -> HostArray {
        pool.zeros(TensorType::new(DType::U8, [len])).unwrap()
    }

    #[test]
    fn memory_of_a_dropped_array_is_reused() {
        let pool = pool(1 << 20);
        let first = bytes(&pool, 1000);
        let start = first.bytes().as_ptr();
        let second = bytes(&pool, 1000);
        assert_ne!(second.bytes().as_ptr(), start);
        drop(first);
        assert_eq!(bytes(&pool, 999).bytes().as_ptr(), start);
        assert_eq!(pool.bytes(), 2001);
    }

    #[test]
    fn reused_memory_is_zero() {
        let pool = pool(1 << 20);
        bytes(&pool, 1000).bytes_mut().fill(7);
        assert_eq!(bytes(&pool, 1000).bytes(), [0; 1000]);
        assert_eq!(pool.bytes(), 1001);
    }

    #[test]
    fn arrays_beyond_the_limit_are_pageable() {
        let pool = pool(2500);
        let held = [bytes(&pool, 1000), bytes(&pool, 1000), bytes(&pool, 1000)];
        assert_eq!(pool.bytes(), 2001);
        assert!(held.iter().all(|array| array.bytes() == [0; 1000]));
        drop(held);
        assert_eq!(pool.bytes(), 2001);
    }

    #[test]
    fn free_memory_makes_room_for_larger_arrays() {
        let pool = pool(3000);
        drop([bytes(&pool, 1000), bytes(&pool, 1000)]);
        let large = bytes(&pool, 2500);
        assert!(pool.bytes() >= 2500 && pool.bytes() <= 3000);
        assert_eq!(large.bytes(), [0; 2500]);
    }

    #[test]
    fn much_larger_blocks_are_kept_while_there_is_room() {
        let pool = pool(1 << 20);
        let large = bytes(&pool, 500_000);
        let start = large.bytes().as_ptr();
        drop(large);
        assert_ne!(bytes(&pool, 100_000).bytes().as_ptr(), start);
        let _rest = [bytes(&pool, 240_000), bytes(&pool, 150_000)];
        let (_small, other) = (bytes(&pool, 100_000), bytes(&pool, 100_000));
        assert_eq!(other.bytes().as_ptr(), start);
    }

    #[test]
    fn array_outlives_its_pool() {
        let pool = pool(1 << 20);
        let mut array = bytes(&pool, 1000);
        drop(pool);
        array.bytes_mut().fill(7);
        assert_eq!(array.bytes(), [7; 1000]);
    }

    #[test]
    fn empty_arrays_need_no_memory() {
        let pool = pool(0);
        assert_eq!(bytes(&pool, 0).bytes(), [0u8; 0]);
        assert_eq!(pool.bytes(), 1);
    }
}
