//! Host memory of the caller that is used after a call has returned.

use halite_pjrt_sys::buffer::{
    PJRT_Buffer_CopyRawToHost_Args, PJRT_Buffer_MemoryLayout, PJRT_Buffer_MemoryLayout_Type,
    PJRT_Buffer_ToHostBuffer_Args, PJRT_Buffer_Type, PJRT_Client_BufferFromHostBuffer_Args,
};
use halite_pjrt_sys::transfer::{
    PJRT_AsyncHostToDeviceTransferManager_TransferData_Args,
    PJRT_Client_CreateBuffersForAsyncHostToDevice_Args, PJRT_ShapeSpec,
};

use super::{Given, list_at};
use crate::{layout::Strides, promise::Promise, status::Status};

/// Bytes of the caller for an upload without a copy. The caller keeps them until the promise is
/// fulfilled, which dropping does: a call that passes them to a backend must return its event.
pub(crate) struct ForeignBytes {
    start: *const u8,
    length: usize,
    /// `None` after the drop.
    done: Option<Promise>,
}

// SAFETY: the caller keeps the bytes unchanged, on every thread, until the promise is fulfilled.
unsafe impl Send for ForeignBytes {}
// SAFETY: as above.
unsafe impl Sync for ForeignBytes {}

impl ForeignBytes {
    /// The data of an upload with the semantics `kImmutableZeroCopy` or `kMutableZeroCopy`, whose
    /// event `done_with_host_buffer` is `done`. `strides` are those of the arguments.
    pub(crate) fn new(
        args: &Given<PJRT_Client_BufferFromHostBuffer_Args>,
        strides: &Strides,
        done: Promise,
    ) -> Self {
        let (low, length) = strides.extent();
        ForeignBytes {
            start: args.data.cast::<u8>().wrapping_offset(low),
            length,
            done: Some(done),
        }
    }
}

impl AsRef<[u8]> for ForeignBytes {
    fn as_ref(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: the caller keeps the bytes until the promise is fulfilled (header,
        // `PJRT_HostBufferSemantics`).
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl Drop for ForeignBytes {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done.set(Ok(()));
        }
    }
}

/// The data of an upload: the extent of its elements. `strides` are those of the arguments.
///
/// # Errors
/// If the pointer is null although there are bytes.
pub(crate) fn upload_bytes<'a>(
    args: &'a Given<PJRT_Client_BufferFromHostBuffer_Args>,
    strides: &Strides,
) -> Result<&'a [u8], Status> {
    let (low, length) = strides.extent();
    if length == 0 {
        return Ok(&[]);
    }
    if args.data.is_null() {
        return Err(Status::invalid("`data` is null"));
    }
    let start = args.data.cast::<u8>().wrapping_offset(low);
    // SAFETY: the caller's type, dimensions and strides describe these bytes (header).
    Ok(unsafe { std::slice::from_raw_parts(start, length) })
}

/// A layout of the caller.
pub(crate) enum Layout<'a> {
    /// Bytes between neighbours in each dimension.
    Strides(&'a [i64]),
    /// Dimensions of a dense layout, fastest varying first.
    Order(&'a [i64]),
}

/// The layout at a pointer of the caller; `None` for null.
///
/// # Errors
/// UNIMPLEMENTED for tiles and for an unknown type of layout.
pub(crate) fn layout_of<A>(
    args: &Given<A>,
    layout: *const PJRT_Buffer_MemoryLayout,
) -> Result<Option<Layout<'_>>, Status> {
    if layout.is_null() {
        return Ok(None);
    }
    // Fields are read one by one: XLA does not initialize the sizes of this struct and of those in
    // it, and checks none of them.
    // SAFETY: `layout` is a field of `args`, and the caller keeps the layout and its lists during
    // the call. `type` names the field of the union that is set.
    unsafe {
        match (&raw const (*layout).r#type).read_unaligned() {
            PJRT_Buffer_MemoryLayout_Type::Strides => {
                let strides = &raw const (*layout).value.strides;
                let start = (&raw const (*strides).byte_strides).read_unaligned();
                let count = (&raw const (*strides).num_byte_strides).read_unaligned();
                let strides = list_at(args, "byte_strides", start, count)?;
                Ok(Some(Layout::Strides(strides)))
            }
            PJRT_Buffer_MemoryLayout_Type::Tiled => {
                let tiled = &raw const (*layout).value.tiled;
                if (&raw const (*tiled).num_tiles).read_unaligned() > 0 {
                    return Err(Status::unimplemented("layouts with tiles"));
                }
                let start = (&raw const (*tiled).minor_to_major).read_unaligned();
                let count = (&raw const (*tiled).minor_to_major_size).read_unaligned();
                let order = list_at(args, "minor_to_major", start, count)?;
                Ok(Some(Layout::Order(order)))
            }
            other => Err(Status::unimplemented(format!("layout type {other:?}"))),
        }
    }
}

