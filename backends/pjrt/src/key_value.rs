//! A key-value store as the callbacks of a plugin: drivers of several processes find each other's
//! devices through it.
//!
//! The plugin may call them on any thread, and for as long as the process lives.

use std::{
    ffi::{c_char, c_int, c_void},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, slice,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use halite_core::{Error, ErrorKind, KeyValueStore, Result};
use halite_pjrt_sys::{client::*, error::*};

/// A store with what its callbacks need.
pub(crate) struct Callbacks {
    store: Arc<dyn KeyValueStore>,
    /// End of the time in which the client has to be created.
    until: Option<Instant>,
    /// The client is created.
    is_created: AtomicBool,
}

/// Time before the end of a creation at which waits end, so that their error is that of the
/// creation.
const EARLIER: Duration = Duration::from_secs(2);

impl Callbacks {
    /// Callbacks for a client that has to be created within `deadline`. They are never freed.
    pub(crate) fn of(store: Arc<dyn KeyValueStore>, deadline: Duration) -> &'static Self {
        let patience = deadline.saturating_sub(EARLIER.min(deadline / 4));
        Box::leak(Box::new(Callbacks {
            store,
            until: Instant::now().checked_add(patience),
            is_created: AtomicBool::new(false),
        }))
    }

    /// Gives the callbacks to a plugin.
    pub(crate) fn set(&'static self, args: &mut PJRT_Client_Create_Args) {
        let this: *mut c_void = ptr::from_ref(self).cast_mut().cast();
        args.kv_get_callback = Some(get);
        args.kv_get_user_arg = this;
        args.kv_put_callback = Some(put);
        args.kv_put_user_arg = this;
        args.kv_try_get_callback = Some(try_get);
        args.kv_try_get_user_arg = this;
    }

    /// Ends the deadline of the creation.
    pub(crate) fn created(&self) {
        self.is_created.store(true, Relaxed);
    }

    /// The time that a wait may take of which the plugin says `millis`.
    fn patience(&self, millis: c_int) -> Duration {
        let asked = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        match self.until {
            Some(until) if !self.is_created.load(Relaxed) => {
                asked.min(until.saturating_duration_since(Instant::now()))
            }
            _ => asked,
        }
    }
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

/// `PJRT_KeyValueGetCallback`.
///
/// # Safety
///
/// * `args` points at the arguments of this callback, whose `user_arg` is that of
///   [`Callbacks::set`].
unsafe extern "C" fn get(args: *mut PJRT_KeyValueGetCallback_Args) -> *mut PJRT_Error {
    // SAFETY: this function's condition.
    let args = unsafe { &mut *args };
    // SAFETY: as above; the key has this length (header).
    let (callbacks, key) = unsafe { (called(args.user_arg), key(args.key, args.key_size)) };
    let patience = callbacks.patience(args.timeout_in_ms);
    match guarded(|| callbacks.store.get(&key, patience)) {
        Ok(value) => {
            (args.value, args.value_size) = (hand_over(&value), value.len());
            args.value_deleter_callback = Some(free);
            ptr::null_mut()
        }
        // SAFETY: the plugin's function (header).
        Err(error) => unsafe { fail(args.callback_error, code_of(&error), &error.to_string()) },
    }
}

/// `PJRT_KeyValueTryGetCallback`.
///
/// # Safety
///
/// * As for [`get`].
unsafe extern "C" fn try_get(args: *mut PJRT_KeyValueTryGetCallback_Args) -> *mut PJRT_Error {
    // SAFETY: this function's condition.
    let args = unsafe { &mut *args };
    // SAFETY: as above; the key has this length (header).
    let (callbacks, key) = unsafe { (called(args.user_arg), key(args.key, args.key_size)) };
    let (code, message) = match guarded(|| callbacks.store.try_get(&key)) {
        Ok(Some(value)) => {
            (args.value, args.value_size) = (hand_over(&value), value.len());
            args.value_deleter_callback = Some(free);
            return ptr::null_mut();
        }
        Ok(None) => (PJRT_Error_Code::NOT_FOUND, format!("no key `{key}`")),
        Err(error) => (code_of(&error), error.to_string()),
    };
    // SAFETY: the plugin's function (header).
    unsafe { fail(args.callback_error, code, &message) }
}

/// `PJRT_KeyValuePutCallback`.
///
/// # Safety
///
/// * As for [`get`].
unsafe extern "C" fn put(args: *mut PJRT_KeyValuePutCallback_Args) -> *mut PJRT_Error {
    // SAFETY: this function's condition.
    let args = unsafe { &mut *args };
    // SAFETY: as above; key and value have these lengths (header).
    let (callbacks, key, value) = unsafe {
        let value = bytes(args.value, args.value_size);
        (called(args.user_arg), key(args.key, args.key_size), value)
    };
    match guarded(|| callbacks.store.put(&key, value)) {
        Ok(()) => ptr::null_mut(),
        // SAFETY: the plugin's function (header).
        Err(error) => unsafe { fail(args.callback_error, code_of(&error), &error.to_string()) },
    }
}

/// # Safety
///
/// * `user_arg` is that of [`Callbacks::set`].
unsafe fn called(user_arg: *mut c_void) -> &'static Callbacks {
    // SAFETY: this function's condition; callbacks are never freed.
    unsafe { &*user_arg.cast_const().cast() }
}

