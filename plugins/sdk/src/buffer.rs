//! Buffers: contents, deletion, external references, and what callers ask of them.

mod placeholder;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use halite_core::{DeviceBuffer, Placement, TensorType};
use halite_pjrt_sys::buffer::*;

use crate::{
    abi::{Function, Given, getters},
    client::Client,
    device::Memory,
    dtype::{buffer_type, dims_of},
    event::{Event, Promise},
    handle::{find, objects, publish, take},
    status::{Outcome, Status, drop_guarded},
};

/// A buffer that a caller holds. Fields drop in their order: the contents before the client.
pub(crate) struct Buffer {
    state: Mutex<State>,
    pub(crate) ty: TensorType,
    pub(crate) place: Placement,
    /// Made when a caller first asks for them.
    lists: OnceLock<Box<Lists>>,
    pub(crate) client: Arc<Client>,
}

objects!(Buffer => PJRT_Buffer);

struct State {
    content: Content,
    /// One for each external reference. The memory stays while one is left, whatever becomes of
    /// the buffer.
    external: Vec<Arc<DeviceBuffer>>,
}

/// The contents of a buffer.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// On the device, or being computed there.
    Here(Arc<DeviceBuffer>),
    /// Not transferred yet. When the promise is fulfilled, they are here or have failed.
    Later(Promise),
    /// Failed to be computed or transferred.
    Failed(Status),
    /// Deleted or donated.
    Deleted,
}

/// Lists that callers get.
struct Lists {
    dims: Box<[i64]>,
    minor_to_major: Box<[i64]>,
}

impl Buffer {
    pub(crate) fn new(
        client: &Arc<Client>,
        ty: TensorType,
        place: Placement,
        content: Content,
    ) -> Arc<Self> {
        Arc::new(Buffer {
            state: Mutex::new(State {
                content,
                external: Vec::new(),
            }),
            ty,
            place,
            lists: OnceLock::new(),
            client: client.clone(),
        })
    }

    /// The buffer of a backend, after a check of its type and place.
    pub(crate) fn of_backend(
        client: &Arc<Client>,
        method: &str,
        buffer: DeviceBuffer,
        ty: &TensorType,
        place: Placement,
    ) -> Outcome<Arc<Self>> {
        if buffer.tensor_type() != ty || buffer.placement() != place {
            return Err(Status::internal(format!(
                "`{method}` returned {} in {:?}, expected {ty} in {place:?}",
                buffer.tensor_type(),
                buffer.placement()
            )));
        }
        let content = Content::Here(Arc::new(buffer));
        Ok(Self::new(client, ty.clone(), place, content))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The contents now.
    pub(crate) fn content(&self) -> Content {
        self.lock().content.clone()
    }

    /// Replaces the contents and returns the old ones.
    pub(crate) fn replace(&self, content: Content) -> Content {
        std::mem::replace(&mut self.lock().content, content)
    }

    /// Replaces contents that are awaited, unless the buffer was deleted meanwhile.
    pub(crate) fn arrive(&self, content: Content) {
        let mut state = self.lock();
        if matches!(state.content, Content::Later(_)) {
            state.content = content;
        }
    }

    /// Returns whether it is deleted or donated.
    pub(crate) fn is_deleted(&self) -> bool {
        matches!(self.lock().content, Content::Deleted)
    }

    /// The backend's buffer. Waits for a transfer that has not ended.
    ///
    /// # Errors
    /// If the buffer is deleted, or its contents failed.
    pub(crate) fn wait_for_content(&self) -> Outcome<Arc<DeviceBuffer>> {
        loop {
            match self.content() {
                Content::Here(buffer) => return Ok(buffer),
                Content::Failed(status) => return Err(status),
                Content::Deleted => return Err(deleted(self)),
                Content::Later(promise) => promise.wait()?,
            }
        }
    }

    /// The completion event of the contents.
    pub(crate) fn ready(&self) -> Outcome<Event> {
        match self.content() {
            Content::Here(buffer) => Ok(Event::of_backend(buffer.ready())),
            Content::Later(promise) => Ok(Event::Promise(promise)),
            Content::Failed(status) => Ok(Event::Done(Err(status))),
            Content::Deleted => Err(deleted(self)),
        }
    }

    fn lists(&self) -> &Lists {
        self.lists.get_or_init(|| {
            Box::new(Lists {
                dims: dims_of(&self.ty),
                minor_to_major: (0..self.ty.rank() as i64).rev().collect(),
            })
        })
    }
}

#[cold]
pub(crate) fn deleted(buffer: &Buffer) -> Status {
    Status::invalid(format!("the {} buffer was deleted or donated", buffer.ty))
}

impl Function for PJRT_Buffer_Destroy_Args {
    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        drop_guarded(take::<Buffer>(args.buffer)?)
    }
}

