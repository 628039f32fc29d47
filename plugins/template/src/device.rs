//! A device: its memory, and the queue in which its work runs.

use std::sync::Arc;

use halite_core::{Device, DeviceId, MemoryKind, MemoryStats, Result};
use halite_plugin::DeviceQueue;

use crate::memory::DeviceMemory;

/// A device of the accelerator.
#[derive(Debug)]
pub(crate) struct ToyDevice {
    pub(crate) id: DeviceId,
    pub(crate) memory: Arc<DeviceMemory>,
    pub(crate) queue: DeviceQueue,
}

impl ToyDevice {
    pub(crate) fn open(id: DeviceId, memory_bytes: u64) -> Result<Self> {
        Ok(ToyDevice {
            id,
            memory: DeviceMemory::new(memory_bytes),
            queue: DeviceQueue::new(format!("toy device {}", id.0))?,
        })
    }
}

impl Device for ToyDevice {
    fn id(&self) -> DeviceId {
        self.id
    }

    fn process(&self) -> u32 {
        0
    }

    fn is_local(&self) -> bool {
        true
    }

    fn kind(&self) -> &str {
        "toy"
    }

    fn memories(&self) -> &[MemoryKind] {
        &[MemoryKind::Device]
    }

    fn memory(&self) -> Result<MemoryStats> {
        Ok(self.memory.stats())
    }
}
