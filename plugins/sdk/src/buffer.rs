//! Buffers: contents, deletion, external references, and what callers ask of them.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use halite_core::{DeviceBuffer, Placement, TensorType};
use halite_pjrt_sys::buffer::*;

use crate::{
    abi::{Function, Given, list, text},
    client::Client,
    device::Memory,
    dtype::{buffer_type, dims_of, tensor_type},
    event::{Event, Promise},
    handle::{find, objects, publish, take},
    status::{Outcome, Status, drop_guarded},
    transfer::check_layout,
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

impl Function for PJRT_Buffer_IsDeleted_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        out.is_deleted = find::<Buffer>(args.buffer)?.is_deleted();
        Ok(())
    }
}

impl Function for PJRT_Buffer_ElementType_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        out.r#type = buffer_type(find::<Buffer>(args.buffer)?.ty.dtype());
        Ok(())
    }
}

impl Function for PJRT_Buffer_Dimensions_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let buffer = find::<Buffer>(args.buffer)?;
        let dims = &buffer.lists().dims;
        (out.dims, out.num_dims) = (dims.as_ptr(), dims.len());
        Ok(())
    }
}

impl Function for PJRT_Buffer_UnpaddedDimensions_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let buffer = find::<Buffer>(args.buffer)?;
        let dims = &buffer.lists().dims;
        (out.unpadded_dims, out.num_dims) = (dims.as_ptr(), dims.len());
        Ok(())
    }
}

impl Function for PJRT_Buffer_DynamicDimensionIndices_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        find::<Buffer>(args.buffer)?;
        (out.dynamic_dim_indices, out.num_dynamic_dims) = (std::ptr::null(), 0);
        Ok(())
    }
}

impl Function for PJRT_Buffer_GetMemoryLayout_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let buffer = find::<Buffer>(args.buffer)?;
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
        Ok(())
    }
}

impl Function for PJRT_Buffer_OnDeviceSizeInBytes_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        out.on_device_size_in_bytes = find::<Buffer>(args.buffer)?.ty.checked_bytes()?;
        Ok(())
    }
}

impl Function for PJRT_Buffer_Device_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let buffer = find::<Buffer>(args.buffer)?;
        let device = buffer.client.device(buffer.place.device);
        out.device = device.map(|device| device.handle()).ok_or_else(gone)?;
        Ok(())
    }
}

impl Function for PJRT_Buffer_Memory_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let buffer = find::<Buffer>(args.buffer)?;
        let memory = buffer.client.memory(buffer.place);
        out.memory = memory.map(|memory| memory.handle()).ok_or_else(gone)?;
        Ok(())
    }
}

fn gone() -> Status {
    Status::internal("the buffer is in no memory of its client")
}

impl Function for PJRT_Buffer_IsOnCpu_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        find::<Buffer>(args.buffer)?;
        // Callers would then read the memory by its address, which the contract does not have.
        out.is_on_cpu = false;
        Ok(())
    }
}

impl Function for PJRT_Buffer_ReadyEvent_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        out.event = find::<Buffer>(args.buffer)?.ready()?.into_handle();
        Ok(())
    }
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

impl Function for PJRT_Client_CreateUninitializedBuffer_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let client = find::<Client>(args.client)?;
        let ty = tensor_type(
            args.shape_element_type,
            list!(args, shape_dims, shape_num_dims)?,
        )?;
        check_layout(args, args.shape_layout, &ty)?;
        let place = client.placement(args.device, args.memory)?;
        out.buffer = publish(crate::transfer::zeros(&client, &ty, place)?);
        Ok(())
    }
}

impl Function for PJRT_Client_CreateErrorBuffer_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let client = find::<Client>(args.client)?;
        let ty = tensor_type(
            args.shape_element_type,
            list!(args, shape_dims, shape_num_dims)?,
        )?;
        check_layout(args, args.shape_layout, &ty)?;
        let place = client.placement(std::ptr::null_mut(), args.memory)?;
        let message = text!(args, error_message, error_message_size)?;
        let Err(status) = Status::of_code(args.error_code, message) else {
            return Err(Status::invalid("`error_code` is OK"));
        };
        out.buffer = publish(Buffer::new(&client, ty, place, Content::Failed(status)));
        Ok(())
    }
}

/// The fulfilment of a placeholder.
pub(crate) struct Fulfillment {
    buffer: Arc<Buffer>,
    promise: Promise,
}

objects!(Fulfillment => PJRT_FulfillAliasBufferCallback);

impl Function for PJRT_Client_CreateAliasBuffer_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let client = find::<Client>(args.client)?;
        let ty = tensor_type(
            args.shape_element_type,
            list!(args, shape_dims, shape_num_dims)?,
        )?;
        check_layout(args, args.shape_layout, &ty)?;
        let place = client.placement(std::ptr::null_mut(), args.memory)?;
        let promise = Promise::default();
        let buffer = Buffer::new(&client, ty, place, Content::Later(promise.clone()));
        out.alias_buffer = publish(buffer.clone());
        out.fulfill_alias_buffer_cb = publish(Arc::new(Fulfillment { buffer, promise }));
        Ok(())
    }
}

impl Function for PJRT_Client_FulfillAliasBuffer_Args {
    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let message = text!(args, error_message, error_message_size)?;
        let status = Status::of_code(args.status_code, message);
        let content = match &status {
            Ok(()) => {
                let source = find::<Buffer>(args.buffer)?;
                let alias = find::<Fulfillment>(args.fulfill_alias_buffer_cb)?;
                if (&source.ty, source.place) != (&alias.buffer.ty, alias.buffer.place) {
                    return Err(Status::invalid(format!(
                        "a buffer of {} in {:?} cannot be {} in {:?}",
                        source.ty, source.place, alias.buffer.ty, alias.buffer.place
                    )));
                }
                source.content()
            }
            Err(status) => Content::Failed(status.clone()),
        };
        let alias = take::<Fulfillment>(args.fulfill_alias_buffer_cb)?
            .ok_or_else(|| Status::invalid("`fulfill_alias_buffer_cb` is null"))?;
        alias.buffer.arrive(content);
        alias.promise.set(status);
        Ok(())
    }
}
