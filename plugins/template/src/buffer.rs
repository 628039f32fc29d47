//! Buffers: a block of device memory, and the event of the work that fills it.

use std::sync::Arc;

use halite_core::{
    Buffer, Error, Event, HostBytes, MemoryKind, OnFetched, Placement, Result, TensorType,
};
use halite_plugin::SignalEvent;

use crate::{device::ToyDevice, memory::Block};

/// Data on one device.
#[derive(Debug)]
pub(crate) struct ToyBuffer {
    pub(crate) devices: Arc<[ToyDevice]>,
    /// Index in `devices`.
    pub(crate) device: usize,
    pub(crate) ty: TensorType,
    pub(crate) block: Arc<Block>,
    /// Ready when the block is filled.
    pub(crate) filled: SignalEvent,
}

/// The index of the device of a placement.
pub(crate) fn find(devices: &[ToyDevice], op: &'static str, place: Placement) -> Result<usize> {
    let found = devices.iter().position(|device| device.id == place.device);
    match found {
        Some(device) if place.memory == MemoryKind::Device => Ok(device),
        _ => Err(Error::invalid(
            op,
            format!(
                "no {:?} memory of device {}; there are devices 0 to {} with device memory",
                place.memory,
                place.device.0,
                devices.len() - 1
            ),
        )),
    }
}

impl ToyBuffer {
    /// Allocates a block on a device, and queues the job that fills it.
    pub(crate) fn fill(
        devices: &Arc<[ToyDevice]>,
        device: usize,
        ty: &TensorType,
        job: impl FnOnce(&Block) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let block = Arc::new(devices[device].memory.allocate(ty.checked_bytes()?)?);
        let target = block.clone();
        let filled = devices[device].queue.push(move || job(&target));
        Ok(ToyBuffer {
            devices: devices.clone(),
            device,
            ty: ty.clone(),
            block,
            filled,
        })
    }

    /// Queues a copy of host bytes, which are as many as the type needs.
    pub(crate) fn upload(
        devices: &Arc<[ToyDevice]>,
        device: usize,
        bytes: HostBytes<'_>,
        ty: &TensorType,
    ) -> Result<Self> {
        // Borrowed memory is read before the call returns.
        let bytes = match bytes {
            HostBytes::Borrowed(bytes) => Arc::new(bytes.to_vec()),
            HostBytes::Shared(bytes) => bytes,
        };
        Self::fill(devices, device, ty, move |block| {
            block.write((*bytes).as_ref());
            Ok(())
        })
    }
}

impl Buffer for ToyBuffer {
    type Event = SignalEvent;

    fn tensor_type(&self) -> &TensorType {
        &self.ty
    }

    fn placement(&self) -> Placement {
        self.devices[self.device].id.into()
    }

    fn ready(&self) -> Result<SignalEvent> {
        Ok(self.filled.clone())
    }

    fn copy_to(&self, place: Placement) -> Result<Self> {
        let device = find(&self.devices, "copy", place)?;
        let (source, filled) = (self.block.clone(), self.filled.clone());
        Self::fill(&self.devices, device, &self.ty, move |block| {
            filled.wait()?;
            block.write(&source.read());
            Ok(())
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
