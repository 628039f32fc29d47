//! Copies between the host and buffers.

use std::sync::Arc;

use halite_core::{AlignedBytes, DeviceBuffers, HostBytes, Placement, TensorType};
use halite_pjrt_sys::buffer::*;

use crate::{
    abi::{ForeignBytes, Function, Given, Target, layout_of, list, upload_bytes},
    buffer::{Buffer, Content},
    client::Client,
    dtype::tensor_type,
    event::Event,
    handle::{Reserved, find},
    layout::Strides,
    promise::Promise,
    status::{Outcome, Status, guard},
};

/// A layout that a caller describes: null is row-major.
///
/// # Errors
/// UNIMPLEMENTED for tiles; INVALID_ARGUMENT for what is not a layout of the type.
fn host_layout<A>(
    args: &Given<A>,
    layout: *const PJRT_Buffer_MemoryLayout,
    ty: &TensorType,
) -> Outcome<Strides> {
    match layout_of(args, layout)? {
        None => Strides::new(ty, &[]),
        Some(layout) => match layout {
            crate::abi::Layout::Strides(strides) => Strides::new(ty, strides),
            crate::abi::Layout::Order(order) => {
                let order: Option<Vec<_>> =
                    order.iter().map(|&dim| usize::try_from(dim).ok()).collect();
                Strides::of_order(ty, &order.unwrap_or_default())
            }
        },
    }
}

/// Checks that the layout of a buffer on its device is row-major, or left open.
pub(crate) fn check_layout<A>(
    args: &Given<A>,
    layout: *const PJRT_Buffer_MemoryLayout,
    ty: &TensorType,
) -> Outcome {
    if host_layout(args, layout, ty)?.is_row_major() {
        Ok(())
    } else {
        Err(Status::unimplemented(
            "buffers on devices are row-major; pass no layout, or minor_to_major n-1 to 0",
        ))
    }
}

/// Uploads bytes in row-major order.
pub(crate) fn upload(
    client: &Arc<Client>,
    bytes: HostBytes<'_>,
    ty: &TensorType,
    place: Placement,
) -> Outcome<Arc<Buffer>> {
    let buffer = client.core.upload(bytes, ty, place)?;
    Buffer::of_backend(client, "Backend::upload", buffer, ty, place)
}

/// A buffer of zeros.
pub(crate) fn zeros(
    client: &Arc<Client>,
    ty: &TensorType,
    place: Placement,
) -> Outcome<Arc<Buffer>> {
    let bytes = AlignedBytes::try_zeroed(ty.checked_bytes()?)?;
    upload(client, HostBytes::Shared(Arc::new(bytes)), ty, place)
}

impl Function for PJRT_Client_BufferFromHostBuffer_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        use PJRT_HostBufferSemantics as Semantics;

        let client = find::<Client>(args.client)?;
        let ty = tensor_type(args.r#type, list!(args, dims, num_dims)?)?;
        let strides = Strides::new(&ty, list!(args, byte_strides, num_byte_strides)?)?;
        check_layout(args, args.device_layout, &ty)?;
        let place = client.placement(args.device, args.memory)?;
        let bytes = upload_bytes(args, &strides)?;
        let zero_copy = matches!(
            args.host_buffer_semantics,
            Semantics::kImmutableZeroCopy | Semantics::kMutableZeroCopy
        );
        // Once the backend has the caller's bytes, the call must return the event of their release.
        let [buffer_handle, event_handle] = [Reserved::new()?, Reserved::new()?];
        let (buffer, done) = if !strides.is_row_major() {
            let bytes = HostBytes::Shared(Arc::new(strides.gather(bytes)?));
            (upload(&client, bytes, &ty, place)?, Event::Done(Ok(())))
        } else if zero_copy && !bytes.is_empty() {
            let (promise, released) = Promise::new("the bytes were released");
            let bytes = ForeignBytes::new(args, &strides, promise);
            let uploaded =
                guard(|| upload(&client, HostBytes::Shared(Arc::new(bytes)), &ty, place));
            let buffer = match uploaded {
                Err(status) if released.outcome().is_none() => {
                    Buffer::new(&client, ty, place, Content::Failed(status))
                }
                uploaded => uploaded?,
            };
            (buffer, Event::Pending(released))
        } else {
            let bytes = HostBytes::Borrowed(bytes);
            (upload(&client, bytes, &ty, place)?, Event::Done(Ok(())))
        };
        out.buffer = buffer_handle.publish(buffer);
        out.done_with_host_buffer = event_handle.publish(Arc::new(done));
        Ok(())
    }
}

