//! Callbacks of the caller.

use std::ffi::c_void;

use halite_pjrt_sys::{
    error::PJRT_Error_ForEachPayload_Args,
    event::{PJRT_Event_OnReady_Args, PJRT_Event_OnReadyCallback},
};

use super::Given;
use crate::status::{Outcome, Status};

/// A callback of `PJRT_Event_OnReady`, which runs exactly once: with an error if it is dropped
/// before.
pub(crate) struct ErrorCallback {
    callback: PJRT_Event_OnReadyCallback,
    user_arg: *mut c_void,
}

// SAFETY: a plugin may call it on any thread (header), and `user_arg` is only passed on.
unsafe impl Send for ErrorCallback {}

impl ErrorCallback {
    /// The callback of these arguments.
    pub(crate) fn new(args: &Given<PJRT_Event_OnReady_Args>) -> Result<Self, Status> {
        if args.callback.is_none() {
            return Err(Status::invalid("`callback` is null"));
        }
        Ok(ErrorCallback {
            callback: args.callback,
            user_arg: args.user_arg,
        })
    }

    /// Calls it with a new error, or null for success.
    pub(crate) fn call(mut self, outcome: Outcome) {
        self.call_once(outcome);
    }

    fn call_once(&mut self, outcome: Outcome) {
        if let Some(callback) = self.callback.take() {
            let error = outcome
                .err()
                .map_or(std::ptr::null_mut(), Status::into_handle);
            // SAFETY: the caller's function, with the caller's argument, once.
            unsafe { callback(error, self.user_arg) };
        }
    }
}

impl Drop for ErrorCallback {
    fn drop(&mut self) {
        self.call_once(Err(Status::internal(
            "the backend dropped a callback of `Event::on_ready` without calling it",
        )));
    }
}

/// Calls the caller's visitor with each payload of an error. Errors of this SDK have none.
pub(crate) fn visit_payloads(args: &Given<PJRT_Error_ForEachPayload_Args>) -> Outcome {
    match args.visitor {
        Some(_) => Ok(()),
        None => Err(Status::invalid("`visitor` is null")),
    }
}
