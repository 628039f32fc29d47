//! Errors of a plugin as errors of halite.

use std::ptr::NonNull;

use halite_core::{Error, ErrorKind, Result};
use halite_pjrt_sys::error::*;

use crate::{
    table::Table,
    value::{bytes_of, printable},
};

impl Table {
    /// Converts a plugin's error and frees it; the result names the failed operation.
    ///
    /// # Safety
    ///
    /// * `error` is null or an error of this table's plugin that nobody else frees.
    pub(crate) unsafe fn check(&self, op: &'static str, error: *mut PJRT_Error) -> Result<()> {
        match NonNull::new(error) {
            None => Ok(()),
            // SAFETY: by this function's own condition.
            Some(error) => Err(unsafe { self.take_error(op, error) }),
        }
    }

    #[cold]
    unsafe fn take_error(&self, op: &'static str, error: NonNull<PJRT_Error>) -> Error {
        let mut message = args!(PJRT_Error_Message_Args, error: error.as_ptr());
        let mut code = args!(PJRT_Error_GetCode_Args, error: error.as_ptr());
        let mut destroy = args!(PJRT_Error_Destroy_Args, error: error.as_ptr());
        let no_code = PJRT_Error_Code::UNKNOWN;
        // SAFETY: the error is alive until the last call, the text is copied before, and the three
        // slots were found to be there when the plugin was loaded. An error of `GetCode` itself is
        // freed the same way.
        let (text, code) = unsafe {
            self.function(&message).expect("checked when loaded")(&mut message);
            let text = match bytes_of(self.name(), message.message, message.message_size) {
                Ok(bytes) => shortened(bytes),
                Err(error) => error.message().to_owned(),
            };
            let nested = self.function(&code).expect("checked when loaded")(&mut code);
            let number = if nested.is_null() { code.code } else { no_code };
            let free = self.function(&destroy).expect("checked when loaded");
            free(&mut destroy);
            if !nested.is_null() {
                free(&mut PJRT_Error_Destroy_Args {
                    error: nested,
                    ..PJRT_Error_Destroy_Args::new()
                });
            }
            (text, number)
        };
        Error::new(kind_of(code), op, describe(&text, code))
    }
}

/// Shortens a message for printing: compilers include whole programs in theirs.
fn shortened(message: &[u8]) -> String {
    const SHOWN: usize = 16 << 10;
    let text = printable(&String::from_utf8_lossy(
        &message[..message.len().min(SHOWN)],
    ));
    match message.len().saturating_sub(SHOWN) {
        0 => text,
        more => format!("{text} .. ({more} more bytes)"),
    }
}

/// The kind of error for a status code.
fn kind_of(code: PJRT_Error_Code) -> ErrorKind {
    use PJRT_Error_Code as Code;
    match code {
        Code::CANCELLED => ErrorKind::Cancelled,
        Code::INVALID_ARGUMENT
        | Code::OUT_OF_RANGE
        | Code::FAILED_PRECONDITION
        | Code::ALREADY_EXISTS => ErrorKind::InvalidArgument,
        Code::DEADLINE_EXCEEDED => ErrorKind::DeadlineExceeded,
        Code::RESOURCE_EXHAUSTED => ErrorKind::OutOfMemory,
        Code::UNIMPLEMENTED => ErrorKind::Unsupported,
        Code::DATA_LOSS => ErrorKind::Corrupt,
        // A device that is not there is NOT_FOUND, a lock file of another process is ABORTED.
        Code::NOT_FOUND
        | Code::UNAVAILABLE
        | Code::ABORTED
        | Code::PERMISSION_DENIED
        | Code::UNAUTHENTICATED => ErrorKind::Unavailable,
        _ => ErrorKind::Internal,
    }
}

fn describe(text: &str, code: PJRT_Error_Code) -> String {
    match text.trim() {
        "" => format!("the plugin returned {code:?} without a message"),
        // Most plugins begin their text with the code.
        text if text.starts_with(&format!("{code:?}")) => text.to_owned(),
        text => format!("{text} ({code:?})"),
    }
}