impl Function for PJRT_Buffer_ToHostBuffer_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let buffer = find::<Buffer>(args.src)?;
        let layout = host_layout(args, args.host_layout, &buffer.ty)?;
        if !layout.is_dense() {
            return Err(Status::unimplemented(
                "a copy to the host with gaps between elements",
            ));
        }
        let needed = buffer.ty.checked_bytes()?;
        if args.dst.is_null() {
            out.dst_size = needed;
            return Ok(());
        }
        let target = Target::of_read(args, needed)?;
        let event = Reserved::new()?;
        let read = read_then(&buffer, move |bytes| {
            if layout.is_row_major() {
                target.write(bytes)
            } else {
                target.write(layout.scatter(bytes)?.as_ref())
            }
        });
        out.event = event.publish(Arc::new(read));
        Ok(())
    }
}

impl Function for PJRT_Buffer_CopyRawToHost_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let buffer = find::<Buffer>(args.buffer)?;
        let range = byte_range(args.offset, args.transfer_size, buffer.ty.checked_bytes()?)?;
        let target = Target::of_raw_read(args, range.len())?;
        let event = Reserved::new()?;
        let read = read_then(&buffer, move |bytes| match bytes.get(range) {
            Some(bytes) => target.write(bytes),
            None => target.write(&[]),
        });
        out.event = event.publish(Arc::new(read));
        Ok(())
    }
}

/// The bytes that an offset and a length describe in a buffer of `size` bytes.
pub(crate) fn byte_range(offset: i64, length: i64, size: usize) -> Outcome<std::ops::Range<usize>> {
    let (start, count) = (usize::try_from(offset).ok(), usize::try_from(length).ok());
    let range = start.zip(count).and_then(|(start, count)| {
        let end = start.checked_add(count)?;
        (end <= size).then_some(start..end)
    });
    range.ok_or_else(|| {
        Status::invalid(format!(
            "{length} bytes from offset {offset} are not in a buffer of {size} bytes"
        ))
    })
}

/// Queues a copy of the row-major bytes to the host, and passes them to `write`. The event is ready
/// when `write` has run or was dropped: until then it may write to the memory of the caller. Errors
/// and panics are those of the event.
fn read_then(buffer: &Arc<Buffer>, write: impl FnOnce(&[u8]) -> Outcome + Send + 'static) -> Event {
    let (promise, done) =
        Promise::new("the backend dropped a callback of `Buffer::fetch` without calling it");
    if let Content::Later(transfer) = buffer.content() {
        let buffer = buffer.clone();
        transfer.on_ready(move |outcome| match outcome.and_then(|()| buffer.here()) {
            Ok(contents) => _ = fetch(&contents, write, promise),
            Err(status) => promise.set(Err(status)),
        });
        return Event::Pending(done);
    }
    let called = buffer
        .here()
        .and_then(|contents| fetch(&contents, write, promise));
    // Most backends copy during the call.
    match done.outcome() {
        Some(outcome) => Event::Done(called.and(outcome)),
        None => Event::Pending(done),
    }
}

/// Fetches the bytes and passes them to `write`, whose outcome fulfills the promise.
///
/// # Errors
/// If the backend panics, before or after it queued the copy.
fn fetch(
    contents: &DeviceBuffers,
    write: impl FnOnce(&[u8]) -> Outcome + Send + 'static,
    promise: Promise,
) -> Outcome {
    guard(|| {
        contents.first().fetch_then(Box::new(move |bytes| {
            promise.set(guard(|| write(&bytes?)));
        }));
        Ok(())
    })
}
