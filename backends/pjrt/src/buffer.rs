//! Buffers: uploads, reads, copies, deletion.

mod fetch;
mod in_place;
mod row_major;
mod upload;

use std::{collections::HashSet, ffi::c_void, ptr::NonNull, sync::Arc};

use halite_core::{
    AlignedBytes, Buffer, DeviceId, Error, ErrorKind, Event, HostBytes, MemoryKind, OnFetched,
    OnFilled, Placement, Result, TensorType,
};
use halite_pjrt_sys::{buffer::*, event::PJRT_Event};

use self::row_major::RowMajor;
pub(crate) use self::upload::{failed, upload};
use crate::{PjrtEvent, handle::Handle, shared_client::Shared};

/// Bytes on a device of a plugin. Dropping frees them once queued work no longer needs them.
#[derive(Debug)]
pub struct PjrtBuffer {
    buffer: Handle<PJRT_Buffer>,
    kind: Arc<Kind>,
    device: DeviceId,
    deleted: bool,
}

/// Properties that buffers of one type in one memory of a client share. A launch over many devices
/// touches hundreds of buffers that are no longer in the CPU's caches, so small buffers are faster.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) client: Arc<Shared>,
    pub(crate) ty: TensorType,
    pub(crate) memory: MemoryKind,
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.client, &other.client)
            && self.memory == other.memory
            && self.ty == other.ty
    }
}

impl PjrtBuffer {
    /// Takes ownership of `buffer`, which has this type and place.
    pub(crate) fn new(
        client: &Arc<Shared>,
        buffer: Handle<PJRT_Buffer>,
        ty: TensorType,
        place: Placement,
    ) -> Self {
        let kind = Kind {
            client: client.clone(),
            ty,
            memory: place.memory,
        };
        PjrtBuffer::of(&Arc::new(kind), buffer, place.device)
    }

