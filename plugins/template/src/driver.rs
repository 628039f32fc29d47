//! The accelerator: memory, and programs that run on it. This file stands for your driver.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use halite_core::{Error, ErrorKind, MemoryStats, Result};
use halite_plugin::Driver;
use halite_stablehlo::Module;

use crate::program::Code;

/// Devices, each with a memory.
#[derive(Debug)]
pub(crate) struct Toy {
    memories: Vec<Arc<Mutex<MemoryStats>>>,
    /// Bytes of each memory.
    limit: u64,
}

/// A block of device memory. Dropping it frees the memory.
#[derive(Debug)]
pub(crate) struct Block {
    /// The memory of the device, of which the toy counts the bytes in use.
    memory: Arc<Mutex<MemoryStats>>,
    size: u64,
    bytes: Mutex<Vec<u8>>,
}

impl Toy {
    pub(crate) fn new(devices: usize, limit: u64) -> Self {
        let stats = MemoryStats {
            limit: Some(limit),
            ..MemoryStats::default()
        };
        let memory = |_| Arc::new(Mutex::new(stats));
        Toy {
            memories: (0..devices).map(memory).collect(),
            limit,
        }
    }
}

impl Driver for Toy {
    type Block = Block;
    type Code = Code;

    fn allocate(&self, device: usize, size: u64) -> Result<Block> {
        let memory = &self.memories[device];
        let mut stats = lock(memory);
        let in_use = stats.in_use.saturating_add(size);
        if in_use > self.limit {
            let (free, limit) = (self.limit - stats.in_use, self.limit);
            let message = format!("{size} bytes needed, {free} of {limit} are free");
            return Err(Error::new(ErrorKind::OutOfMemory, "allocate", message));
        }
        stats.in_use = in_use;
        stats.peak = stats.peak.max(Some(in_use));
        Ok(Block {
            memory: memory.clone(),
            size,
            bytes: Mutex::default(),
        })
    }

    fn write(&self, block: &Block, bytes: &[u8]) -> Result<()> {
        *lock(&block.bytes) = bytes.to_vec();
        Ok(())
    }

    fn read(&self, block: &Block) -> Result<Vec<u8>> {
        Ok(lock(&block.bytes).clone())
    }

    fn memory(&self, device: usize) -> Result<MemoryStats> {
        Ok(*lock(&self.memories[device]))
    }

    fn compile(&self, module: &Module) -> Result<Code> {
        Code::compile(module, self.limit)
    }

    fn run(&self, device: usize, code: &Code, inputs: &[&Block], outputs: &[&Block]) -> Result<()> {
        let _workspace = self.allocate(device, code.workspace)?;
        let inputs = inputs.iter().map(|block| lock(&block.bytes).clone());
        for (block, bytes) in outputs.iter().zip(code.run(inputs.collect())) {
            *lock(&block.bytes) = bytes;
        }
        Ok(())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        lock(&self.memory).in_use -= self.size;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
