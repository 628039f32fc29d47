//! Errors as the C API has them: a code and a message. Panics of a backend become one. Nothing here
//! knows handles or callers.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use halite_core::{Error, ErrorKind};
use halite_pjrt_sys::error::PJRT_Error_Code as Code;

/// The result of a call or of asynchronous work.
pub(crate) type Outcome<T = ()> = Result<T, Status>;

/// An error code with a message. Cheap to clone: each wait for an event returns a new error.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Status {
    pub(crate) code: Code,
    pub(crate) message: Arc<str>,
    /// The message names the operation already.
    names_operation: bool,
}

impl Status {
    pub(crate) fn new(code: Code, message: impl Into<Arc<str>>) -> Self {
        Status {
            code,
            message: message.into(),
            names_operation: false,
        }
    }

    /// An error that is returned without the name of the C function.
    fn of_work(code: Code, message: impl Into<Arc<str>>) -> Self {
        Status {
            names_operation: true,
            ..Status::new(code, message)
        }
    }

    pub(crate) fn invalid(message: impl Into<Arc<str>>) -> Self {
        Status::new(Code::INVALID_ARGUMENT, message)
    }

    pub(crate) fn internal(message: impl Into<Arc<str>>) -> Self {
        Status::new(Code::INTERNAL, message)
    }

    pub(crate) fn exhausted(message: impl Into<Arc<str>>) -> Self {
        Status::new(Code::RESOURCE_EXHAUSTED, message)
    }

    pub(crate) fn unimplemented(message: impl Into<Arc<str>>) -> Self {
        Status::new(Code::UNIMPLEMENTED, message)
    }

    /// Puts the name of the C function before the message, unless it names an operation.
    pub(crate) fn in_function(self, name: &str) -> Self {
        if self.names_operation {
            self
        } else {
            Status::of_work(self.code, format!("{name}: {}", self.message))
        }
    }

    /// The status of a code that a caller passed; `Ok` for 0.
    pub(crate) fn of_code(code: Code, message: &str) -> Outcome {
        match code {
            Code::OK => Ok(()),
            code => Err(Status::of_work(code, message)),
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Cancelled => Code::CANCELLED,
            ErrorKind::Corrupt => Code::DATA_LOSS,
            ErrorKind::DeadlineExceeded => Code::DEADLINE_EXCEEDED,
            ErrorKind::InvalidArgument => Code::INVALID_ARGUMENT,
            ErrorKind::OutOfMemory => Code::RESOURCE_EXHAUSTED,
            ErrorKind::Unavailable | ErrorKind::Io => Code::UNAVAILABLE,
            ErrorKind::Unsupported => Code::UNIMPLEMENTED,
            _ => Code::INTERNAL,
        };
        Status::of_work(code, error.to_string())
    }
}

/// The error of an event that a backend made with the SDK.
impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let kind = match status.code {
            Code::CANCELLED => ErrorKind::Cancelled,
            Code::DATA_LOSS => ErrorKind::Corrupt,
            Code::DEADLINE_EXCEEDED => ErrorKind::DeadlineExceeded,
            Code::INVALID_ARGUMENT => ErrorKind::InvalidArgument,
            Code::RESOURCE_EXHAUSTED => ErrorKind::OutOfMemory,
            Code::UNAVAILABLE => ErrorKind::Unavailable,
            Code::UNIMPLEMENTED => ErrorKind::Unsupported,
            _ => ErrorKind::Internal,
        };
        match (status.names_operation, status.message.split_once(": ")) {
            (true, Some((op, message))) => Error::new(kind, op.to_owned(), message),
            _ => Error::new(kind, "compute", &*status.message),
        }
    }
}

/// Runs code that may call the backend. A panic becomes an INTERNAL error with its message.
pub(crate) fn guard<T>(run: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| Err(panicked(payload)))
}

#[cold]
fn panicked(payload: Box<dyn Any + Send>) -> Status {
    Status::internal(format!("panic in the plugin: {}", panic_text(payload)))
}

/// The message of a panic.
pub(crate) fn panic_text(payload: Box<dyn Any + Send>) -> String {
    match (
        payload.downcast_ref::<&str>(),
        payload.downcast_ref::<String>(),
    ) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => {
            // Its destructor may panic as well.
            std::mem::forget(payload);
            "a value that is not a string".to_owned()
        }
    }
}

/// Drops a value of a backend. A panic of its destructor is logged: callers cannot undo what they
/// destroyed, and JAX ends the process on an error.
pub(crate) fn drop_logged<T>(value: T) {
    let dropped = guard(|| {
        drop(value);
        Ok(())
    });
    if let Err(status) = dropped {
        tracing::error!("a destructor failed: {}", status.message);
    }
}
