//! Callbacks of the caller.

use std::ffi::c_void;

use halite_pjrt_sys::{
    error::{PJRT_Error, PJRT_Error_ForEachPayload_Args},
    event::PJRT_Event_OnReady_Args,
};

use super::Given;
use crate::{
    handle::publish_error,
    status::{Outcome, Status},
};

/// A callback of `PJRT_Event_OnReady`.
pub(crate) struct ErrorCallback {
    callback: unsafe extern "C" fn(*mut PJRT_Error, *mut c_void),
    user_arg: *mut c_void,
}

// SAFETY: a plugin may call it on any thread (header), and `user_arg` is only passed on.
unsafe impl Send for ErrorCallback {}

impl ErrorCallback {
    /// The callback of these arguments.
    pub(crate) fn new(args: &Given<PJRT_Event_OnReady_Args>) -> Result<Self, Status> {
        let callback = args
            .callback
            .ok_or_else(|| Status::invalid("`callback` is null"))?;
        Ok(ErrorCallback {
            callback,
            user_arg: args.user_arg,
        })
    }

    /// Calls it with a new error, or null for success.
    pub(crate) fn call(self, outcome: Outcome) {
        let error = outcome.err().map_or(std::ptr::null_mut(), publish_error);
        // SAFETY: the caller's function, with the caller's argument, once.
        unsafe { (self.callback)(error, self.user_arg) };
    }
}

/// Calls the caller's visitor with each payload of an error. Errors of this SDK have none.
pub(crate) fn visit_payloads(args: &Given<PJRT_Error_ForEachPayload_Args>) -> Outcome {
    match args.visitor {
        Some(_) => Ok(()),
        None => Err(Status::invalid("`visitor` is null")),
    }
}