/// # Safety
///
/// * `start` points at `size` bytes that stay during the call, or `size` is 0.
unsafe fn bytes<'a>(start: *const c_char, size: usize) -> &'a [u8] {
    match size {
        0 => &[],
        // SAFETY: this function's condition.
        size => unsafe { slice::from_raw_parts(start.cast(), size) },
    }
}

/// A key as text: keys may have any bytes.
///
/// # Safety
///
/// * As for [`bytes`].
unsafe fn key(start: *const c_char, size: usize) -> String {
    // SAFETY: this function's condition.
    unsafe { bytes(start, size) }.escape_ascii().to_string()
}

/// Calls the store. A panic is an error: it must not unwind into the plugin.
fn guarded<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        let message = "the key-value store panicked";
        Err(Error::new(ErrorKind::Internal, "key-value store", message))
    })
}

fn code_of(error: &Error) -> PJRT_Error_Code {
    match error.kind() {
        ErrorKind::DeadlineExceeded => PJRT_Error_Code::DEADLINE_EXCEEDED,
        ErrorKind::InvalidArgument => PJRT_Error_Code::INVALID_ARGUMENT,
        ErrorKind::Unavailable => PJRT_Error_Code::UNAVAILABLE,
        _ => PJRT_Error_Code::INTERNAL,
    }
}

/// Makes an error of the plugin's.
///
/// # Safety
///
/// * `callback_error` points at the plugin's function for errors.
unsafe fn fail(
    callback_error: *mut PJRT_CallbackError,
    code: PJRT_Error_Code,
    message: &str,
) -> *mut PJRT_Error {
    // SAFETY: this function's condition; the plugin copies the message.
    unsafe {
        let make = (*callback_error).expect("the header has a function for errors");
        make(code, message.as_ptr().cast(), message.len())
    }
}

/// Length of a value, before its bytes.
const HEADER: usize = size_of::<usize>();

/// Copies a value to memory that [`free`] frees.
fn hand_over(value: &[u8]) -> *mut c_char {
    let mut memory = Vec::with_capacity(HEADER + value.len());
    memory.extend(value.len().to_ne_bytes());
    memory.extend(value);
    let memory: *mut u8 = Box::into_raw(memory.into_boxed_slice()).cast();
    memory.wrapping_add(HEADER).cast()
}

