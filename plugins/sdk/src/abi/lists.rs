//! Lists, texts and nested structs of the caller.

use std::ffi::c_char;

use halite_pjrt_sys::{
    CStruct,
    base::{PJRT_NamedValue, PJRT_NamedValue_Type},
};

use super::Given;
use crate::{status::Status, value::Value};

/// A list that two fields of a struct of arguments describe: `list!(args, dims, num_dims)`.
macro_rules! list {
    ($args:expr, $start:ident, $count:ident) => {{
        let args = $args;
        // SAFETY: `Given` is made of a struct of the caller, which keeps `$count` values at
        // `$start` during the call (header).
        #[allow(unsafe_code)]
        unsafe {
            $crate::abi::list_at(args, stringify!($start), args.$start, args.$count)
        }
    }};
}

/// A text that two fields of a struct of arguments describe: `text!(args, name, name_size)`.
macro_rules! text {
    ($args:expr, $start:ident, $count:ident) => {
        $crate::abi::list!($args, $start, $count)
            .and_then(|bytes| $crate::abi::utf8(stringify!($start), bytes))
    };
}

/// The struct that a field points at: `nested!(args, options)`.
macro_rules! nested {
    ($args:expr, $field:ident) => {{
        let args = $args;
        // SAFETY: `Given` is made of a struct of the caller, which keeps the one at `$field` during
        // the call (header).
        #[allow(unsafe_code)]
        unsafe {
            $crate::abi::struct_at(args, args.$field)
        }
    }};
}

pub(crate) use {list, nested, text};

/// The values of a list of the caller.
///
/// # Errors
/// If the pointer is null although there are values, or misaligned.
///
/// # Safety
///
/// * `start` and `count` are fields of `args` that describe a list. Its values may have any bits.
pub(crate) unsafe fn list_at<'a, A, T>(
    _args: &'a Given<A>,
    name: &str,
    start: *const T,
    count: usize,
) -> Result<&'a [T], Status> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null() || !start.is_aligned() || count > isize::MAX as usize / size_of::<T>() {
        return Err(Status::invalid(format!(
            "`{name}` is {start:p} with {count} values; expected a list"
        )));
    }
    // SAFETY: this function's condition.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// The struct at a pointer of the caller.
///
/// # Safety
///
/// * `from` is a field of `args`, null or valid during the call.
pub(crate) unsafe fn struct_at<A, T: CStruct>(
    _args: &Given<A>,
    from: *const T,
) -> Result<Given<T>, Status> {
    // SAFETY: this function's condition.
    unsafe { Given::read(from) }
}

/// The text in bytes of the caller.
pub(crate) fn utf8<'a>(name: &str, bytes: &'a [c_char]) -> Result<&'a str, Status> {
    std::str::from_utf8(as_bytes(bytes))
        .map_err(|error| Status::invalid(format!("`{name}` is not UTF-8: {error}")))
}

/// The bytes of a list of `char`s.
pub(crate) fn as_bytes(chars: &[c_char]) -> &[u8] {
    // SAFETY: `c_char` has the size, alignment and valid bits of `u8`.
    unsafe { std::slice::from_raw_parts(chars.as_ptr().cast(), chars.len()) }
}

/// The rows of a nested list: `start` has `rows` pointers at `columns` values each.
///
/// # Errors
/// As [`list_at`].
///
/// # Safety
///
/// * `start`, `rows` and `columns` are fields of `args` that describe such a list.
pub(crate) unsafe fn rows<'a, A, T>(
    args: &'a Given<A>,
    name: &str,
    start: *const *const T,
    rows: usize,
    columns: usize,
) -> Result<Vec<&'a [T]>, Status> {
    // SAFETY: this function's condition, for the list and for each of its rows.
    let starts = unsafe { list_at(args, name, start, rows) }?;
    let row = |&start: &*const T| {
        // SAFETY: as above.
        unsafe { list_at(args, name, start, columns) }
    };
    starts.iter().map(row).collect()
}

/// The named values that two fields describe: `named_values!(args, create_options, num_options)`.
macro_rules! named_values {
    ($args:expr, $start:ident, $count:ident) => {{
        let args = $args;
        $crate::abi::list!(args, $start, $count).and_then(|values| {
            // SAFETY: as for `list!`; each value is valid for the same time.
            #[allow(unsafe_code)]
            unsafe {
                $crate::abi::copy_named_values(args, values)
            }
        })
    }};
}

pub(crate) use named_values;

/// Copies named values of the caller, as (name, value).
///
/// # Errors
/// If a name or text is not UTF-8, or the type of a value is unknown.
///
/// # Safety
///
/// * `values` is a list that `args` points at.
pub(crate) unsafe fn copy_named_values<A>(
    args: &Given<A>,
    values: &[PJRT_NamedValue],
) -> Result<Vec<(String, Value)>, Status> {
    let named = |value: &PJRT_NamedValue| {
        // SAFETY: the caller keeps names, texts and lists during the call, and `type` names the
        // field of the union that is set.
        let (name, read) = unsafe {
            let name = utf8("name", list_at(args, "name", value.name, value.name_size)?)?;
            let read = match value.r#type {
                PJRT_NamedValue_Type::kString => {
                    let text = list_at(args, name, value.value.string_value, value.value_size)?;
                    Value::Text(utf8(name, text)?.to_owned())
                }
                PJRT_NamedValue_Type::kInt64 => Value::Int(value.value.int64_value),
                PJRT_NamedValue_Type::kInt64List => {
                    let numbers =
                        list_at(args, name, value.value.int64_array_value, value.value_size)?;
                    Value::Ints(numbers.to_vec())
                }
                PJRT_NamedValue_Type::kFloat => Value::Float(value.value.float_value),
                // Read as a byte: the caller's `bool` may have any bits.
                PJRT_NamedValue_Type::kBool => {
                    Value::Bool((&raw const value.value).cast::<u8>().read() != 0)
                }
                other => {
                    let message = format!("option `{name}` has the unknown type {other:?}");
                    return Err(Status::invalid(message));
                }
            };
            (name, read)
        };
        Ok((name.to_owned(), read))
    };
    values.iter().map(named).collect()
}
