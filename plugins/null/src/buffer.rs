//! Buffers in host memory, and events that are always ready.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use halite_core::{AlignedBytes, Buffer, Event, OnFetched, OnReady, Placement, Result, TensorType};
use halite_plugin::check;

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

    /// Returns whether these are the devices of its client.
    pub(crate) fn is_on(&self, devices: &Arc<[NullDevice]>) -> bool {
        Arc::ptr_eq(&self.devices, devices)
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
        let device = check::device(&self.devices, "copy", place)?;
        let (ty, bytes) = (self.ty.clone(), self.bytes.clone());
        Ok(Memory::new(&self.devices, device, ty, bytes))
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