/// Memory of the caller that is written once, before an event is ready.
pub(crate) struct Target {
    start: *mut u8,
    length: usize,
}

// SAFETY: the caller leaves the memory to the plugin, on any thread, until the event is ready.
unsafe impl Send for Target {}

impl Target {
    /// The destination of a copy of `needed` bytes to the host.
    pub(crate) fn of_read(
        args: &Given<PJRT_Buffer_ToHostBuffer_Args>,
        needed: usize,
    ) -> Result<Self, Status> {
        if args.dst_size < needed {
            return Err(Status::invalid(format!(
                "`dst_size` is {}, the buffer needs {needed}",
                args.dst_size
            )));
        }
        Ok(Target {
            start: args.dst.cast(),
            length: needed,
        })
    }

    /// The destination of a copy of `length` raw bytes.
    pub(crate) fn of_raw_read(
        args: &Given<PJRT_Buffer_CopyRawToHost_Args>,
        length: usize,
    ) -> Result<Self, Status> {
        if args.dst.is_null() && length > 0 {
            return Err(Status::invalid("`dst` is null"));
        }
        Ok(Target {
            start: args.dst.cast(),
            length,
        })
    }

    /// Writes the bytes.
    ///
    /// # Errors
    /// If their number is another.
    pub(crate) fn write(self, bytes: &[u8]) -> Result<(), Status> {
        if bytes.len() != self.length {
            return Err(Status::internal(format!(
                "the backend's `Buffer::fetch` returned {} bytes, the type has {}",
                bytes.len(),
                self.length
            )));
        }
        // SAFETY: the caller's memory has this length and is written by nobody else until the event
        // is ready.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start, bytes.len()) };
        Ok(())
    }
}

/// The element types and dimensions of the buffers of a chunked upload.
///
/// # Errors
/// If a list is null.
pub(crate) fn shape_specs(
    args: &Given<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>,
) -> Result<Vec<(PJRT_Buffer_Type, &[i64])>, Status> {
    // SAFETY: the caller keeps the list and the dimensions of its entries during the call (header).
    let specs: &[PJRT_ShapeSpec] = unsafe {
        list_at(
            args,
            "shape_specs",
            args.shape_specs.cast_const(),
            args.num_shape_specs,
        )
    }?;
    let spec = |spec: &PJRT_ShapeSpec| {
        // SAFETY: as above.
        let dims = unsafe { list_at(args, "dims", spec.dims, spec.num_dims) }?;
        Ok((spec.element_type, dims))
    };
    specs.iter().map(spec).collect()
}

/// The layouts of the buffers of a chunked upload; empty for none.
///
/// # Errors
/// If the list is null.
pub(crate) fn layouts(
    args: &Given<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>,
) -> Result<&[*mut PJRT_Buffer_MemoryLayout], Status> {
    let count = if args.device_layouts.is_null() {
        0
    } else {
        args.num_device_layouts
    };
    // SAFETY: the caller keeps the list during the call (header).
    unsafe {
        list_at(
            args,
            "device_layouts",
            args.device_layouts.cast_const(),
            count,
        )
    }
}

/// The bytes of one piece of a chunked upload.
///
/// # Errors
/// If the size is negative, or the pointer null.
pub(crate) fn transfer_bytes(
    args: &Given<PJRT_AsyncHostToDeviceTransferManager_TransferData_Args>,
) -> Result<&[u8], Status> {
    let size = usize::try_from(args.transfer_size)
        .map_err(|_| Status::invalid(format!("`transfer_size` is {}", args.transfer_size)))?;
    // SAFETY: the caller keeps the bytes during the call (header).
    unsafe { list_at(args, "data", args.data.cast::<u8>(), size) }
}
