//! Buffers and events.

use std::{fmt, sync::Arc};

use halite_core::{
    AlignedBytes, Buffer, Error, Event, OnFetched, OnFilled, OnReady, Placement, Result, TensorType,
};

use crate::{
    client::Client,
    failure::Failure,
    oracle::{Tensor, allocate},
    slot::{Promise, Slot},
};

/// Data on a virtual device.
#[derive(Debug)]
pub struct EmbeddedBuffer {
    pub(crate) client: Arc<Client>,
    pub(crate) ty: TensorType,
    pub(crate) placement: Placement,
    pub(crate) slot: Arc<Slot>,
}

impl EmbeddedBuffer {
    /// A buffer whose contents queued work delivers.
    pub(crate) fn pending(
        client: &Arc<Client>,
        ty: &TensorType,
        placement: Placement,
    ) -> (Self, Promise) {
        let (slot, promise) = Slot::pending();
        let buffer = EmbeddedBuffer {
            client: client.clone(),
            ty: ty.clone(),
            placement,
            slot,
        };
        (buffer, promise)
    }
}

impl Buffer for EmbeddedBuffer {
    type Event = EmbeddedEvent;

    fn tensor_type(&self) -> &TensorType {
        &self.ty
    }

    fn placement(&self) -> Placement {
        self.placement
    }

    fn ready(&self) -> Result<EmbeddedEvent> {
        Ok(EmbeddedEvent {
            client: self.client.clone(),
            slot: self.slot.clone(),
        })
    }

    fn copy_to(&self, place: Placement) -> Result<Self> {
        let device = self.client.device("copy", place)?;
        let (copy, promise) = EmbeddedBuffer::pending(&self.client, &self.ty, place);
        let (source, memory) = (self.slot.clone(), device.memory.clone());
        // A copy waits for the launch of its source, so both have one order on all devices.
        let _order = self.client.launching();
        // Bytes are never written to, so that two buffers can share them.
        device.enqueue(move || {
            promise.fulfill(source.wait().map_err(Failure::from), |bytes| {
                memory.charge(bytes)
            });
        });
        Ok(copy)
    }

    fn read(&self, into: &mut [u8]) -> Result<()> {
        if into.len() != self.ty.bytes() {
            let (given, ty, needed) = (into.len(), &self.ty, self.ty.bytes());
            let message = format!("{given} bytes given, {ty} needs {needed}");
            return Err(self.client.on(Error::invalid("read", message)));
        }
        let tensor = self.slot.wait().map_err(|error| self.client.on(error))?;
        into.copy_from_slice(&tensor.bytes);
        Ok(())
    }

    fn fetch(&self, then: OnFetched) {
        // The client lives until the bytes have arrived.
        let client = self.client.clone();
        self.slot.then(Box::new(move |delivered| {
            let copied = delivered
                .map_err(|failure| failure.error())
                .and_then(|x| copy(&x));
            then(copied.map_err(|error| client.on(error)));
        }));
    }

    fn fetch_into(&self, memory: AlignedBytes, then: OnFilled) {
        let client = self.client.clone();
        self.slot.then(Box::new(move |delivered| {
            let copied = delivered
                .map_err(|failure| failure.error())
                .and_then(|x| copy_into(&x, memory));
            then(copied.map_err(|error| client.on(error)));
        }));
    }
}

fn copy_into(x: &Tensor, mut memory: AlignedBytes) -> Result<AlignedBytes> {
    memory.as_mut().copy_from_slice(&x.bytes);
    Ok(memory)
}

fn copy(x: &Tensor) -> Result<Vec<u8>> {
    let mut bytes = allocate(x.bytes.len())?;
    bytes.extend_from_slice(&x.bytes);
    Ok(bytes)
}

/// Completion event of an upload, a copy or a launch.
pub struct EmbeddedEvent {
    client: Arc<Client>,
    slot: Arc<Slot>,
}

impl Event for EmbeddedEvent {
    fn is_ready(&self) -> bool {
        self.slot.is_delivered()
    }

    fn wait(&self) -> Result<()> {
        self.slot
            .wait()
            .map(drop)
            .map_err(|error| self.client.on(error))
    }

    /// Runs `then` on the client's thread for callbacks, so that it may launch and wait.
    fn on_ready(&self, then: OnReady) {
        let client = self.client.clone();
        self.notify_when_ready(Box::new(move |result| {
            let callbacks = client.clone();
            callbacks.call_back(Box::new(move || {
                then(result);
                drop(client);
            }));
        }));
    }

    fn notify_when_ready(&self, notify: OnReady) {
        let client = self.client.clone();
        self.slot.then(Box::new(move |delivered| {
            notify(
                delivered
                    .map(drop)
                    .map_err(|failure| client.on(failure.error())),
            );
        }));
    }
}

impl fmt::Debug for EmbeddedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EmbeddedEvent({:?})", self.slot)
    }
}
