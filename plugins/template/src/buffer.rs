//! Buffers: a block of device memory, its type, and the event of the work that fills it.

use std::sync::Arc;

use halite_core::{Buffer, Device, Event, HostBytes, OnFetched, Placement, Result, TensorType};
use halite_plugin::{SignalEvent, check};

use crate::device::{Block, ToyDevice};

/// Data on one device.
#[derive(Debug)]
pub(crate) struct ToyBuffer {
    /// All devices of the client.
    pub(crate) devices: Arc<[ToyDevice]>,
    /// Index in `devices`.
    pub(crate) device: usize,
    pub(crate) ty: TensorType,
    pub(crate) block: Arc<Block>,
    /// Ready when the block is filled.
    pub(crate) filled: SignalEvent,
}

impl ToyBuffer {
    /// Queues a copy of host bytes, which are as many as the type needs.
    pub(crate) fn upload(
        devices: &Arc<[ToyDevice]>,
        device: usize,
        bytes: HostBytes<'_>,
        ty: &TensorType,
    ) -> Result<Self> {
        let bytes = match bytes {
            // Borrowed memory is valid during the call only.
            HostBytes::Borrowed(bytes) => Arc::new(bytes.to_vec()),
            HostBytes::Shared(bytes) => bytes,
        };
        let copy = move || Ok((*bytes).as_ref().to_vec());
        Self::fill(devices, device, ty, copy)
    }

    /// Allocates a block, and queues the job that computes its contents.
    fn fill(
        devices: &Arc<[ToyDevice]>,
        device: usize,
        ty: &TensorType,
        job: impl FnOnce() -> Result<Vec<u8>> + Send + 'static,
    ) -> Result<Self> {
        let ToyDevice { memory, queue, .. } = &devices[device];
        let block = Arc::new(memory.allocate(ty.bytes() as u64)?);
        let target = block.clone();
        let filled = queue.push(move || {
            target.write(job()?);
            Ok(())
        });
        Ok(ToyBuffer {
            devices: devices.clone(),
            device,
            ty: ty.clone(),
            block,
            filled,
        })
    }
}

impl Buffer for ToyBuffer {
    type Event = SignalEvent;

    fn tensor_type(&self) -> &TensorType {
        &self.ty
    }

    fn placement(&self) -> Placement {
        self.devices[self.device].id().into()
    }

    fn ready(&self) -> Result<SignalEvent> {
        Ok(self.filled.clone())
    }

    fn copy_to(&self, place: Placement) -> Result<Self> {
        let device = check::device(&self.devices, "copy", place)?;
        let (block, filled) = (self.block.clone(), self.filled.clone());
        Self::fill(&self.devices, device, &self.ty, move || {
            filled.wait().map(|()| block.read())
        })
    }

    fn read(&self, into: &mut [u8]) -> Result<()> {
        self.filled.wait()?;
        into.copy_from_slice(&self.block.read());
        Ok(())
    }

    fn fetch(&self, then: OnFetched) {
        let (block, filled) = (self.block.clone(), self.filled.clone());
        self.devices[self.device].queue.push(move || {
            then(filled.wait().map(|()| block.read()));
            Ok(())
        });
    }
}
