//! The boundary to C: structs of arguments, lists, callbacks and memory of the caller.
//!
//! The `unsafe` code of the crate is in this module, in `table.rs`, and in the expansions of
//! [`list!`], `text!`, [`nested!`], [`room!`] and [`named_values!`]. It turns what the header
//! promises about pointers into Rust types: [`Given`] is a copy of the caller's struct, [`list!`] a
//! slice that lives as long as the call. The compiler does not check that the fields that these
//! macros name belong together: each use asserts it, by the header's description of the struct.
//! Handles (`PJRT_Buffer *` and the like) are not pointers at all: see [`crate::handle`].
#![allow(unsafe_code)]

mod callback;
mod key_value;
mod launch;
mod lists;
mod memory;

use std::{ffi::c_int, mem::MaybeUninit, ops::Deref};

use halite_pjrt_sys::{
    CStruct, PJRT_Api,
    base::PJRT_NamedValue,
    error::PJRT_Error,
    extension::{PJRT_Layouts_Extension, PJRT_Shardings_Extension},
};

pub(crate) use self::{
    callback::{ErrorCallback, visit_payloads},
    key_value::CallerStore,
    launch::{LaunchRows, Room, launch_rows, room, write_program},
    lists::{
        as_bytes, copy_named_values, list, list_at, named_values, nested, rows, struct_at, text,
        utf8,
    },
    memory::{
        ForeignBytes, Layout, Target, layout_of, layouts, shape_specs, transfer_bytes, upload_bytes,
    },
};
use crate::{
    handle::publish_error,
    status::{Outcome, Status, guard},
};

/// The minor version of the oldest callers: their structs have every field without `[since ..]` in
/// `halite-pjrt-sys`.
const OLDEST_MINOR: u32 = 81;

/// A function of the table or of an extension, by its struct of arguments.
///
/// The default implementation is that of an unimplemented function.
pub(crate) trait Function: CStruct {
    /// False if no field of the caller's struct is a result. The struct is not written then: a
    /// callback of the caller, which the call ran, may have freed it.
    const HAS_RESULTS: bool = true;

    /// Handles a call. `out` starts as a copy of the arguments; on success it is copied back to the
    /// caller.
    fn call(_args: &Given<Self>, _out: &mut Self) -> Outcome {
        Err(Status::unimplemented("not implemented by this plugin"))
    }
}

/// Implements functions that read one object: `out` gets what the expression says of it.
macro_rules! getters {
    ($($args:ident($field:ident: $object:ty) => |$out:ident| $get:expr;)*) => {
        $(impl $crate::abi::Function for $args {
            fn call(
                args: &$crate::abi::Given<Self>,
                $out: &mut Self,
            ) -> $crate::status::Outcome {
                let $field = $crate::handle::find::<$object>(args.$field as *mut _)?;
                $get;
                Ok(())
            }
        })*
    };
}

pub(crate) use getters;

/// The C function of a slot.
///
/// # Safety
///
/// * `args` is null or a struct of arguments that fulfils the header's conditions.
pub(crate) unsafe extern "C-unwind" fn entry<T: Function>(args: *mut T) -> *mut PJRT_Error {
    // SAFETY: this function's condition.
    unsafe { run(args, T::HAS_RESULTS, T::call) }
}

/// Runs `call` with a copy of the caller's struct, and copies its results back if it has any.
/// Errors and panics become a new `PJRT_Error`.
///
/// # Safety
///
/// * As for [`entry`].
pub(crate) unsafe fn run<T: CStruct>(
    args: *mut T,
    has_results: bool,
    call: impl FnOnce(&Given<T>, &mut T) -> Outcome,
) -> *mut PJRT_Error {
    // SAFETY: this function's condition.
    match unsafe { on_copy(args, has_results, call) } {
        Ok(()) => std::ptr::null_mut(),
        Err(status) => {
            let function = T::LAYOUT.name.trim_end_matches("_Args");
            publish_error(status.in_function(function))
        }
    }
}

/// [`run`] for functions that return nothing. Errors and panics are ignored.
///
/// # Safety
///
/// * As for [`entry`].
pub(crate) unsafe fn run_infallible<T: CStruct>(
    args: *mut T,
    has_results: bool,
    call: impl FnOnce(&Given<T>, &mut T),
) {
    // SAFETY: this function's condition.
    _ = unsafe {
        on_copy(args, has_results, |given, out| {
            call(given, out);
            Ok(())
        })
    };
}

unsafe fn on_copy<T: CStruct>(
    args: *mut T,
    has_results: bool,
    call: impl FnOnce(&Given<T>, &mut T) -> Outcome,
) -> Outcome {
    guard(|| {
        // SAFETY: the caller's condition.
        let given = unsafe { Given::read(args) }?;
        let mut out = given.fields;
        call(&given, &mut out)?;
        if has_results {
            let from = (&raw const out).cast::<u8>();
            // SAFETY: the caller's struct has `given.size` bytes, which only this call uses.
            unsafe { std::ptr::copy_nonoverlapping(from, args.cast(), given.size) };
        }
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
                "{} has a struct_size of {given}, PJRT 0.{OLDEST_MINOR} and newer pass {needed} at \
                 least",
                layout.name
            )));
        }
        // Without the padding at the end, where a newer struct may have a field.
        let size = given.min(T::STRUCT_SIZE);
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

/// Pointers for callers, at constant data that lives as long as the process or an object with a
/// handle.
#[derive(Debug)]
pub(crate) struct Shared<T: Plain>(pub(crate) T);

// SAFETY: what it wraps are numbers and raw pointers, through which the SDK does not read.
unsafe impl<T: Plain> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Sync for Shared<T> {}

/// Types made of numbers and raw pointers. Only this module implements it.
///
/// # Safety
///
/// * The safe methods of a type read nothing through its pointers.
pub(crate) unsafe trait Plain {}

// SAFETY: reading through a raw pointer is unsafe.
unsafe impl<T> Plain for *const T {}
// SAFETY: as above.
unsafe impl<T> Plain for *mut T {}
// SAFETY: the elements are owned, and plain.
unsafe impl<T: Plain> Plain for Box<[T]> {}
// SAFETY: as above.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
// SAFETY: its fields are numbers, raw pointers and a union of them.
unsafe impl Plain for PJRT_NamedValue {}
// SAFETY: its fields are numbers, raw pointers and unsafe functions.
unsafe impl Plain for PJRT_Api {}
// SAFETY: as above.
unsafe impl Plain for PJRT_Shardings_Extension {}
// SAFETY: as above.
unsafe impl Plain for PJRT_Layouts_Extension {}

/// A length or an index as C's `int`.
pub(crate) fn int(number: usize) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}
