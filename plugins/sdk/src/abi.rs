//! The boundary to C: structs of arguments, lists, callbacks and memory of the caller.
//!
//! All `unsafe` code of the crate is in this module. It turns what the header promises about
//! pointers into Rust types: [`Given`] is a copy of the caller's struct, [`list!`] a slice that
//! lives as long as the call. Handles (`PJRT_Buffer *` and the like) are not pointers at all: see
//! [`crate::handle`].
#![allow(unsafe_code)]

mod callback;
mod memory;

use std::{
    ffi::{c_char, c_int},
    mem::MaybeUninit,
    ops::Deref,
};

use halite_pjrt_sys::{
    CStruct, Call,
    base::{PJRT_NamedValue, PJRT_NamedValue_Type},
    buffer::PJRT_Buffer,
    error::PJRT_Error,
    event::PJRT_Event,
    executable::{PJRT_Executable_OptimizedProgram_Args, PJRT_LoadedExecutable_Execute_Args},
};

pub(crate) use self::{
    callback::{ErrorCallback, visit_payloads},
    memory::{
        ForeignBytes, Layout, Target, layout_of, layouts, shape_specs, transfer_bytes, upload_bytes,
    },
};
use crate::{
    options::Value,
    status::{Outcome, Status, guard},
};

/// The minor version of the oldest callers: their structs have every field without `[since ..]` in
/// `halite-pjrt-sys`.
const OLDEST_MINOR: u32 = 81;

/// A function of the table, by its struct of arguments.
///
/// The default implementation is that of a function that the SDK does not have.
pub(crate) trait Function: Call<Return = *mut PJRT_Error> {
    /// Handles a call. `out` starts as a copy of the arguments; on success it is copied back to the
    /// caller.
    fn call(_args: &Given<Self>, _out: &mut Self) -> Outcome {
        Err(Status::unimplemented("not implemented by this plugin"))
    }
}

/// The C function of a slot.
///
/// # Safety
///
/// * `args` is null or a struct of arguments that fulfils the header's conditions.
pub(crate) unsafe extern "C-unwind" fn entry<T: Function>(args: *mut T) -> *mut PJRT_Error {
    // SAFETY: this function's condition.
    unsafe { run(args, T::call) }
}

/// Runs `call` with a copy of the caller's struct, and copies its results back. Errors and panics
/// become a new `PJRT_Error`.
///
/// # Safety
///
/// * As for [`entry`].
pub(crate) unsafe fn run<T: Call>(
    args: *mut T,
    call: impl FnOnce(&Given<T>, &mut T) -> Outcome,
) -> *mut PJRT_Error {
    // SAFETY: this function's condition.
    match unsafe { on_copy(args, call) } {
        Ok(()) => std::ptr::null_mut(),
        Err(status) => status.in_function(T::SLOT.name).into_handle(),
    }
}

/// [`run`] for functions that return nothing. Errors and panics are ignored.
///
/// # Safety
///
/// * As for [`entry`].
pub(crate) unsafe fn run_infallible<T: Call>(args: *mut T, call: impl FnOnce(&Given<T>, &mut T)) {
    // SAFETY: this function's condition.
    _ = unsafe {
        on_copy(args, |given, out| {
            call(given, out);
            Ok(())
        })
    };
}

unsafe fn on_copy<T: Call>(
    args: *mut T,
    call: impl FnOnce(&Given<T>, &mut T) -> Outcome,
) -> Outcome {
    guard(|| {
        // SAFETY: the caller's condition.
        let given = unsafe { Given::read(args) }?;
        let mut out = given.fields;
        call(&given, &mut out)?;
        let from = (&raw const out).cast::<u8>();
        // SAFETY: the caller's struct has `given.size` bytes, which only this call uses.
        unsafe { std::ptr::copy_nonoverlapping(from, args.cast(), given.size) };
        Ok(())
    })
}

/// A copy of a struct of the caller, whose pointers are valid during the call.
///
/// Fields that the caller's version of the struct does not have are zero.
pub(crate) struct Given<T> {
    fields: T,
    /// Bytes that the caller's struct and this one have in common.
    size: usize,
}

impl<T> Deref for Given<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.fields
    }
}

impl<T: CStruct> Given<T> {
    /// Copies a struct. It may be shorter (older) or longer (newer) than `T`.
    ///
    /// # Errors
    /// If the pointer is null, or the struct is shorter than that of the oldest version.
    ///
    /// # Safety
    ///
    /// * `from` is null or points at a struct that begins with its size, and fulfils the header's
    ///   conditions until the result is dropped.
    unsafe fn read(from: *const T) -> Result<Self, Status> {
        let layout = const { T::LAYOUT };
        if from.is_null() {
            return Err(Status::invalid(format!("{} is null", layout.name)));
        }
        // SAFETY: every struct begins with its size.
        let given = unsafe { from.cast::<usize>().read_unaligned() };
        let needed = const { T::LAYOUT.end_at(OLDEST_MINOR) };
        if given < needed {
            return Err(Status::invalid(format!(
                "{} has a struct_size of {given}, PJRT 0.{OLDEST_MINOR} and newer pass {needed} at least",
                layout.name
            )));
        }
        let size = given.min(size_of::<T>());
        let mut fields = MaybeUninit::<T>::zeroed();
        let bytes = fields.as_mut_ptr().cast::<u8>();
        // SAFETY: the caller's struct has `given` bytes, and `fields` has room for `size`.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), bytes, size) };
        // The only fields of one byte are `bool`s. Those for results are not initialized.
        for field in layout.fields.iter().filter(|field| field.size == 1) {
            // SAFETY: the field is inside `fields`.
            unsafe {
                bytes
                    .add(field.offset)
                    .write(u8::from(bytes.add(field.offset).read() != 0))
            };
        }
        // SAFETY: integers, pointers, optional functions and unions of them are valid with any
        // bytes, and the `bool`s are 0 or 1.
        let fields = unsafe { fields.assume_init() };
        Ok(Given { fields, size })
    }
}

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
/// * `start` and `count` are fields of `args` that describe a list of values that may have any bits.
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

