//! Extensions of a plugin: tables of functions beside the main one.

use std::{
    mem::{offset_of, transmute},
    ptr::NonNull,
};

use halite_core::{Error, ErrorKind, Result};
use halite_pjrt_sys::{
    PJRT_Api,
    base::{PJRT_Extension_Base, PJRT_Extension_Type},
    error::PJRT_Error,
    extension::{
        PJRT_FFI_Extension, PJRT_Layouts_Extension, PJRT_Profiler_Extension,
        PJRT_Shardings_Extension,
    },
};

use crate::{isolate::Boundary, table::Table};

/// An extension's struct, by its type.
pub(crate) trait ExtensionTable {
    const TYPE: PJRT_Extension_Type;
}

impl ExtensionTable for PJRT_Layouts_Extension {
    const TYPE: PJRT_Extension_Type = PJRT_Extension_Type::Layouts;
}
impl ExtensionTable for PJRT_Shardings_Extension {
    const TYPE: PJRT_Extension_Type = PJRT_Extension_Type::Shardings;
}
impl ExtensionTable for PJRT_Profiler_Extension {
    const TYPE: PJRT_Extension_Type = PJRT_Extension_Type::Profiler;
}
impl ExtensionTable for PJRT_FFI_Extension {
    const TYPE: PJRT_Extension_Type = PJRT_Extension_Type::FFI;
}

impl Table {
    /// The plugin's extensions: number, start, size.
    pub(crate) fn extensions(
        &self,
    ) -> impl Iterator<Item = (u32, NonNull<PJRT_Extension_Base>, usize)> {
        // SAFETY: the table has this field, and so have the entries of the list, which ends with
        // null.
        let first = unsafe {
            let field = self
                .start
                .cast::<u8>()
                .add(offset_of!(PJRT_Api, extension_start));
            field.cast::<*mut PJRT_Extension_Base>().read()
        };
        let mut next = NonNull::new(first);
        std::iter::from_fn(move || {
            let entry = next?;
            // SAFETY: as above.
            let base = unsafe { entry.read() };
            next = NonNull::new(base.next);
            Some((base.r#type.0, entry, base.struct_size))
        })
        // A list that closes in on itself would never end.
        .take(256)
    }

    /// An entry of an extension, if the plugin has the extension and it is long enough.
    pub(crate) fn extension_entry<X: ExtensionTable>(&self, offset: usize) -> Option<NonNull<()>> {
        let (_, start, size) = self
            .extensions()
            .find(|(number, ..)| *number == X::TYPE.0)?;
        if offset + size_of::<usize>() > size {
            return None;
        }
        // SAFETY: the extension is `size` bytes long.
        NonNull::new(unsafe { start.cast::<u8>().add(offset).cast::<*mut ()>().read() })
    }

    /// Calls the entry of an extension at `offset`.
    ///
    /// # Safety
    ///
    /// * The entry of `X` at `offset` takes these arguments, and they are valid for it.
    pub(crate) unsafe fn call_extension<X: ExtensionTable, A>(
        &self,
        op: &'static str,
        offset: usize,
        args: &mut A,
    ) -> Result<()> {
        let Some(entry) = self.extension_entry::<X>(offset) else {
            let (major, minor) = self.version;
            let message = format!(
                "{} (PJRT {major}.{minor}) has no such entry in a {:?} extension",
                self.name(),
                X::TYPE
            );
            return Err(Error::new(ErrorKind::Unsupported, op, message));
        };
        // SAFETY: by the caller's condition, the entry has this type.
        let entry = unsafe {
            transmute::<NonNull<()>, unsafe extern "C-unwind" fn(*mut A) -> *mut PJRT_Error>(entry)
        };
        let boundary = Boundary {
            plugin: self.name(),
            function: "a function of an extension",
        };
        // SAFETY: the caller's condition.
        let error = unsafe { entry(args) };
        std::mem::forget(boundary);
        // SAFETY: the error is new and ours.
        unsafe { self.check(op, error) }
    }
}
