//! The accelerator. This file stands for your driver.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use halite_core::{Device, DeviceId, Error, ErrorKind, MemoryStats, Result};
use halite_plugin::DeviceQueue;

/// A device: its memory, and the queue in which its work runs in order.
#[derive(Debug)]
pub(crate) struct ToyDevice {
    id: DeviceId,
    pub(crate) memory: Arc<Memory>,
    pub(crate) queue: DeviceQueue,
}

impl ToyDevice {
    pub(crate) fn open(id: u32, memory_bytes: u64) -> Result<Self> {
        let limit = Some(memory_bytes);
        let stats = MemoryStats {
            limit,
            ..MemoryStats::default()
        };
        Ok(ToyDevice {
            id: DeviceId(id),
            memory: Arc::new(Memory(Mutex::new(stats))),
            queue: DeviceQueue::new(format!("toy device {id}"))?,
        })
    }
}

impl Device for ToyDevice {
    fn id(&self) -> DeviceId {
        self.id
    }

    fn kind(&self) -> &str {
        "toy"
    }

    fn memory(&self) -> Result<MemoryStats> {
        Ok(*lock(&self.memory.0))
    }
}

/// The memory of a device, of which the toy counts the bytes in use.
#[derive(Debug)]
pub(crate) struct Memory(Mutex<MemoryStats>);

/// A block of device memory. Dropping it frees the memory.
#[derive(Debug)]
pub(crate) struct Block {
    memory: Arc<Memory>,
    size: u64,
    bytes: Mutex<Vec<u8>>,
}

impl Memory {
    /// Bytes that it has.
    pub(crate) fn limit(&self) -> u64 {
        lock(&self.0).limit.unwrap_or(u64::MAX)
    }

    /// Allocates a block, whose contents are undefined until it is written.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if the device has too little memory left.
    pub(crate) fn allocate(self: &Arc<Self>, size: u64) -> Result<Block> {
        let mut stats = lock(&self.0);
        let limit = stats.limit.unwrap_or(u64::MAX);
        let in_use = stats.in_use.saturating_add(size);
        if in_use > limit {
            let free = limit - stats.in_use;
            let message = format!("{size} bytes needed, {free} of {limit} are free");
            return Err(Error::new(ErrorKind::OutOfMemory, "allocate", message));
        }
        stats.in_use = in_use;
        stats.peak = stats.peak.max(Some(in_use));
        Ok(Block {
            memory: self.clone(),
            size,
            bytes: Mutex::default(),
        })
    }
}

impl Block {
    /// Copies bytes of the host, as many as the block has, to the device.
    pub(crate) fn write(&self, bytes: Vec<u8>) {
        *lock(&self.bytes) = bytes;
    }

    /// Copies the block to the host.
    pub(crate) fn read(&self) -> Vec<u8> {
        lock(&self.bytes).clone()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        lock(&self.memory.0).in_use -= self.size;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
