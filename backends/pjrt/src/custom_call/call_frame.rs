//! One call of a handler: XLA's frame, checked and read as [`Arguments`].

use std::{
    ffi::{CString, c_void},
    mem::offset_of,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::{self, NonNull},
    slice,
};

use halite_core::{
    DType, Error, ErrorKind, Result, TensorType,
    custom_call::{self, Arguments, Attribute},
};
use halite_pjrt_sys::{CStruct, ffi::*};

use super::OP;

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
            .map(|buffer| buffer.as_input())
            .collect();
        let outputs: Vec<_> = (outputs.into_iter())
            .map(|buffer| buffer.as_output())
            .collect();
        (inputs, outputs, attributes(attrs)?)
    };
    let (inputs, outputs, attributes) = arguments;
    target.run(Arguments::new(inputs, outputs, &attributes)?)
}

/// A buffer of a frame: `bytes` bytes at `data`, which is null only if there are none.
struct Buffer {
    ty: TensorType,
    data: *mut u8,
    bytes: usize,
}

impl Buffer {
    /// # Safety
    ///
    /// * The memory is alive, and not written to, for `'a`.
    unsafe fn as_input<'a>(self) -> (TensorType, &'a [u8]) {
        let bytes = match self.bytes {
            0 => &[],
            // SAFETY: `data` is not null, and the buffer has this many bytes.
            bytes => unsafe { slice::from_raw_parts(self.data, bytes) },
        };
        (self.ty, bytes)
    }

    /// # Safety
    ///
    /// * The memory is alive, and accessed by nobody else, for `'a`.
    unsafe fn as_output<'a>(self) -> (TensorType, &'a mut [u8]) {
        let bytes = match self.bytes {
            0 => &mut [],
            // SAFETY: `data` is not null, and the buffer has this many bytes.
            bytes => unsafe { slice::from_raw_parts_mut(self.data, bytes) },
        };
        (self.ty, bytes)
    }

    fn overlaps(&self, other: &Buffer) -> bool {
        let (start, other_start) = (self.data.addr(), other.data.addr());
        self.bytes > 0
            && other.bytes > 0
            && start < other_start.saturating_add(other.bytes)
            && other_start < start.saturating_add(self.bytes)
    }
}

/// # Safety
///
/// * `types` and `values` have `count` entries, which point at what the types say.
unsafe fn buffers(
    role: &str,
    count: i64,
    types: *const XLA_FFI_ArgType,
    values: *const *mut c_void,
) -> Result<Vec<Buffer>> {
    // SAFETY: this function's condition.
    let (types, values) = unsafe { (list(types, count, role)?, list(values, count, role)?) };
    let one = |(index, (ty, value)): (usize, (&XLA_FFI_ArgType, &*mut c_void))| {
        if *ty != XLA_FFI_ArgType::BUFFER {
            return Err(garbage(format!(
                "{role} {index} is of type {ty:?}, not a buffer"
            )));
        }
        // SAFETY: this function's condition.
        unsafe { buffer(&format!("{role} {index}"), value.cast()) }
    };
    types.iter().zip(values).enumerate().map(one).collect()
}

/// # Safety
///
/// * `buffer` is null, or a buffer.
unsafe fn buffer(what: &str, buffer: *mut XLA_FFI_Buffer) -> Result<Buffer> {
    // SAFETY: this function's condition.
    let buffer = unsafe { read(buffer, what)? };
    // SAFETY: this function's condition.
    let dims = unsafe { list(buffer.dims, buffer.rank, what)? };
    let dims: Vec<usize> = (dims.iter())
        .map(|&dim| usize::try_from(dim))
        .collect::<Result<_, _>>()
        .map_err(|_| garbage(format!("{what} has the dimensions {dims:?}")))?;
    let dtype = dtype_of(buffer.dtype).ok_or_else(|| {
        let message = format!(
            "{what} has elements of {:?}, which halite cannot read",
            buffer.dtype
        );
        Error::new(ErrorKind::Unsupported, OP, message)
    })?;
    let ty = TensorType::new(dtype, dims);
    let bytes = ty.checked_bytes()?;
    if bytes > 0 && buffer.data.is_null() {
        return Err(garbage(format!("{what} is {ty} at address 0")));
    }
    Ok(Buffer {
        ty,
        data: buffer.data.cast(),
        bytes,
    })
}

fn check_overlap(inputs: &[Buffer], outputs: &[Buffer]) -> Result<()> {
    for (index, output) in outputs.iter().enumerate() {
        let mut others = inputs.iter().chain(&outputs[..index]);
        if others.any(|other| output.overlaps(other)) {
            let message = format!(
                "output {index} is in the memory of another argument; calls with \
                 `output_operand_aliases` are not supported"
            );
            return Err(Error::new(ErrorKind::Unsupported, OP, message));
        }
    }
    Ok(())
}

/// # Safety
///
/// * The lists have `size` entries, which point at what the types say.
unsafe fn attributes(attrs: &XLA_FFI_Attrs) -> Result<Vec<(String, Attribute)>> {
    const WHAT: &str = "attributes";
    // SAFETY: this function's condition.
    let (types, names, values) = unsafe {
        (
            list(attrs.types, attrs.size, WHAT)?,
            list(attrs.names, attrs.size, WHAT)?,
            list(attrs.attrs, attrs.size, WHAT)?,
        )
    };
    let each = types.iter().zip(names).zip(values);
    each.map(|((ty, name), value)| {
        // SAFETY: this function's condition.
        unsafe {
            let name = text(*name, "the name of an attribute")?;
            let value = attribute(&name, *ty, *value)?;
            Ok((name, value))
        }
    })
    .collect()
}