    /// Takes ownership of `buffer`, which is of this kind and on this device.
    #[inline]
    pub(crate) fn of(kind: &Arc<Kind>, buffer: Handle<PJRT_Buffer>, device: DeviceId) -> Self {
        PjrtBuffer {
            buffer,
            kind: kind.clone(),
            device,
            deleted: false,
        }
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut PJRT_Buffer {
        self.buffer.as_ptr()
    }

    #[inline]
    pub(crate) fn kind(&self) -> &Arc<Kind> {
        &self.kind
    }

    #[inline]
    pub(crate) fn device(&self) -> DeviceId {
        self.device
    }

    /// Frees the memory now and keeps the handle: any use afterwards is refused.
    ///
    /// # Errors
    /// Errors of the plugin; the handle counts as deleted nevertheless.
    pub fn delete(&mut self) -> Result<()> {
        self.deleted = true;
        let mut args = args!(PJRT_Buffer_Delete_Args, buffer: self.raw());
        // SAFETY: the buffer is alive; deleting twice is allowed.
        unsafe { self.kind.client.call("delete buffer", &mut args) }
    }

    /// Returns whether [`delete`](Self::delete) was called.
    #[inline]
    pub fn is_deleted(&self) -> bool {
        self.deleted
    }

    /// Returns whether the plugin reports the memory as freed.
    ///
    /// # Errors
    /// If the plugin does not report it.
    pub fn is_deleted_on_device(&self) -> Result<bool> {
        let mut args = args!(PJRT_Buffer_IsDeleted_Args, buffer: self.raw());
        // SAFETY: the buffer is alive, deleted or not.
        unsafe { self.kind.client.call("is deleted", &mut args)? };
        Ok(args.is_deleted)
    }

    /// The address of the memory, as a number: equal numbers are the same memory. It may be reused
    /// once the buffer is donated or dropped.
    ///
    /// # Errors
    /// If the plugin does not report it, or the buffer is deleted.
    pub fn device_address(&self) -> Result<usize> {
        self.check_alive("device address")?;
        let mut args = args!(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args, buffer: self.raw());
        // SAFETY: the buffer is alive; the address is not dereferenced.
        unsafe { self.kind.client.call("device address", &mut args)? };
        Ok(args.device_memory_ptr.addr())
    }

    /// Bytes that the buffer takes on its device, with padding.
    ///
    /// # Errors
    /// If the plugin does not report it.
    pub fn device_bytes(&self) -> Result<usize> {
        self.check_alive("device bytes")?;
        let mut args = args!(PJRT_Buffer_OnDeviceSizeInBytes_Args, buffer: self.raw());
        // SAFETY: the buffer is alive.
        unsafe { self.kind.client.call("device bytes", &mut args)? };
        Ok(args.on_device_size_in_bytes)
    }

    fn check_alive(&self, op: &'static str) -> Result<()> {
        if self.deleted {
            Err(self
                .kind
                .client
                .invalid(op, format!("the {} buffer was deleted", self.kind.ty)))
        } else {
            Ok(())
        }
    }

    /// The event of the work that computes the contents, whose errors name the operation `op`.
    fn computed(&self, op: &'static str) -> Result<PjrtEvent> {
        self.check_alive(op)?;
        let mut args = args!(PJRT_Buffer_ReadyEvent_Args, buffer: self.raw());
        // SAFETY: the buffer is alive.
        unsafe { self.kind.client.call(op, &mut args)? };
        event_of(&self.kind.client, op, args.event)
    }

    /// Queues a copy to host memory of exactly the type's size.
    ///
    /// # Safety
    ///
    /// * `into` stays valid for writes of the type's bytes until the event is ready.
    unsafe fn copy_to_host(&self, op: &'static str, into: *mut u8) -> Result<PjrtEvent, CopyError> {
        let order = RowMajor::of(self.kind.ty.rank());
        let mut layout = order.layout();
        let mut args = PJRT_Buffer_ToHostBuffer_Args {
            src: self.raw(),
            // Without it the bytes would come in the device's own order.
            host_layout: &mut layout,
            dst: into.cast::<c_void>(),
            dst_size: self.kind.ty.bytes(),
            ..PJRT_Buffer_ToHostBuffer_Args::new()
        };
        // SAFETY: the buffer is alive, the layout lives during the call, and `into` is the caller's
        // condition.
        unsafe { self.kind.client.call(op, &mut args) }.map_err(CopyError::Refused)?;
        event_of(&self.kind.client, op, args.event).map_err(CopyError::NoEvent)
    }
}

/// Failure to start a copy to the host.
enum CopyError {
    /// The plugin does not copy.
    Refused(Error),
    /// The plugin copies, and returns no event for the end.
    NoEvent(Error),
}

impl Buffer for PjrtBuffer {
    type Event = PjrtEvent;

    fn tensor_type(&self) -> &TensorType {
        &self.kind.ty
    }

    fn placement(&self) -> Placement {
        Placement {
            device: self.device,
            memory: self.kind.memory,
        }
    }

    fn ready(&self) -> Result<PjrtEvent> {
        self.computed("compute")
    }

    fn copy_to(&self, place: Placement) -> Result<Self> {
        const OP: &str = "copy";
        self.check_alive(OP)?;
        let (device, memory) = self.kind.client.memory(OP, place)?;
        let by_memory = !memory.is_null()
            && self
                .kind
                .client
                .table()
                .has::<PJRT_Buffer_CopyToMemory_Args>();
        let mut to_memory = PJRT_Buffer_CopyToMemory_Args {
            buffer: self.raw(),
            dst_memory: memory,
            ..PJRT_Buffer_CopyToMemory_Args::new()
        };
        let mut to_device = PJRT_Buffer_CopyToDevice_Args {
            buffer: self.raw(),
            dst_device: device.raw(),
            ..PJRT_Buffer_CopyToDevice_Args::new()
        };
        // SAFETY: the buffer and the place are alive. Plugins without this function have no
        // memories to choose from.
        let copied = unsafe {
            if by_memory || place.memory != MemoryKind::Device {
                self.kind
                    .client
                    .call(OP, &mut to_memory)
                    .map(|()| to_memory.dst_buffer)
            } else {
                self.kind
                    .client
                    .call(OP, &mut to_device)
                    .map(|()| to_device.dst_buffer)
            }
        };
        match copied {
            Ok(copy) => Ok(PjrtBuffer::new(
                &self.kind.client,
                Handle::from_plugin(OP, copy)?,
                self.kind.ty.clone(),
                place,
            )),
            // Plugins may refuse to copy a buffer to where it is.
            Err(error)
                if place == self.placement() && error.kind() == ErrorKind::InvalidArgument =>
            {
                self.copy_through_host(place)
            }
            Err(error) => Err(error),
        }
    }