/// Memory of the caller for `count` results.
pub(crate) struct Room<T> {
    start: *mut T,
    count: usize,
}

impl<T: Copy> Room<T> {
    /// The room that a field of the caller's struct points at.
    ///
    /// # Errors
    /// If the pointer is null although there are values, or misaligned.
    ///
    /// # Safety
    ///
    /// * `start` is null or has room for `count` values until the result is dropped.
    pub(crate) unsafe fn new(name: &str, start: *mut T, count: usize) -> Result<Self, Status> {
        if count > 0 && (start.is_null() || !start.is_aligned()) {
            return Err(Status::invalid(format!(
                "`{name}` is {start:p}; expected room for {count} values"
            )));
        }
        Ok(Room { start, count })
    }

    /// Writes values, at most as many as there is room for.
    pub(crate) fn write(&self, values: impl IntoIterator<Item = T>) {
        for (index, value) in values.into_iter().take(self.count).enumerate() {
            // SAFETY: `index` is below `count`.
            unsafe { self.start.add(index).write(value) };
        }
    }
}

/// The caller's memory that a field points at: `room!(args, start, count)`.
macro_rules! room {
    ($args:expr, $start:ident, $count:expr) => {{
        let args = $args;
        // SAFETY: the caller's struct points at this much memory (header).
        #[allow(unsafe_code)]
        unsafe {
            $crate::abi::Room::new(stringify!($start), args.$start, $count)
        }
    }};
}

pub(crate) use room;

/// The named values that two fields describe: `named_values!(args, create_options, num_options)`.
macro_rules! named_values {
    ($args:expr, $start:ident, $count:ident) => {{
        let args = $args;
        // SAFETY: as for `list!`; each value is valid for the same time.
        #[allow(unsafe_code)]
        $crate::abi::list!(args, $start, $count)
            .and_then(|values| unsafe { $crate::abi::copy_named_values(args, values) })
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

/// Pointers at constant data that lives as long as the process or an object with a handle.
#[derive(Debug)]
pub(crate) struct Shared<T>(pub(crate) T);

// SAFETY: what it wraps are numbers and pointers at constant data.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

/// A length or an index as C's `int`.
pub(crate) fn int(number: usize) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

/// Writes a program to the struct of the caller: its format and size, and its bytes where there is
/// room for them.
pub(crate) fn write_program(
    args: &Given<PJRT_Executable_OptimizedProgram_Args>,
    format: &str,
    code: &[u8],
) -> Outcome {
    let given = nested!(args, program)?;
    if !given.code.is_null() && given.code_size < code.len() {
        return Err(Status::invalid(format!(
            "`code_size` is {}, the program has {} bytes",
            given.code_size,
            code.len()
        )));
    }
    let mut written = given.fields;
    written.code_size = code.len();
    (written.format, written.format_size) = crate::text(format);
    // SAFETY: the caller's struct has `given.size` bytes, and room for the code if it is not null.
    unsafe {
        let (from, to) = ((&raw const written).cast::<u8>(), args.program.cast::<u8>());
        std::ptr::copy_nonoverlapping(from, to, given.size);
        if !given.code.is_null() {
            std::ptr::copy_nonoverlapping(code.as_ptr(), given.code.cast(), code.len());
        }
    }
    Ok(())
}

/// The arguments of a launch by device, and the room for its results.
pub(crate) struct LaunchRows<'a> {
    pub(crate) arguments: Vec<&'a [*mut PJRT_Buffer]>,
    pub(crate) results: Vec<Room<*mut PJRT_Buffer>>,
    /// No room if the caller wants no events.
    pub(crate) events: Room<*mut PJRT_Event>,
}

/// The lists of a launch with this number of results per device.
///
/// # Errors
/// If a list is null.
pub(crate) fn launch_rows(
    args: &Given<PJRT_LoadedExecutable_Execute_Args>,
    results: usize,
) -> Result<LaunchRows<'_>, Status> {
    let events = if args.device_complete_events.is_null() {
        0
    } else {
        args.num_devices
    };
    let with_results = if results == 0 { 0 } else { args.num_devices };
    // SAFETY: the lists have these lengths (header), and the caller keeps them during the call.
    unsafe {
        let lists = (args.argument_lists, args.output_lists);
        let rows = rows(
            args,
            "argument_lists",
            lists.0,
            args.num_devices,
            args.num_args,
        )?;
        let starts = list_at(args, "output_lists", lists.1, with_results)?;
        let room = |&start: &*mut *mut PJRT_Buffer| Room::new("output_lists", start, results);
        Ok(LaunchRows {
            arguments: rows,
            results: starts.iter().map(room).collect::<Result<_, _>>()?,
            events: Room::new(
                "device_complete_events",
                args.device_complete_events,
                events,
            )?,
        })
    }
}
