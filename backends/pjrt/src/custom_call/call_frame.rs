//! One call of a handler: XLA's frame, checked and read as [`Arguments`].

use std::{
    ffi::CString,
    mem::offset_of,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::{self, NonNull},
    slice,
};

use halite_core::{
    Error, ErrorKind, Result,
    custom_call::{self, Arguments},
};
use halite_pjrt_sys::{CStruct, ffi::*};

use super::{
    OP,
    values::{attributes, buffers, check_overlap},
};

/// The version of the FFI that handlers report. XLA ignores handlers of 0.0, and of versions newer
/// than its own.
const VERSION: (i32, i32) = (0, 1);

/// Largest number of buffers, attributes and dimensions that is not taken for garbage.
const MOST: i64 = 1 << 16;

/// Runs one call of the target that was registered as number `index`.
///
/// # Safety
///
/// * `frame` is null, or a call frame of XLA for a device that uses host memory. Its buffers are
///   not accessed by others before this function returns.
pub(super) unsafe fn handle(index: usize, frame: *mut XLA_FFI_CallFrame) -> *mut XLA_FFI_Error {
    let run = || {
        // SAFETY: this function's condition.
        let frame = unsafe { read(frame, "call frame")? };
        // SAFETY: the list of extensions is alive during the call.
        if unsafe { write_metadata(frame.extension_start) } {
            return Ok(());
        }
        if frame.stage != XLA_FFI_ExecutionStage::EXECUTE {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { execute(index, &frame) }
    };
    // Functions that panic are errors already; no other panic may reach XLA either.
    let result = catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, OP, "the handler panicked")));
    match result {
        Ok(()) => ptr::null_mut(),
        // SAFETY: this function's condition.
        Err(error) => unsafe { to_xla(frame, &error) },
    }
}

/// # Safety
///
/// * The frame is one of XLA, as for [`handle`].
unsafe fn execute(index: usize, frame: &XLA_FFI_CallFrame) -> Result<()> {
    let target = custom_call::target_at(index)
        .ok_or_else(|| garbage(format!("no target has number {index}")))?;
    let (args, rets, attrs) = (&frame.args, &frame.rets, &frame.attrs);
    if args.struct_size < XLA_FFI_Args::STRUCT_SIZE
        || rets.struct_size < XLA_FFI_Rets::STRUCT_SIZE
        || attrs.struct_size < XLA_FFI_Attrs::STRUCT_SIZE
    {
        return Err(garbage("lists of arguments that are too short".to_owned()));
    }
    // SAFETY: the frame's lists and buffers live during the call. Outputs overlap with nothing, so
    // that they may be borrowed mutably.
    let arguments = unsafe {
        let inputs = buffers("input", args.size, args.types, args.args)?;
        let outputs = buffers("output", rets.size, rets.types, rets.rets)?;
        check_overlap(&inputs, &outputs)?;
        let inputs: Vec<_> = (inputs.into_iter())
            .map(|buffer| buffer.into_input())
            .collect();
        let outputs: Vec<_> = (outputs.into_iter())
            .map(|buffer| buffer.into_output())
            .collect();
        (inputs, outputs, attributes(attrs)?)
    };
    let (inputs, outputs, attributes) = arguments;
    target.run(Arguments::new(inputs, outputs, &attributes)?)
}

/// Answers the request for metadata, if this is one. Returns whether it is.
///
/// # Safety
///
/// * `extension` is null, or the start of a list of extensions.
unsafe fn write_metadata(extension: *mut XLA_FFI_Extension_Base) -> bool {
    let mut next = extension;
    // A list that closes in on itself would never end.
    for _ in 0..64 {
        // SAFETY: this function's condition.
        let Ok(base) = (unsafe { read(next, "extension") }) else {
            return false;
        };
        if base.r#type == XLA_FFI_Extension_Type::Metadata
            && base.struct_size >= XLA_FFI_Metadata_Extension::STRUCT_SIZE
        {
            // SAFETY: the extension has this type and is long enough.
            let metadata = unsafe { (*next.cast::<XLA_FFI_Metadata_Extension>()).metadata };
            // SAFETY: metadata begins with its size.
            if unsafe { read_size(metadata) } < XLA_FFI_Metadata::STRUCT_SIZE {
                return true;
            }
            // SAFETY: the metadata is long enough for what is written.
            unsafe {
                (*metadata).api_version = XLA_FFI_Api_Version {
                    major_version: VERSION.0,
                    minor_version: VERSION.1,
                    ..XLA_FFI_Api_Version::new()
                };
                (*metadata).traits = 0;
            }
            return true;
        }
        next = base.next;
    }
    false
}

