//! Chunked uploads: managers that receive the bytes of several buffers in pieces.

use std::sync::{Arc, Mutex, PoisonError};

use halite_core::{AlignedBytes, HostBytes, Placement};
use halite_pjrt_sys::transfer::*;

use crate::{
    abi::{Function, Given, getters, layouts, shape_specs, text, transfer_bytes},
    buffer::{Buffer, Content},
    client::Client,
    dtype::tensor_type,
    event::{Event, Promise},
    handle::{find, objects, publish, take},
    status::{Outcome, Status, drop_guarded},
    transfer::{byte_range, check_layout},
};

/// A set of buffers that is filled in pieces.
pub(crate) struct Manager {
    client: Arc<Client>,
    place: Placement,
    buffers: Vec<Pending>,
}

objects!(Manager => PJRT_AsyncHostToDeviceTransferManager);

/// A buffer whose bytes arrive in pieces.
struct Pending {
    buffer: Arc<Buffer>,
    arrived: Promise,
    /// The bytes so far; `None` once the transfer has ended.
    bytes: Mutex<Option<AlignedBytes>>,
}

impl Pending {
    /// Ends the transfer, and returns the bytes if it had not ended.
    fn end(&self) -> Option<AlignedBytes> {
        self.bytes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Completes the buffer with its bytes.
    fn upload(&self, bytes: AlignedBytes, place: Placement) -> Outcome {
        let (client, ty) = (&self.buffer.client, &self.buffer.ty);
        let uploaded = client
            .core
            .upload(HostBytes::Shared(Arc::new(bytes)), ty, place);
        let uploaded = uploaded.map_err(Status::from).and_then(|buffer| {
            let event = Event::of_backend(buffer.ready());
            Ok((
                Buffer::of_backend(client, "Backend::upload", buffer, ty, place)?,
                event,
            ))
        });
        match uploaded {
            Ok((buffer, event)) => {
                self.buffer.arrive(buffer.content());
                let arrived = self.arrived.clone();
                event.on_ready(move |outcome| _ = arrived.set(outcome));
                Ok(())
            }
            Err(status) => {
                self.fail(status.clone());
                Err(status)
            }
        }
    }

    /// Completes the buffer with an error.
    fn fail(&self, status: Status) {
        self.buffer.arrive(Content::Failed(status.clone()));
        self.arrived.set(Err(status));
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        for pending in &self.buffers {
            if pending.end().is_some() {
                pending.fail(Status::new(
                    halite_pjrt_sys::error::PJRT_Error_Code::CANCELLED,
                    "the transfer manager was destroyed before the last piece",
                ));
            }
        }
    }
}

impl Manager {
    fn pending(&self, index: i32) -> Outcome<&Pending> {
        let found = usize::try_from(index)
            .ok()
            .and_then(|index| self.buffers.get(index));
        found.ok_or_else(|| {
            Status::invalid(format!(
                "`buffer_index` is {index}; the manager has {} buffers",
                self.buffers.len()
            ))
        })
    }
}

impl Function for PJRT_Client_CreateBuffersForAsyncHostToDevice_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let client = find::<Client>(args.client)?;
        let place = client.placement(std::ptr::null_mut(), args.memory)?;
        let layouts = layouts(args)?;
        let mut buffers = Vec::new();
        for (index, (element_type, dims)) in shape_specs(args)?.into_iter().enumerate() {
            let ty = tensor_type(element_type, dims)?;
            if let Some(&layout) = layouts.get(index) {
                check_layout(args, layout, &ty)?;
            }
            let bytes = AlignedBytes::try_zeroed(ty.checked_bytes()?)?;
            let arrived = Promise::default();
            buffers.push(Pending {
                buffer: Buffer::new(&client, ty, place, Content::Later(arrived.clone())),
                arrived,
                bytes: Mutex::new(Some(bytes)),
            });
        }
        out.transfer_manager = publish(Arc::new(Manager {
            client,
            place,
            buffers,
        }));
        Ok(())
    }
}

impl Function for PJRT_AsyncHostToDeviceTransferManager_Destroy_Args {
    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        drop_guarded(take::<Manager>(args.transfer_manager)?)
    }
}

impl Function for PJRT_AsyncHostToDeviceTransferManager_TransferData_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let manager = find::<Manager>(args.transfer_manager)?;
        let pending = manager.pending(args.buffer_index)?;
        let piece = transfer_bytes(args)?;
        let complete = {
            let mut bytes = pending.bytes.lock().unwrap_or_else(PoisonError::into_inner);
            let into = bytes
                .as_mut()
                .ok_or_else(|| Status::invalid("the last piece of this buffer has arrived"))?;
            let size = into.as_ref().len();
            let range = byte_range(args.offset, args.transfer_size, size)?;
            into.as_mut()[range].copy_from_slice(piece);
            if args.is_last_transfer {
                bytes.take()
            } else {
                None
            }
        };
        if let Some(bytes) = complete {
            pending.upload(bytes, manager.place)?;
        }
        out.done_with_h2d_transfer = Event::Done(Ok(())).into_handle();
        Ok(())
    }
}

impl Function for PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let manager = find::<Manager>(args.transfer_manager)?;
        out.buffer_out = publish(manager.pending(args.buffer_index)?.buffer.clone());
        Ok(())
    }
}

getters! {
    PJRT_AsyncHostToDeviceTransferManager_Device_Args(transfer_manager: Manager) => |out| {
        let device = transfer_manager.client.device(transfer_manager.place.device);
        let device = device.ok_or_else(|| Status::internal("the device is not of the client"))?;
        out.device_out = device.handle();
    };
    PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args(transfer_manager: Manager) =>
        |out| out.buffer_count = transfer_manager.buffers.len();
}

impl Function for PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let manager = find::<Manager>(args.transfer_manager)?;
        out.buffer_size = manager
            .pending(args.buffer_index)?
            .buffer
            .ty
            .checked_bytes()?;
        Ok(())
    }
}

impl Function for PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args {
    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let manager = find::<Manager>(args.transfer_manager)?;
        let pending = manager.pending(args.buffer_index)?;
        let message = text!(args, error_message, error_message_size)?;
        let Err(status) = Status::of_code(args.error_code, message) else {
            return Err(Status::invalid("`error_code` is OK"));
        };
        if pending.end().is_none() {
            return Err(Status::invalid("the last piece of this buffer has arrived"));
        }
        pending.fail(status);
        Ok(())
    }
}

impl Function for PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args {
    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        find::<Manager>(args.transfer_manager)?;
        // Metadata is for profiles of the transfer, of which there are none.
        Ok(())
    }
}
