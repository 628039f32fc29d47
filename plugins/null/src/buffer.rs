//! Buffers in host memory, and events that are always ready.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use halite_core::{
    AlignedBytes, Buffer, Error, Event, MemoryKind, OnFetched, OnReady, Placement, Result,
    TensorType,
};

use crate::NullDevice;

/// A buffer of [`Null`](crate::Null). Its contents never change.
#[derive(Debug)]
pub struct Memory {
    devices: Arc<[NullDevice]>,
    device: usize,
    ty: TensorType,
    bytes: Arc<AlignedBytes>,
}

impl Memory {
    pub(crate) fn new(
        devices: &Arc<[NullDevice]>,
        device: usize,
        ty: TensorType,
        bytes: impl Into<Arc<AlignedBytes>>,
    ) -> Self {
        let bytes = bytes.into();
        devices[device].in_use.fetch_add(size(&bytes), Relaxed);
        Memory {
            devices: devices.clone(),
            device,
            ty,
            bytes,
        }
    }
}

fn size(bytes: &AlignedBytes) -> u64 {
    bytes.as_ref().len() as u64
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.devices[self.device]
            .in_use
            .fetch_sub(size(&self.bytes), Relaxed);
    }
}

impl Buffer for Memory {
    type Event = Ready;

    fn tensor_type(&self) -> &TensorType {
        &self.ty
    }

    fn placement(&self) -> Placement {
        self.devices[self.device].id.into()
    }

    fn ready(&self) -> Result<Ready> {
        Ok(Ready)
    }

    fn copy_to(&self, place: Placement) -> Result<Self> {
        let device = self
            .devices
            .iter()
            .position(|device| device.id == place.device);
        match device {
            Some(device) if place.memory == MemoryKind::Device => Ok(Memory::new(
                &self.devices,
                device,
                self.ty.clone(),
                self.bytes.clone(),
            )),
            _ => Err(Error::invalid(
                "copy",
                format!(
                    "{:?} memory of device {} does not exist",
                    place.memory, place.device.0
                ),
            )),
        }
    }

    fn read(&self, into: &mut [u8]) -> Result<()> {
        into.copy_from_slice((*self.bytes).as_ref());
        Ok(())
    }

    fn fetch(&self, then: OnFetched) {
        then(Ok((*self.bytes).as_ref().to_vec()));
    }
}

/// An event of [`Null`](crate::Null), whose work is done during the call.
#[derive(Debug)]
pub struct Ready;

impl Event for Ready {
    fn is_ready(&self) -> bool {
        true
    }
    fn wait(&self) -> Result<()> {
        Ok(())
    }
    fn on_ready(&self, then: OnReady) {
        then(Ok(()));
    }
}