/// An error of XLA's. Ends the process if XLA gave no way to make one: the call would count as
/// successful, with outputs that nobody wrote.
///
/// # Safety
///
/// * `frame` is null, or a frame of XLA.
unsafe fn to_xla(frame: *mut XLA_FFI_CallFrame, error: &Error) -> *mut XLA_FFI_Error {
    // SAFETY: this function's condition.
    let Some(create) = (unsafe { error_create(frame) }) else {
        eprintln!("{error}; the plugin broke the rules of XLA's FFI, and takes no errors");
        std::process::abort();
    };
    let text = error.to_string().replace('\0', "\\0");
    let message = CString::new(text).expect("NUL was replaced");
    let mut args = XLA_FFI_Error_Create_Args {
        message: message.as_ptr(),
        errc: code_of(error.kind()),
        ..XLA_FFI_Error_Create_Args::new()
    };
    // SAFETY: the message lives during the call, which copies it.
    unsafe { create(&mut args) }
}

/// # Safety
///
/// * `frame` is null, or a frame of XLA.
unsafe fn error_create(frame: *mut XLA_FFI_CallFrame) -> Option<XLA_FFI_Error_Create> {
    // SAFETY: this function's condition.
    unsafe {
        if read_size(frame) < offset_of!(XLA_FFI_CallFrame, ctx) {
            return None;
        }
        read((*frame).api.cast_mut(), "api").ok()?.error_create
    }
}

/// Reads a struct that begins with its size.
///
/// # Safety
///
/// * `start` is null, or a struct that is as long as its size says.
pub(super) unsafe fn read<T: CStruct>(start: *mut T, what: &str) -> Result<T> {
    const {
        assert!(
            T::STRUCT_SIZE == size_of::<T>(),
            "all of the struct is read"
        )
    };
    // SAFETY: this function's condition.
    let size = unsafe { read_size(start) };
    if size < T::STRUCT_SIZE {
        let needed = T::STRUCT_SIZE;
        return Err(garbage(format!(
            "{what} of {size} bytes, less than {needed}"
        )));
    }
    // SAFETY: it is not null, and long enough.
    Ok(unsafe { start.read() })
}

/// The first field of a struct, its size; 0 if the pointer is null or misaligned.
///
/// # Safety
///
/// * `start` is null, or a struct that begins with its size.
unsafe fn read_size<T: CStruct>(start: *mut T) -> usize {
    match NonNull::new(start).filter(|start| start.is_aligned()) {
        // SAFETY: this function's condition.
        Some(start) => unsafe { start.cast::<usize>().read() },
        None => 0,
    }
}

/// # Safety
///
/// * `start` is null, or has `count` entries that live as long as the result is used.
pub(super) unsafe fn list<'a, T>(start: *const T, count: i64, what: &str) -> Result<&'a [T]> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(len) if count <= MOST && !start.is_null() && start.is_aligned() => {
            // SAFETY: this function's condition.
            Ok(unsafe { slice::from_raw_parts(start, len) })
        }
        _ => Err(garbage(format!("{what}: a list of {count} at {start:p}"))),
    }
}

pub(super) fn checked<T>(start: *const T, what: &str) -> Result<*const T> {
    if start.is_null() || !start.is_aligned() {
        return Err(garbage(format!("{what} at {start:p}")));
    }
    Ok(start)
}

/// An error of a plugin that passes what XLA's FFI does not allow.
pub(super) fn garbage(message: String) -> Error {
    let message = format!("the plugin passed {message}");
    Error::new(ErrorKind::Internal, OP, message)
}

fn code_of(kind: ErrorKind) -> XLA_FFI_Error_Code {
    match kind {
        ErrorKind::Cancelled => XLA_FFI_Error_Code::CANCELLED,
        ErrorKind::Corrupt => XLA_FFI_Error_Code::DATA_LOSS,
        ErrorKind::DeadlineExceeded => XLA_FFI_Error_Code::DEADLINE_EXCEEDED,
        ErrorKind::InvalidArgument => XLA_FFI_Error_Code::INVALID_ARGUMENT,
        ErrorKind::OutOfMemory => XLA_FFI_Error_Code::RESOURCE_EXHAUSTED,
        ErrorKind::Unavailable => XLA_FFI_Error_Code::UNAVAILABLE,
        ErrorKind::Unsupported => XLA_FFI_Error_Code::UNIMPLEMENTED,
        _ => XLA_FFI_Error_Code::INTERNAL,
    }
}