/// # Safety
///
/// * `value` is null, or points at what the type says.
unsafe fn attribute(name: &str, ty: XLA_FFI_AttrType, value: *const c_void) -> Result<Attribute> {
    let what = format!("the attribute `{name}`");
    match ty {
        // SAFETY: this function's condition.
        XLA_FFI_AttrType::STRING => unsafe { text(value.cast(), &what).map(Attribute::Str) },
        // SAFETY: this function's condition.
        XLA_FFI_AttrType::SCALAR => unsafe { scalar(&what, value.cast()) },
        _ => {
            let message = format!(
                "{what} is of type {ty:?}; a Rust function takes booleans, numbers and strings"
            );
            Err(Error::new(ErrorKind::Unsupported, OP, message))
        }
    }
}

/// # Safety
///
/// * `scalar` is null, or a scalar.
unsafe fn scalar(what: &str, scalar: *const XLA_FFI_Scalar) -> Result<Attribute> {
    // SAFETY: this function's condition.
    let scalar = unsafe { checked(scalar, what)?.read() };
    let value: *const u8 = scalar.value.cast();
    if value.is_null() {
        return Err(garbage(format!("{what} is at address 0")));
    }
    macro_rules! number {
        // SAFETY: the value has the type that the scalar names.
        ($ty:ty) => {
            unsafe { value.cast::<$ty>().read_unaligned() }
        };
    }
    Ok(match scalar.dtype {
        XLA_FFI_DataType::PRED => Attribute::Bool(number!(u8) != 0),
        XLA_FFI_DataType::S8 => Attribute::Int(number!(i8).into()),
        XLA_FFI_DataType::S16 => Attribute::Int(number!(i16).into()),
        XLA_FFI_DataType::S32 => Attribute::Int(number!(i32).into()),
        XLA_FFI_DataType::S64 => Attribute::Int(number!(i64)),
        XLA_FFI_DataType::U8 => Attribute::Int(number!(u8).into()),
        XLA_FFI_DataType::U16 => Attribute::Int(number!(u16).into()),
        XLA_FFI_DataType::U32 => Attribute::Int(number!(u32).into()),
        XLA_FFI_DataType::F32 => Attribute::Float(number!(f32).into()),
        XLA_FFI_DataType::F64 => Attribute::Float(number!(f64)),
        other => {
            let message = format!("{what} is a number of type {other:?}, which is not supported");
            return Err(Error::new(ErrorKind::Unsupported, OP, message));
        }
    })
}

/// # Safety
///
/// * `span` is null, or a string.
unsafe fn text(span: *const XLA_FFI_ByteSpan, what: &str) -> Result<String> {
    // SAFETY: this function's condition.
    let span = unsafe { checked(span, what)?.read() };
    let length = i64::try_from(span.len).unwrap_or(i64::MAX);
    // SAFETY: as above.
    let bytes = unsafe { list(span.ptr.cast::<u8>(), length, what)? };
    Ok(String::from_utf8_lossy(bytes).into_owned())
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
unsafe fn read<T: CStruct>(start: *mut T, what: &str) -> Result<T> {
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
unsafe fn list<'a, T>(start: *const T, count: i64, what: &str) -> Result<&'a [T]> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(len) if count <= MOST && !start.is_null() && start.is_aligned() => {
            // SAFETY: this function's condition.
            Ok(unsafe { slice::from_raw_parts(start, len) })
        }
        _ => Err(garbage(format!("{what}: a list of {count} at {start:p}"))),
    }
}

fn checked<T>(start: *const T, what: &str) -> Result<*const T> {
    if start.is_null() || !start.is_aligned() {
        return Err(garbage(format!("{what} at {start:p}")));
    }
    Ok(start)
}

/// An error of a plugin that passes what XLA's FFI does not allow.
fn garbage(message: String) -> Error {
    let message = format!("the plugin passed {message}");
    Error::new(ErrorKind::Internal, OP, message)
}

fn dtype_of(ty: XLA_FFI_DataType) -> Option<DType> {
    Some(match ty {
        XLA_FFI_DataType::PRED => DType::Bool,
        XLA_FFI_DataType::S8 => DType::S8,
        XLA_FFI_DataType::S16 => DType::S16,
        XLA_FFI_DataType::S32 => DType::S32,
        XLA_FFI_DataType::S64 => DType::S64,
        XLA_FFI_DataType::U8 => DType::U8,
        XLA_FFI_DataType::U16 => DType::U16,
        XLA_FFI_DataType::U32 => DType::U32,
        XLA_FFI_DataType::U64 => DType::U64,
        XLA_FFI_DataType::F16 => DType::F16,
        XLA_FFI_DataType::BF16 => DType::Bf16,
        XLA_FFI_DataType::F32 => DType::F32,
        XLA_FFI_DataType::F64 => DType::F64,
        XLA_FFI_DataType::F8E3M4 => DType::F8E3M4,
        XLA_FFI_DataType::F8E4M3 => DType::F8E4M3,
        XLA_FFI_DataType::F8E4M3FN => DType::F8E4M3Fn,
        XLA_FFI_DataType::F8E4M3FNUZ => DType::F8E4M3Fnuz,
        XLA_FFI_DataType::F8E4M3B11FNUZ => DType::F8E4M3B11Fnuz,
        XLA_FFI_DataType::F8E5M2 => DType::F8E5M2,
        XLA_FFI_DataType::F8E5M2FNUZ => DType::F8E5M2Fnuz,
        XLA_FFI_DataType::F8E8M0FNU => DType::F8E8M0Fnu,
        XLA_FFI_DataType::C64 => DType::C64,
        XLA_FFI_DataType::C128 => DType::C128,
        _ => return None,
    })
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
