//! Buffers and attributes of a call frame, checked and read.

use std::{ffi::c_void, slice};

use halite_core::{DType, Error, ErrorKind, Result, TensorType, custom_call::Attribute};
use halite_pjrt_sys::ffi::{XLA_FFI_DataType as Type, *};

use super::{
    OP,
    call_frame::{checked, garbage, list, read},
};

/// A buffer of a frame: `bytes` bytes at `data`, which is null only if there are none.
pub(super) struct Buffer {
    ty: TensorType,
    data: *mut u8,
    bytes: usize,
}

impl Buffer {
    /// # Safety
    ///
    /// * The memory is alive, and not written to, for `'a`.
    pub(super) unsafe fn into_input<'a>(self) -> (TensorType, &'a [u8]) {
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
    pub(super) unsafe fn into_output<'a>(self) -> (TensorType, &'a mut [u8]) {
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
pub(super) unsafe fn buffers(
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
    let dtype = DType::from_hlo_number(buffer.dtype.0).ok_or_else(|| {
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

pub(super) fn check_overlap(inputs: &[Buffer], outputs: &[Buffer]) -> Result<()> {
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
pub(super) unsafe fn attributes(attrs: &XLA_FFI_Attrs) -> Result<Vec<(String, Attribute)>> {
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
    // SAFETY: the value has the type that the scalar names.
    Ok(unsafe {
        match scalar.dtype {
            Type::PRED => Attribute::Bool(*value != 0),
            Type::S8 => Attribute::Int(number::<i8>(value).into()),
            Type::S16 => Attribute::Int(number::<i16>(value).into()),
            Type::S32 => Attribute::Int(number::<i32>(value).into()),
            Type::S64 => Attribute::Int(number(value)),
            Type::U8 => Attribute::Int(number::<u8>(value).into()),
            Type::U16 => Attribute::Int(number::<u16>(value).into()),
            Type::U32 => Attribute::Int(number::<u32>(value).into()),
            Type::F32 => Attribute::Float(number::<f32>(value).into()),
            Type::F64 => Attribute::Float(number(value)),
            other => {
                let message =
                    format!("{what} is a number of type {other:?}, which is not supported");
                return Err(Error::new(ErrorKind::Unsupported, OP, message));
            }
        }
    })
}

/// # Safety
///
/// * `value` points at a number of this type.
unsafe fn number<T: Copy>(value: *const u8) -> T {
    // SAFETY: this function's condition.
    unsafe { value.cast::<T>().read_unaligned() }
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
