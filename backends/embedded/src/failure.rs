//! Errors that are reported more than once.

use std::sync::Arc;

use halite_core::{Error, ErrorKind};

/// An error that any number of waits can return.
#[derive(Clone, Debug)]
pub(crate) struct Failure(Arc<Error>);

impl Failure {
    pub(crate) fn error(&self) -> Error {
        let mut error = Error::new(
            self.0.kind(),
            self.0.op().to_owned(),
            self.0.message().to_owned(),
        );
        if let Some(shortage) = self.0.shortage() {
            error = error.caused_by(shortage);
        }
        match self.0.platform() {
            Some(platform) => error.on(&Arc::from(platform)),
            None => error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure(Arc::new(error))
    }
}

/// The error of work that nobody can observe any more, or that was stopped with its client.
pub(crate) fn cancelled() -> Error {
    Error::new(
        ErrorKind::Cancelled,
        "run",
        "the client was dropped while the program ran",
    )
}
