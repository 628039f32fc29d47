//! Errors. Functions return null for success, else an error that the caller frees.

use std::ffi::{c_char, c_void};

use crate::macros::{c_enum, c_structs, opaque};

opaque! {
    /// An error, owned by the receiver.
    PJRT_Error
}

c_enum! {
    /// The codes of `absl::Status`.
    PJRT_Error_Code {
        OK = 0,
        CANCELLED = 1,
        UNKNOWN = 2,
        INVALID_ARGUMENT = 3,
        DEADLINE_EXCEEDED = 4,
        NOT_FOUND = 5,
        ALREADY_EXISTS = 6,
        PERMISSION_DENIED = 7,
        RESOURCE_EXHAUSTED = 8,
        FAILED_PRECONDITION = 9,
        ABORTED = 10,
        OUT_OF_RANGE = 11,
        UNIMPLEMENTED = 12,
        INTERNAL = 13,
        UNAVAILABLE = 14,
        DATA_LOSS = 15,
        UNAUTHENTICATED = 16,
    }
}

/// Given by a plugin to the caller's callbacks, so that they can return an error of the plugin's
/// kind. The message is copied.
pub type PJRT_CallbackError = Option<
    unsafe extern "C-unwind" fn(
        code: PJRT_Error_Code,
        message: *const c_char,
        message_size: usize,
    ) -> *mut PJRT_Error,
>;

/// Receives one key and payload (both with sizes, not terminated by NUL) and the caller's
/// `user_arg`.
pub type PJRT_Error_PayloadVisitor = Option<
    unsafe extern "C" fn(
        key: *const c_char,
        key_size: usize,
        value: *const c_char,
        value_size: usize,
        user_arg: *mut c_void,
    ),
>;

c_structs! {
    /// Frees an error; null is allowed.
    extensible PJRT_Error_Destroy_Args {
        error: *mut PJRT_Error,
    }

    /// The text of an error, which lives as long as the error.
    extensible PJRT_Error_Message_Args {
        error: *const PJRT_Error,
        message: *const c_char,
        message_size: usize,
    }

    /// The code of an error.
    extensible PJRT_Error_GetCode_Args {
        error: *const PJRT_Error,
        code: PJRT_Error_Code,
    }

    /// Calls `visitor` for each key and payload attached to an error.
    extensible PJRT_Error_ForEachPayload_Args [since 99] {
        error: *const PJRT_Error,
        visitor: PJRT_Error_PayloadVisitor,
        user_arg: *mut c_void,
    }
}
