//! Uploads, and buffers that hold an error.

use std::{
    ptr::NonNull,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use halite_core::{ErrorKind, HostBytes, MemoryKind, Placement, Result, TensorType};
use halite_pjrt_sys::{buffer::*, error::PJRT_Error_Code};

use super::{PjrtBuffer, row_major::RowMajor};
use crate::{PjrtEvent, element_types::buffer_type, handle::Handle, shared_client::Shared};

/// Alignment in bytes of host memory that XLA's CPU plugin can use in place.
const ZERO_COPY_ALIGNMENT: usize = 64;

/// Queues a copy of host bytes to a place, or uses them in place where that is possible.
pub(crate) fn upload(
    client: &Arc<Shared>,
    bytes: HostBytes<'_>,
    ty: &TensorType,
    to: Placement,
) -> Result<PjrtBuffer> {
    let semantics = semantics_of(client, &bytes, to);
    // SAFETY: borrowed bytes are only read during the call; shared ones are kept below until the
    // plugin is done with them.
    let (buffer, done) = unsafe { start_copy(client, bytes.as_ref(), ty, to, semantics)? };
    let HostBytes::Shared(owner) = bytes else {
        return Ok(buffer);
    };
    match done {
        // After it the plugin does not read the bytes, whatever the result.
        Some(done) => {
            if let Err((_, keep)) = done.when_done(Box::new(move |_| drop(owner))) {
                // A plugin that takes no callback never reports when it is done.
                std::mem::forget(keep);
            }
            Ok(buffer)
        }
        // The bytes were copied during the call.
        None if semantics == PJRT_HostBufferSemantics::kImmutableOnlyDuringCall => Ok(buffer),
        None => {
            // The plugin keeps the bytes for an unknown time. They are never freed, and later
            // uploads require a copy during the call.
            std::mem::forget(owner.clone());
            client.copies_uploads.store(true, Relaxed);
            upload(client, HostBytes::Shared(owner), ty, to)
        }
    }
}

/// The time for which the plugin may use the bytes of an upload.
fn semantics_of(client: &Shared, bytes: &HostBytes<'_>, to: Placement) -> PJRT_HostBufferSemantics {
    let shared = matches!(bytes, HostBytes::Shared(_));
    if !shared || client.copies_uploads.load(Relaxed) {
        return PJRT_HostBufferSemantics::kImmutableOnlyDuringCall;
    }
    let start = bytes.as_ref().as_ptr().addr();
    let in_host_memory = to.memory == MemoryKind::Device && client.quirks().shares_host_memory;
    if in_host_memory && start.is_multiple_of(ZERO_COPY_ALIGNMENT) {
        PJRT_HostBufferSemantics::kImmutableZeroCopy
    } else {
        PJRT_HostBufferSemantics::kImmutableUntilTransferCompletes
    }
}

/// Calls the plugin for an upload. Returns the event of the end of its use of `data`, if it has
/// one.
///
/// # Safety
///
/// * `data` stays valid and unchanged for as long as `semantics` allows the plugin to use it.
unsafe fn start_copy(
    client: &Arc<Shared>,
    data: &[u8],
    ty: &TensorType,
    to: Placement,
    semantics: PJRT_HostBufferSemantics,
) -> Result<(PjrtBuffer, Option<PjrtEvent>)> {
    const OP: &str = "upload";
    let needed = ty
        .checked_bytes()
        .map_err(|error| error.on(client.platform_name()))?;
    if data.len() != needed {
        return Err(client.invalid(
            OP,
            format!("{} bytes given, {ty} needs {needed}", data.len()),
        ));
    }
    let (device, memory) = client.memory(OP, to)?;
    let dims = dims_of(ty);
    let mut args = PJRT_Client_BufferFromHostBuffer_Args {
        client: client.raw(),
        data: data.as_ptr().cast(),
        r#type: buffer_type(ty.dtype()),
        dims: dims.as_ptr(),
        num_dims: dims.len(),
        host_buffer_semantics: semantics,
        device: device.raw(),
        memory,
        ..PJRT_Client_BufferFromHostBuffer_Args::new()
    };
    // SAFETY: the data is as long as the type and dense, and the device and memory are alive. How
    // long the data stays is the caller's condition.
    unsafe { client.call(OP, &mut args) }.map_err(|error| match error.kind() {
        ErrorKind::OutOfMemory => client.with_memory(error, &[to.device]),
        _ => error,
    })?;
    let buffer = Handle::from_plugin(OP, args.buffer)?;
    let done = NonNull::new(args.done_with_host_buffer);
    Ok((
        PjrtBuffer::new(client, buffer, ty.clone(), to),
        done.map(|event| PjrtEvent::new(client, OP, event)),
    ))
}

/// A buffer that is ready with an error.
pub(crate) fn failed(
    client: &Arc<Shared>,
    ty: &TensorType,
    to: Placement,
    message: &str,
) -> Result<PjrtBuffer> {
    const OP: &str = "make failed buffer";
    ty.checked_bytes()
        .map_err(|error| error.on(client.platform_name()))?;
    let (_, memory) = client.memory(OP, to)?;
    let dims = dims_of(ty);
    let order = RowMajor::of(ty.rank());
    let mut layout = order.layout();
    let mut args = PJRT_Client_CreateErrorBuffer_Args {
        client: client.raw(),
        error_code: PJRT_Error_Code::INTERNAL,
        error_message: message.as_ptr().cast(),
        error_message_size: message.len(),
        shape_dims: dims.as_ptr(),
        shape_num_dims: dims.len(),
        shape_element_type: buffer_type(ty.dtype()),
        // Without one, some plugins end the process when the buffer is read.
        shape_layout: &mut layout,
        memory,
        ..PJRT_Client_CreateErrorBuffer_Args::new()
    };
    // SAFETY: the client and the memory are alive; message, dimensions and layout live during the
    // call.
    unsafe { client.call(OP, &mut args)? };
    Ok(PjrtBuffer::new(
        client,
        Handle::from_plugin(OP, args.buffer)?,
        ty.clone(),
        to,
    ))
}

fn dims_of(ty: &TensorType) -> Vec<i64> {
    ty.dims().iter().map(|&dim| dim as i64).collect()
}