impl Function for PJRT_Buffer_Delete_Args {
    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let content = find::<Buffer>(args.buffer)?.replace(Content::Deleted);
        drop_guarded(content)
    }
}

getters! {
    PJRT_Buffer_IsDeleted_Args(buffer: Buffer) => |out| out.is_deleted = buffer.is_deleted();
    PJRT_Buffer_ElementType_Args(buffer: Buffer) =>
        |out| out.r#type = buffer_type(buffer.ty.dtype());
    PJRT_Buffer_Dimensions_Args(buffer: Buffer) => |out| {
        let dims = &buffer.lists().dims;
        (out.dims, out.num_dims) = (dims.as_ptr(), dims.len());
    };
    PJRT_Buffer_UnpaddedDimensions_Args(buffer: Buffer) => |out| {
        let dims = &buffer.lists().dims;
        (out.unpadded_dims, out.num_dims) = (dims.as_ptr(), dims.len());
    };
    PJRT_Buffer_DynamicDimensionIndices_Args(buffer: Buffer) => |out| {
        _ = buffer;
        (out.dynamic_dim_indices, out.num_dynamic_dims) = (std::ptr::null(), 0);
    };
    PJRT_Buffer_GetMemoryLayout_Args(buffer: Buffer) => |out| {
        let order = &buffer.lists().minor_to_major;
        let tiled = PJRT_Buffer_MemoryLayout_Tiled {
            minor_to_major: order.as_ptr(),
            minor_to_major_size: order.len(),
            ..PJRT_Buffer_MemoryLayout_Tiled::new()
        };
        out.layout = PJRT_Buffer_MemoryLayout {
            r#type: PJRT_Buffer_MemoryLayout_Type::Tiled,
            value: PJRT_Buffer_MemoryLayout_Value { tiled },
            ..PJRT_Buffer_MemoryLayout::new()
        };
    };
    PJRT_Buffer_OnDeviceSizeInBytes_Args(buffer: Buffer) =>
        |out| out.on_device_size_in_bytes = buffer.ty.checked_bytes()?;
    PJRT_Buffer_Device_Args(buffer: Buffer) => |out| {
        let device = buffer.client.device(buffer.place.device);
        out.device = device.map(|device| device.handle()).ok_or_else(gone)?;
    };
    PJRT_Buffer_Memory_Args(buffer: Buffer) => |out| {
        let memory = buffer.client.memory(buffer.place);
        out.memory = memory.map(|memory| memory.handle()).ok_or_else(gone)?;
    };
}

fn gone() -> Status {
    Status::internal("the buffer is in no memory of its client")
}

getters! {
    PJRT_Buffer_IsOnCpu_Args(buffer: Buffer) => |out| {
        _ = buffer;
        // Callers would then read the memory by its address, which the contract does not have.
        out.is_on_cpu = false;
    };
    PJRT_Buffer_ReadyEvent_Args(buffer: Buffer) => |out| out.event = buffer.ready()?.into_handle();
}

impl Function for PJRT_Buffer_IncreaseExternalReferenceCount_Args {
    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let buffer = find::<Buffer>(args.buffer)?;
        let content = buffer.wait_for_content()?;
        buffer.lock().external.push(content);
        Ok(())
    }
}

impl Function for PJRT_Buffer_DecreaseExternalReferenceCount_Args {
    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let reference = find::<Buffer>(args.buffer)?.lock().external.pop();
        match reference {
            Some(reference) => drop_guarded(reference),
            None => Err(Status::invalid("the buffer has no external reference")),
        }
    }
}

impl Function for PJRT_Buffer_CopyToDevice_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let buffer = find::<Buffer>(args.buffer)?;
        let place = buffer
            .client
            .placement(args.dst_device, std::ptr::null_mut())?;
        out.dst_buffer = publish(copy(&buffer, place)?);
        Ok(())
    }
}

impl Function for PJRT_Buffer_CopyToMemory_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let buffer = find::<Buffer>(args.buffer)?;
        let place = find::<Memory>(args.dst_memory)?.place;
        let place = buffer
            .client
            .placement(std::ptr::null_mut(), args.dst_memory)
            .map_err(|_| Status::unimplemented(format!("a copy to {place:?} of another client")))?;
        out.dst_buffer = publish(copy(&buffer, place)?);
        Ok(())
    }
}

fn copy(buffer: &Buffer, place: Placement) -> Outcome<Arc<Buffer>> {
    let content = match buffer.content() {
        Content::Failed(status) => {
            let failed = Content::Failed(status);
            return Ok(Buffer::new(
                &buffer.client,
                buffer.ty.clone(),
                place,
                failed,
            ));
        }
        _ => buffer.wait_for_content()?,
    };
    let copy = content.copy_to(place)?;
    Buffer::of_backend(&buffer.client, "Buffer::copy_to", copy, &buffer.ty, place)
}
