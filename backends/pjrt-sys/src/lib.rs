//! The PJRT C API as Rust types: layouts and sizes, no logic.
//!
//! PJRT is the C interface behind which every XLA platform (CPU, CUDA, TPU, and those of other
//! vendors) lives in a shared library of its own, a *plugin*. The types here are written by hand
//! from the documented ABI (`xla/pjrt/c/pjrt_c_api.h` of OpenXLA, API 0.114, 138 slots). A test
//! compares every offset, size and number with a real header of 0.81; what is newer than that is
//! marked with the minor version that brought it.
//!
//! # Rules of the ABI
//!
//! * Every function takes a pointer to a struct of arguments whose first field is `struct_size`. It
//!   is the offset of the *end of the last field*, without padding: [`CStruct::STRUCT_SIZE`], not
//!   `size_of`.
//! * The table only grows. A slot exists if the table's `struct_size` covers it and it is not null;
//!   [`Call::SLOT`] has the offset. The same holds for each extension and its own size.
//! * Numbers of C enums may be newer than ours, so they are integers with names, not Rust enums.
//! * Functions of a plugin are declared `extern "C-unwind"`: plugins are C++, and an exception that
//!   leaves one of their functions would be undefined behaviour through `extern "C"`. Rust cannot
//!   catch it (`catch_unwind` ends the process); `halite-pjrt` says what it does instead. Callbacks
//!   that the caller provides never unwind and stay `extern "C"`.
//!
//! ```
//! use halite_pjrt_sys::{CStruct, Call, event::PJRT_Event_IsReady_Args};
//!
//! let args = PJRT_Event_IsReady_Args::new();
//! assert_eq!(args.struct_size, 25); // a bool ends at 25; `size_of` would say 32
//! assert_eq!(PJRT_Event_IsReady_Args::SLOT.name, "PJRT_Event_IsReady");
//! ```

// Names are the header's, so that they can be looked up there.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
// The one place besides `halite-pjrt` where foreign layouts are trusted.
#![allow(unsafe_code)]

mod macros;

pub mod api;
pub mod base;
pub mod buffer;
pub mod client;
pub mod device;
pub mod error;
pub mod event;
pub mod executable;
pub mod extension;
pub mod ffi;
pub mod memory;
pub mod topology;
pub mod transfer;

pub use api::{API_MINOR, GET_PJRT_API, GetPjrtApi, PJRT_Api, SLOTS};

/// A struct of the API.
///
/// # Safety
///
/// * `LAYOUT` is the struct's layout in C.
pub unsafe trait CStruct: Copy {
    /// Name, size and fields.
    const LAYOUT: Layout;
    /// Value of `struct_size`: the end of the last field.
    const STRUCT_SIZE: usize = Self::LAYOUT.end_at(u32::MAX);
}

/// The arguments of one function of the table.
///
/// # Safety
///
/// * `SLOT` is the place of the function that takes these arguments and returns `Return`.
pub unsafe trait Call: CStruct {
    /// An error, or nothing for the functions that cannot fail.
    type Return;
    /// Place of the function in the table.
    const SLOT: Slot;
}

/// A place in the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Slot {
    /// The function's name in the header.
    pub name: &'static str,
    /// Bytes from the start of the table.
    pub offset: usize,
    /// The minor version that brought it; 0 is 0.81 or older.
    pub since: u32,
}

/// The layout of a struct, for tests and tools.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The struct's name in the header.
    pub name: &'static str,
    /// The minor version that brought it; 0 is 0.81 or older.
    pub since: u32,
    /// `sizeof`, with padding at the end.
    pub size: usize,
    /// `alignof`.
    pub align: usize,
    /// The fields in order.
    pub fields: &'static [Field],
}

/// A field of a struct.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The field's name, as Rust spells it (`r#type`).
    pub name: &'static str,
    /// Bytes from the start of the struct.
    pub offset: usize,
    /// The field's size in bytes.
    pub size: usize,
    /// The minor version that brought it; 0 is 0.81 or older.
    pub since: u32,
}

impl Layout {
    /// The struct's `STRUCT_SIZE` in the given minor version: the end of its last field then.
    pub const fn end_at(&self, minor: u32) -> usize {
        let mut end = 0;
        let mut index = 0;
        while index < self.fields.len() {
            let field = &self.fields[index];
            if field.since <= minor {
                end = field.offset + field.size;
            }
            index += 1;
        }
        end
    }
}

/// The layouts of all structs, by file.
pub const LAYOUTS: &[&[Layout]] = &[
    base::LAYOUTS,
    error::LAYOUTS,
    event::LAYOUTS,
    client::LAYOUTS,
    transfer::LAYOUTS,
    device::LAYOUTS,
    memory::LAYOUTS,
    buffer::LAYOUTS,
    executable::LAYOUTS,
    topology::LAYOUTS,
    extension::LAYOUTS,
];
