//! Chunked uploads: managers that receive the bytes of several buffers in pieces.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use halite_core::{AlignedBytes, HostBytes, Placement};
use halite_pjrt_sys::transfer::*;

use crate::{
    abi::{Function, Given, getters, layouts, shape_specs, text, transfer_bytes},
    buffer::{Buffer, Content},
    client::Client,
    dtype::tensor_type,
    event::Event,
    handle::{find, objects, publish, take},
    promise::Promise,
    status::{Outcome, Status, drop_logged, guard},
    transfer::{byte_range, check_layout, upload},
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
    /// `None` once the last piece has arrived.
    transfer: Mutex<Option<Transfer>>,
}

/// A transfer that has not ended. Dropping it fails the buffer.
struct Transfer {
    /// The bytes so far.
    bytes: AlignedBytes,
    arrived: Promise,
}

impl Pending {
    fn lock(&self) -> MutexGuard<'_, Option<Transfer>> {
        self.transfer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes the buffer with its bytes.
    fn upload(&self, Transfer { bytes, arrived }: Transfer, place: Placement) -> Outcome {
        let Buffer { client, ty, .. } = &*self.buffer;
        let uploaded = guard(|| {
            let bytes = HostBytes::Shared(Arc::new(bytes));
            let uploaded = upload(client, bytes, ty, place)?;
            Ok((uploaded.here()?, uploaded.ready()))
        });
        match uploaded {
            Ok((contents, ready)) => {
                self.buffer.arrive(contents);
                ready.on_ready(|outcome| arrived.set(outcome));
                Ok(())
            }
            Err(status) => {
                arrived.set(Err(status.clone()));
                Err(status)
            }
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        for pending in &self.buffers {
            if let Some(transfer) = pending.lock().take() {
                transfer.arrived.set(Err(Status::new(
                    halite_pjrt_sys::error::PJRT_Error_Code::CANCELLED,
                    "the transfer manager was destroyed before the last piece",
                )));
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
            let (arrived, transferred) = Promise::new("the transfer was dropped");
            buffers.push(Pending {
                buffer: Buffer::new(&client, ty, place, Content::Later(transferred)),
                transfer: Mutex::new(Some(Transfer { bytes, arrived })),
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
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        drop_logged(take::<Manager>(args.transfer_manager)?);
        Ok(())
    }
}

impl Function for PJRT_AsyncHostToDeviceTransferManager_TransferData_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let manager = find::<Manager>(args.transfer_manager)?;
        let pending = manager.pending(args.buffer_index)?;
        let complete = {
            let mut transfer = pending.lock();
            let into = &mut transfer.as_mut().ok_or_else(ended)?.bytes;
            let size = into.as_ref().len();
            // Before the caller's bytes: a size that is refused may be larger than what `data` has.
            let range = byte_range(args.offset, args.transfer_size, size)?;
            into.as_mut()[range].copy_from_slice(transfer_bytes(args)?);
            if args.is_last_transfer {
                transfer.take()
            } else {
                None
            }
        };
        if let Some(transfer) = complete {
            pending.upload(transfer, manager.place)?;
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
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let manager = find::<Manager>(args.transfer_manager)?;
        let pending = manager.pending(args.buffer_index)?;
        let message = text!(args, error_message, error_message_size)?;
        let Err(status) = Status::of_code(args.error_code, message) else {
            return Err(Status::invalid("`error_code` is OK"));
        };
        let transfer = pending.lock().take().ok_or_else(ended)?;
        transfer.arrived.set(Err(status));
        Ok(())
    }
}

fn ended() -> Status {
    Status::invalid("the last piece of this buffer has arrived, or it was failed")
}

impl Function for PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        find::<Manager>(args.transfer_manager)?;
        // Metadata is used only by profilers, which the SDK does not support.
        Ok(())
    }
}