    fn read(&self, into: &mut [u8]) -> Result<()> {
        const OP: &str = "read";
        self.check_alive(OP)?;
        let needed = self.kind.ty.bytes();
        if into.len() != needed {
            return Err(self.kind.client.invalid(
                OP,
                format!(
                    "{} bytes to read into, {} needs {needed}",
                    into.len(),
                    self.kind.ty
                ),
            ));
        }
        if needed == 0 {
            return self.ready()?.wait();
        }
        if self.kind.client.quirks().shares_host_memory {
            self.computed(OP)?.wait()?;
            if self.copy_in_place(into) {
                return Ok(());
            }
        }
        // Not straight into `into`: when the wait ends at its deadline, the plugin may still write.
        let mut bytes: Vec<u8> = Vec::new();
        bytes.try_reserve_exact(needed).map_err(|error| {
            let message = format!(
                "the host has no memory for the {needed} bytes of {}",
                self.kind.ty
            );
            Error::new(ErrorKind::OutOfMemory, OP, message)
                .on(self.kind.client.platform_name())
                .of_host()
                .caused_by(error)
        })?;
        // SAFETY: the memory is kept until the event is ready or the copy is refused, or forever.
        match unsafe { self.copy_to_host(OP, bytes.as_mut_ptr()) } {
            Ok(copied) => {
                if let Err(error) = copied.wait() {
                    if !copied.is_done() {
                        std::mem::forget(bytes);
                    }
                    return Err(error);
                }
            }
            Err(CopyError::Refused(error)) => return Err(error),
            Err(CopyError::NoEvent(error)) => {
                std::mem::forget(bytes);
                return Err(error);
            }
        }
        // SAFETY: the copy succeeded, so every byte is written.
        unsafe { bytes.set_len(needed) };
        into.copy_from_slice(&bytes);
        Ok(())
    }

    fn fetch(&self, then: OnFetched) {
        self.queue_fetch(then);
    }

    fn fetch_into(&self, memory: AlignedBytes, then: OnFilled) {
        self.queue_fetch_into(memory, then);
    }
}

impl PjrtBuffer {
    fn copy_through_host(&self, place: Placement) -> Result<Self> {
        let mut bytes = vec![0; self.kind.ty.bytes()];
        self.read(&mut bytes)?;
        upload(
            &self.kind.client,
            HostBytes::Borrowed(&bytes),
            &self.kind.ty,
            place,
        )
    }
}

impl Drop for PjrtBuffer {
    #[inline]
    fn drop(&mut self) {
        let mut args = args!(PJRT_Buffer_Destroy_Args, buffer: self.raw());
        // SAFETY: the buffer is ours and not used again; a donated one must be destroyed as well.
        unsafe { self.kind.client.table().free(&mut args) };
    }
}

/// Returns whether a plugin returned one buffer as several results, or an argument as a result.
/// Each is owned, and would be freed twice.
pub(crate) fn is_shared(results: &[*mut PJRT_Buffer], args: &[*mut PJRT_Buffer]) -> bool {
    let mut seen: HashSet<_> = args.iter().collect();
    results
        .iter()
        .any(|result| !result.is_null() && !seen.insert(result))
}

fn event_of(client: &Arc<Shared>, op: &'static str, event: *mut PJRT_Event) -> Result<PjrtEvent> {
    let none = || {
        let message = format!(
            "{} returned no event; use another build of it",
            client.table().name()
        );
        Error::new(ErrorKind::Internal, op, message).on(client.platform_name())
    };
    NonNull::new(event)
        .map(|event| PjrtEvent::new(client, op, event))
        .ok_or_else(none)
}
