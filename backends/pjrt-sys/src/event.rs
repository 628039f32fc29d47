//! Events: asynchronous work that completes once, with or without an error.

use std::ffi::{c_char, c_void};

use crate::error::{PJRT_Error, PJRT_Error_Code};
use crate::macros::{c_structs, opaque};

opaque! {
    /// An event, freed by the receiver.
    PJRT_Event
}

opaque! {
    /// Marks host-side waiting in profiles.
    PJRT_AsyncTrackingEvent
}

/// Owns `error` (null on success); `user_arg` is the caller's.
pub type PJRT_Event_OnReadyCallback =
    Option<unsafe extern "C" fn(error: *mut PJRT_Error, user_arg: *mut c_void)>;

c_structs! {
    /// Frees an event; null is allowed. A registered callback still runs.
    extensible PJRT_Event_Destroy_Args {
        event: *mut PJRT_Event,
    }

    /// Returns whether an event has completed, with or without an error.
    extensible PJRT_Event_IsReady_Args {
        event: *mut PJRT_Event,
        is_ready: bool,
    }

    /// The error of an event that is ready, a new one per call; null when it succeeded.
    extensible PJRT_Event_Error_Args {
        event: *mut PJRT_Event,
    }

    /// Blocks until an event is ready and returns its error.
    extensible PJRT_Event_Await_Args {
        event: *mut PJRT_Event,
    }

    /// Runs `callback(error, user_arg)` once the event is ready, on any thread; the callback owns
    /// the error.
    extensible PJRT_Event_OnReady_Args {
        event: *mut PJRT_Event,
        callback: PJRT_Event_OnReadyCallback,
        /// Stays the caller's; handed to the callback.
        user_arg: *mut c_void,
    }

    /// Frees a tracking event.
    extensible PJRT_AsyncTrackingEvent_Destroy_Args [since 86] {
        event: *mut PJRT_AsyncTrackingEvent,
    }

    /// Makes an event that the caller completes with `PJRT_Event_Set`.
    extensible PJRT_Event_Create_Args [since 89] {
        event: *mut PJRT_Event,
    }

    /// Completes an event made by `PJRT_Event_Create`; code 0 is success.
    extensible PJRT_Event_Set_Args [since 89] {
        event: *mut PJRT_Event,
        error_code: PJRT_Error_Code,
        error_message: *const c_char,
        error_message_size: usize,
    }
}
