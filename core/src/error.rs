//! The error type of the whole stack.

use std::{error::Error as StdError, fmt, io, sync::Arc};

/// `Result` with halite's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: the operation, the platform, a message with the values and what would work, and a
/// [kind](Error::kind) that a caller can act on.
///
/// Prints as `upload on cuda: 12 bytes given, f32[2, 3] needs 24`.
pub struct Error(Box<Parts>);

struct Parts {
    kind: ErrorKind,
    op: String,
    platform: Option<Arc<str>>,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    /// Whether the memory is the host's, not a device's.
    of_host: bool,
}

/// The kinds of [`Error`], by what a caller can do about them.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operation was stopped on request.
    Cancelled,
    /// A file or a download has a wrong digest, length or format.
    Corrupt,
    /// A wait exceeded its limit.
    DeadlineExceeded,
    /// Training produced a number that is not finite.
    Diverged,
    /// A bug in halite or in a plugin: please report it.
    Internal,
    /// The caller passed invalid values.
    InvalidArgument,
    /// Reading or writing a file failed.
    Io,
    /// The device or the host does not have enough memory.
    OutOfMemory,
    /// A device, a plugin, a network or another resource is not available here or now.
    Unavailable,
    /// The platform or its version does not support the operation.
    Unsupported,
}

impl Error {
    /// An error of the operation `op` (`upload`, `compile`). `message` has the values with which it
    /// failed and what would work.
    pub fn new(kind: ErrorKind, op: impl Into<String>, message: impl Into<String>) -> Self {
        Error(Box::new(Parts {
            kind,
            op: op.into(),
            platform: None,
            message: message.into(),
            source: None,
            of_host: false,
        }))
    }

    /// An [`ErrorKind::InvalidArgument`].
    pub fn invalid(op: impl Into<String>, message: impl Into<String>) -> Self {
        Error::new(ErrorKind::InvalidArgument, op, message)
    }

    /// Appends a note to the message.
    pub fn with_note(mut self, note: &str) -> Self {
        self.0.message = format!("{}; {note}", self.0.message);
        self
    }

    /// Marks an [`ErrorKind::OutOfMemory`] as one of the host's memory, which says nothing about the
    /// memory of a device.
    pub fn of_host(mut self) -> Self {
        self.0.of_host = true;
        self
    }

    /// Whether it is the memory of the host that was not enough.
    pub fn is_of_host(&self) -> bool {
        self.0.of_host
    }

    /// Sets the platform on which it occurred.
    pub fn on(mut self, platform: &Arc<str>) -> Self {
        self.0.platform = Some(platform.clone());
        self
    }

    /// Sets the cause, which is printed after the message and returned by `source`.
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The kind of error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The operation that failed.
    pub fn op(&self) -> &str {
        &self.0.op
    }

    /// The message without operation, platform and cause.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The memory that is missing, where that is known.
    pub fn shortage(&self) -> Option<Shortage> {
        self.0.source.as_deref()?.downcast_ref().copied()
    }

    /// The platform on which it occurred, if any.
    pub fn platform(&self) -> Option<&str> {
        self.0.platform.as_deref()
    }
}

/// An [`ErrorKind::Io`] whose source is the error, so that `?` works on calls of the standard
/// library.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::new(ErrorKind::Io, "io", error.kind().to_string()).caused_by(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts {
            op,
            platform,
            message,
            source,
            ..
        } = &*self.0;
        match platform {
            Some(platform) => write!(f, "{op} on {platform}: {message}")?,
            None => write!(f, "{op}: {message}")?,
        }
        match source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    /// Formats as `Display` does, with the kind: `fn main() -> Result<()>` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.0.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}

/// Missing memory: the source of an [`ErrorKind::OutOfMemory`] error where it is known.
///
/// ```
/// use halite_core::{Error, ErrorKind, Shortage};
///
/// let shortage = Shortage { required: 3 << 30, available: 2 << 30 };
/// let error = Error::new(ErrorKind::OutOfMemory, "compile", "`step` does not fit");
/// let error = error.caused_by(shortage);
/// assert_eq!(error.shortage(), Some(shortage));
/// assert!(error.to_string().ends_with("3.00 GiB needed on each device, 2.00 GiB available"));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shortage {
    /// Bytes needed on each device.
    pub required: u64,
    /// Bytes available on each device.
    pub available: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        write!(
            f,
            "{:.2} GiB needed on each device, {:.2} GiB available",
            gib(self.required),
            gib(self.available)
        )
    }
}

impl StdError for Shortage {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_may_be_any_string() {
        fn bad(what: &str) -> Error {
            Error::invalid(what, "no")
        }
        let name = format!("read {}", 1);
        assert_eq!(bad(&name).op(), "read 1");
        assert_eq!(Error::invalid(name, "no").to_string(), "read 1: no");
    }

    #[test]
    fn question_mark_converts_io_errors() {
        fn read() -> Result<Vec<u8>> {
            Ok(std::fs::read("/no/such/file")?)
        }
        let error = read().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(
            error
                .source()
                .is_some_and(|source| source.is::<io::Error>())
        );
        assert!(error.to_string().contains("No such file"), "{error}");
    }
}