/// Frees a value.
///
/// # Safety
///
/// * `value` is a result of [`hand_over`] that is not used any more.
unsafe extern "C" fn free(value: *mut c_char) {
    let memory = value.cast::<u8>().wrapping_sub(HEADER);
    // SAFETY: this function's condition: the allocation begins with the length of the value.
    unsafe {
        let length = memory.cast::<usize>().read_unaligned();
        let memory = ptr::slice_from_raw_parts_mut(memory, HEADER + length);
        drop(Box::from_raw(memory));
    }
}

#[cfg(test)]
mod tests {
    use halite_core::LocalStore;

    use super::*;

    /// The plugin's function for errors: the code, as an address.
    unsafe extern "C-unwind" fn error(
        code: PJRT_Error_Code,
        message: *const c_char,
        size: usize,
    ) -> *mut PJRT_Error {
        // SAFETY: the message has this length.
        assert!(!unsafe { bytes(message, size) }.is_empty());
        ptr::without_provenance_mut(code.0 as usize)
    }

    fn create_args(store: LocalStore, deadline: Duration) -> PJRT_Client_Create_Args {
        let mut args = PJRT_Client_Create_Args::new();
        Callbacks::of(Arc::new(store), deadline).set(&mut args);
        args
    }

    fn code(error: *mut PJRT_Error) -> PJRT_Error_Code {
        PJRT_Error_Code(error.addr() as u32)
    }

    #[test]
    fn values_go_through_the_callbacks() {
        let create = create_args(LocalStore::default(), Duration::from_secs(60));
        let (name, value) = (b"topology/\xff\0", [7u8, 0, 255]);
        let mut put = PJRT_KeyValuePutCallback_Args {
            key: name.as_ptr().cast(),
            key_size: name.len(),
            value: value.as_ptr().cast(),
            value_size: value.len(),
            callback_error: &mut Some(error as _),
            user_arg: create.kv_put_user_arg,
            ..PJRT_KeyValuePutCallback_Args::new()
        };
        let mut get = PJRT_KeyValueGetCallback_Args {
            key: name.as_ptr().cast(),
            key_size: name.len(),
            timeout_in_ms: 1_000,
            callback_error: &mut Some(error as _),
            user_arg: create.kv_get_user_arg,
            ..PJRT_KeyValueGetCallback_Args::new()
        };
        let mut try_get = PJRT_KeyValueTryGetCallback_Args {
            key: name.as_ptr().cast(),
            key_size: name.len() - 1,
            callback_error: &mut Some(error as _),
            user_arg: create.kv_try_get_user_arg,
            ..PJRT_KeyValueTryGetCallback_Args::new()
        };
        // SAFETY: the arguments are those of the callbacks, and the values are freed once.
        unsafe {
            assert!(create.kv_put_callback.unwrap()(&mut put).is_null());
            assert!(create.kv_get_callback.unwrap()(&mut get).is_null());
            assert_eq!(bytes(get.value, get.value_size), value);
            get.value_deleter_callback.unwrap()(get.value);
            let absent = create.kv_try_get_callback.unwrap()(&mut try_get);
            assert_eq!(code(absent), PJRT_Error_Code::NOT_FOUND);
            try_get.key_size += 1;
            assert!(create.kv_try_get_callback.unwrap()(&mut try_get).is_null());
            assert_eq!(bytes(try_get.value, try_get.value_size), value);
            try_get.value_deleter_callback.unwrap()(try_get.value);
        }
    }

    #[test]
    fn wait_ends_before_the_creation_does() {
        let create = create_args(LocalStore::default(), Duration::from_millis(200));
        let mut get = PJRT_KeyValueGetCallback_Args {
            timeout_in_ms: 600_000,
            callback_error: &mut Some(error as _),
            user_arg: create.kv_get_user_arg,
            ..PJRT_KeyValueGetCallback_Args::new()
        };
        // SAFETY: the arguments are those of the callback.
        let late = unsafe { create.kv_get_callback.unwrap()(&mut get) };
        assert_eq!(code(late), PJRT_Error_Code::DEADLINE_EXCEEDED);
    }
}
