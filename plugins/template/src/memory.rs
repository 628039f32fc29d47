//! The memory of a device. The host reaches it only by copies.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use halite_core::{Error, ErrorKind, MemoryStats, Result};

/// The memory of one device.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    capacity: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    blocks: HashMap<u64, Vec<u8>>,
    next_address: u64,
    in_use: u64,
    peak: u64,
}

/// Allocated memory. Dropping it frees the memory.
#[derive(Debug)]
pub(crate) struct Block {
    memory: Arc<DeviceMemory>,
    address: u64,
    size: u64,
}

impl DeviceMemory {
    pub(crate) fn new(capacity: u64) -> Arc<Self> {
        Arc::new(DeviceMemory {
            capacity,
            state: Mutex::default(),
        })
    }

    /// Allocates zero bytes.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if the device has too little memory left.
    pub(crate) fn allocate(self: &Arc<Self>, size: usize) -> Result<Block> {
        let mut state = self.lock();
        let in_use = state.in_use.saturating_add(size as u64);
        if in_use > self.capacity {
            let message = format!(
                "{size} bytes needed, {} of {} are free",
                self.capacity - state.in_use,
                self.capacity
            );
            return Err(Error::new(ErrorKind::OutOfMemory, "allocate", message));
        }
        state.in_use = in_use;
        state.peak = state.peak.max(in_use);
        let address = state.next_address;
        state.next_address += 1;
        state.blocks.insert(address, vec![0; size]);
        Ok(Block {
            memory: self.clone(),
            address,
            size: size as u64,
        })
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        let state = self.lock();
        MemoryStats {
            in_use: state.in_use,
            peak: Some(state.peak),
            limit: Some(self.capacity),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Block {
    /// Copies bytes of the host to the device. Their number is that of the block.
    pub(crate) fn write(&self, bytes: &[u8]) {
        if let Some(block) = self.memory.lock().blocks.get_mut(&self.address) {
            block.copy_from_slice(bytes);
        }
    }

    /// Copies the block to the host.
    pub(crate) fn read(&self) -> Vec<u8> {
        self.memory
            .lock()
            .blocks
            .get(&self.address)
            .cloned()
            .unwrap_or_default()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut state = self.memory.lock();
        state.blocks.remove(&self.address);
        state.in_use -= self.size;
    }
}
