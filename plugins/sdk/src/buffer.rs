//! Buffers: contents, deletion, and what callers ask of them.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use halite_core::{DeviceBuffers, Placement, TensorType};
use halite_pjrt_sys::buffer::*;

use crate::{
    abi::{Function, Given, getters},
    client::Client,
    dtype::{buffer_type, dims_of},
    event::Event,
    handle::{find, objects, publish, take},
    promise::Completion,
    status::{Outcome, Status, drop_logged, guard},
};

/// A buffer that a caller holds. Fields drop in their order: the contents before the client.
pub(crate) struct Buffer {
    content: Mutex<Content>,
    pub(crate) ty: TensorType,
    pub(crate) place: Placement,
    /// Made when a caller first asks for them.
    lists: OnceLock<Box<Lists>>,
    pub(crate) client: Arc<Client>,
}

objects!(Buffer => PJRT_Buffer);

/// The contents of a buffer.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// On the device, or being computed there.
    Here(Arc<DeviceBuffers>),
    /// Not transferred yet. When the transfer ends, they are here, or it has failed.
    Later(Completion),
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
            content: Mutex::new(content),
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
        buffer: DeviceBuffers,
        ty: &TensorType,
        place: Placement,
    ) -> Outcome<Arc<Self>> {
        if buffer.first().tensor_type() != ty || buffer.first().placement() != place {
            return Err(Status::internal(format!(
                "`{method}` returned {} in {:?}, expected {ty} in {place:?}",
                buffer.first().tensor_type(),
                buffer.first().placement()
            )));
        }
        let content = Content::Here(Arc::new(buffer));
        Ok(Self::new(client, ty.clone(), place, content))
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The contents now.
    pub(crate) fn content(&self) -> Content {
        let content = self.lock().clone();
        match &content {
            Content::Later(transfer) => match transfer.outcome() {
                Some(Err(status)) => Content::Failed(status),
                _ => content,
            },
            _ => content,
        }
    }

    /// Replaces contents that are awaited, unless the buffer was deleted meanwhile.
    pub(crate) fn arrive(&self, arrived: Arc<DeviceBuffers>) {
        let mut content = self.lock();
        if matches!(*content, Content::Later(_)) {
            *content = Content::Here(arrived);
        }
    }

    /// Returns whether it is deleted or donated.
    pub(crate) fn is_deleted(&self) -> bool {
        matches!(*self.lock(), Content::Deleted)
    }

    /// Deletes the contents. Their memory is free when launches and reads no longer need it.
    fn delete(&self) {
        let content = std::mem::replace(&mut *self.lock(), Content::Deleted);
        drop_logged(content);
    }

    /// Deletes all of these buffers, or none of them.
    ///
    /// # Errors
    /// If one is deleted already, or occurs twice.
    pub(crate) fn delete_all(mut buffers: Vec<&Buffer>) -> Outcome {
        // Threads that lock in one order never wait for each other.
        buffers.sort_unstable_by_key(|buffer| std::ptr::from_ref(*buffer));
        if let Some(pair) = buffers
            .windows(2)
            .find(|pair| std::ptr::eq(pair[0], pair[1]))
        {
            return Err(deleted(pair[0]));
        }
        let mut contents: Vec<_> = buffers.iter().map(|buffer| buffer.lock()).collect();
        for (buffer, content) in buffers.iter().zip(&contents) {
            if matches!(**content, Content::Deleted) {
                return Err(deleted(buffer));
            }
        }
        let replace =
            |content: &mut MutexGuard<'_, _>| std::mem::replace(&mut **content, Content::Deleted);
        let old: Vec<_> = contents.iter_mut().map(replace).collect();
        // Destructors of the backend run without locks.
        drop(contents);
        old.into_iter().for_each(drop_logged);
        Ok(())
    }

    /// The backend's buffer.
    ///
    /// # Errors
    /// If the buffer is deleted, or its contents failed. FAILED_PRECONDITION if they are not
    /// transferred yet: to wait for them would block a thread that may be the one to send them.
    pub(crate) fn here(&self) -> Outcome<Arc<DeviceBuffers>> {
        match self.content() {
            Content::Here(buffer) => Ok(buffer),
            Content::Failed(status) => Err(status),
            Content::Deleted => Err(deleted(self)),
            Content::Later(_) => Err(Status::new(
                halite_pjrt_sys::error::PJRT_Error_Code::FAILED_PRECONDITION,
                format!(
                    "the {} buffer is not transferred yet; send its last piece or fulfill it, or \
                     wait for its ready event",
                    self.ty
                ),
            )),
        }
    }

    /// The completion event of the contents.
    pub(crate) fn ready(&self) -> Event {
        match self.content() {
            Content::Here(buffer) => guard(|| Ok(Event::of_backend(buffer.first().ready())))
                .unwrap_or_else(|status| Event::Done(Err(status))),
            Content::Later(transfer) => Event::Pending(transfer),
            Content::Failed(status) => Event::Done(Err(status)),
            Content::Deleted => Event::Done(Err(deleted(self))),
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
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        if let Some(buffer) = take::<Buffer>(args.buffer)? {
            // A transfer manager may hold the buffer as well.
            buffer.delete();
            drop_logged(buffer);
        }
        Ok(())
    }
}

impl Function for PJRT_Buffer_Delete_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        find::<Buffer>(args.buffer)?.delete();
        Ok(())
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
    PJRT_Buffer_ReadyEvent_Args(buffer: Buffer) => |out| out.event = buffer.ready().into_handle();
}

impl Function for PJRT_Buffer_CopyToDevice_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let buffer = find::<Buffer>(args.buffer)?;
        let device = buffer.client.own_device(args.dst_device)?;
        out.dst_buffer = publish(copy(&buffer, device.id.into())?);
        Ok(())
    }
}

impl Function for PJRT_Buffer_CopyToMemory_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let buffer = find::<Buffer>(args.buffer)?;
        let place = buffer.client.own_memory(args.dst_memory)?.place;
        out.dst_buffer = publish(copy(&buffer, place)?);
        Ok(())
    }
}

fn copy(buffer: &Buffer, place: Placement) -> Outcome<Arc<Buffer>> {
    if let Content::Failed(status) = buffer.content() {
        let (client, ty) = (&buffer.client, buffer.ty.clone());
        return Ok(Buffer::new(client, ty, place, Content::Failed(status)));
    }
    let copy = buffer.here()?.first().copy_to(place)?;
    Buffer::of_backend(&buffer.client, "Buffer::copy_to", copy, &buffer.ty, place)
}
