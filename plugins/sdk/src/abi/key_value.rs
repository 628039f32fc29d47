//! The key-value store of the caller: its callbacks as a [`KeyValueStore`].

use std::{
    ffi::{c_char, c_int, c_void},
    fmt, ptr, slice,
    time::Duration,
};

use halite_core::{Error, ErrorKind, KeyValueStore, Result};
use halite_pjrt_sys::{
    client::*,
    error::{PJRT_CallbackError, PJRT_Error, PJRT_Error_Code},
};

use super::Given;
use crate::{
    handle::{publish_error, take},
    status::{Outcome, Status},
};

/// Callbacks of a caller that creates a client.
#[derive(Clone, Copy)]
pub(crate) struct CallerStore {
    get: PJRT_KeyValueGetCallback,
    get_arg: *mut c_void,
    put: PJRT_KeyValuePutCallback,
    put_arg: *mut c_void,
    try_get: PJRT_KeyValueTryGetCallback,
    try_get_arg: *mut c_void,
}

// SAFETY: a plugin may call them on any thread (header), and the arguments are only passed on.
unsafe impl Send for CallerStore {}
// SAFETY: as above.
unsafe impl Sync for CallerStore {}

impl CallerStore {
    /// The callbacks in these arguments. They must not be called in a job of one process, whose
    /// caller may leave them uninitialized.
    pub(crate) fn of(args: &Given<PJRT_Client_Create_Args>) -> Self {
        CallerStore {
            get: args.kv_get_callback,
            get_arg: args.kv_get_user_arg,
            put: args.kv_put_callback,
            put_arg: args.kv_put_user_arg,
            try_get: args.kv_try_get_callback,
            try_get_arg: args.kv_try_get_user_arg,
        }
    }

    /// Returns whether none of them is null.
    pub(crate) fn is_complete(&self) -> bool {
        self.get.is_some() && self.put.is_some() && self.try_get.is_some()
    }
}

/// The function of this plugin with which a callback makes an error.
static CALLBACK_ERROR: PJRT_CallbackError = Some(callback_error);

/// A pointer to it, which callbacks only read through.
fn callback_error_pointer() -> *mut PJRT_CallbackError {
    ptr::from_ref(&CALLBACK_ERROR).cast_mut()
}

/// Makes an error for a callback of the caller.
///
/// # Safety
///
/// * `message` points at `size` bytes, or `size` is 0.
unsafe extern "C-unwind" fn callback_error(
    code: PJRT_Error_Code,
    message: *const c_char,
    size: usize,
) -> *mut PJRT_Error {
    let bytes: &[u8] = match size {
        0 => &[],
        // SAFETY: this function's condition.
        size => unsafe { slice::from_raw_parts(message.cast(), size) },
    };
    publish_error(Status::new(code, String::from_utf8_lossy(bytes)))
}

/// The outcome of a callback.
fn outcome(error: *mut PJRT_Error) -> Outcome {
    match take::<Status>(error)? {
        None => Ok(()),
        Some(status) => Err((*status).clone()),
    }
}

/// The error of a call.
fn failed(status: &Status) -> Error {
    let kind = match status.code {
        PJRT_Error_Code::DEADLINE_EXCEEDED => ErrorKind::DeadlineExceeded,
        PJRT_Error_Code::INVALID_ARGUMENT => ErrorKind::InvalidArgument,
        PJRT_Error_Code::UNAVAILABLE => ErrorKind::Unavailable,
        _ => ErrorKind::Internal,
    };
    Error::new(kind, "key-value store", &*status.message)
}

/// Copies a value of the caller, and lets the caller free it.
///
/// # Safety
///
/// * `value` points at `size` bytes, which `free` frees.
unsafe fn taken(
    value: *mut c_char,
    size: usize,
    free: Option<unsafe extern "C" fn(*mut c_char)>,
) -> Vec<u8> {
    if value.is_null() {
        return Vec::new();
    }
    // SAFETY: this function's condition.
    unsafe {
        let copy = slice::from_raw_parts(value.cast::<u8>(), size).to_vec();
        if let Some(free) = free {
            free(value);
        }
        copy
    }
}

impl KeyValueStore for CallerStore {
    fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        let mut args = PJRT_KeyValuePutCallback_Args {
            key: key.as_ptr().cast(),
            key_size: key.len(),
            value: value.as_ptr().cast(),
            value_size: value.len(),
            callback_error: callback_error_pointer(),
            user_arg: self.put_arg,
            ..PJRT_KeyValuePutCallback_Args::new()
        };
        let put = self.put.expect("the store is complete");
        // SAFETY: the caller's function with the caller's argument; key and value live during the
        // call.
        let error = unsafe { put(&mut args) };
        outcome(error).map_err(|status| failed(&status))
    }

    fn get(&self, key: &str, patience: Duration) -> Result<Vec<u8>> {
        let mut args = PJRT_KeyValueGetCallback_Args {
            key: key.as_ptr().cast(),
            key_size: key.len(),
            timeout_in_ms: c_int::try_from(patience.as_millis()).unwrap_or(c_int::MAX),
            callback_error: callback_error_pointer(),
            user_arg: self.get_arg,
            ..PJRT_KeyValueGetCallback_Args::new()
        };
        let get = self.get.expect("the store is complete");
        // SAFETY: the caller's function with the caller's argument; the key lives during the call.
        let error = unsafe { get(&mut args) };
        outcome(error).map_err(|status| failed(&status))?;
        // SAFETY: the call succeeded, so that the value is there (header).
        Ok(unsafe { taken(args.value, args.value_size, args.value_deleter_callback) })
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let mut args = PJRT_KeyValueTryGetCallback_Args {
            key: key.as_ptr().cast(),
            key_size: key.len(),
            callback_error: callback_error_pointer(),
            user_arg: self.try_get_arg,
            ..PJRT_KeyValueTryGetCallback_Args::new()
        };
        let try_get = self.try_get.expect("the store is complete");
        // SAFETY: the caller's function with the caller's argument; the key lives during the call.
        let error = unsafe { try_get(&mut args) };
        match outcome(error) {
            // SAFETY: the call succeeded, so that the value is there (header).
            Ok(()) => Ok(Some(unsafe {
                taken(args.value, args.value_size, args.value_deleter_callback)
            })),
            Err(status) if status.code == PJRT_Error_Code::NOT_FOUND => Ok(None),
            Err(status) => Err(failed(&status)),
        }
    }
}

impl fmt::Debug for CallerStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallerStore")
    }
}
