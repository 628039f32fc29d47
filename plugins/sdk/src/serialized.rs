//! Bytes that a caller frees with the deleter that it gets with them.

use std::{ffi::c_char, marker::PhantomData, sync::Arc};

use halite_pjrt_sys::{device::*, executable::*, topology::PJRT_SerializedTopology};

use crate::{
    handle::{Object, objects, publish, take},
    options::NamedValues,
    status::{drop_logged, guard},
};

/// Bytes behind a handle of type `H`.
pub(crate) struct Bytes<H> {
    bytes: Vec<u8>,
    handle: PhantomData<fn() -> H>,
}

objects! {
    Bytes<PJRT_SerializedTopology> => PJRT_SerializedTopology,
    Bytes<PJRT_SerializedExecutable> => PJRT_SerializedExecutable,
    Bytes<PJRT_SerializedCompileOptions> => PJRT_SerializedCompileOptions,
    Bytes<PJRT_DeviceAssignmentSerialized> => PJRT_DeviceAssignmentSerialized,
    NamedValues => PJRT_Device_Attributes,
}

/// What a caller gets: start, length, handle, deleter.
pub(crate) struct Published<H> {
    pub(crate) start: *const c_char,
    pub(crate) length: usize,
    pub(crate) handle: *mut H,
    pub(crate) deleter: Option<unsafe extern "C-unwind" fn(*mut H)>,
}

impl<H: 'static> Bytes<H>
where
    Bytes<H>: Object<Handle = H>,
{
    /// Gives bytes to a caller.
    pub(crate) fn publish(bytes: Vec<u8>) -> Published<H> {
        let (start, length) = (bytes.as_ptr().cast(), bytes.len());
        let handle = publish(Arc::new(Bytes {
            bytes,
            handle: PhantomData,
        }));
        Published {
            start,
            length,
            handle,
            deleter: Some(delete::<Self>),
        }
    }
}

impl<H> std::fmt::Debug for Bytes<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bytes({})", self.bytes.len())
    }
}

/// Frees an object. Cannot fail.
pub(crate) extern "C-unwind" fn delete<T: Object>(handle: *mut T::Handle) {
    _ = guard(|| {
        drop_logged(take::<T>(handle)?);
        Ok(())
    });
}
