//! One error type for the whole stack: what failed, where, with which values, and what would work.

use std::{borrow::Cow, error::Error as StdError, fmt, sync::Arc};

/// `Result` with halite's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What failed, where, and (through [`kind`](Error::kind)) what a caller can do about it.
///
/// Prints as `upload on cuda: 12 bytes given, f32[2, 3] needs 24`.
pub struct Error(Box<Parts>);

struct Parts {
    kind: ErrorKind,
    op: Cow<'static, str>,
    platform: Option<Arc<str>>,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What a caller can do about an [`Error`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Someone asked for it to stop.
    Cancelled,
    /// A file or a download is not what it should be: wrong digest, length or format.
    Corrupt,
    /// A wait took longer than it may.
    DeadlineExceeded,
    /// Training met a number that is not finite.
    Diverged,
    /// A fault of halite or of a plugin: please report it.
    Internal,
    /// The caller gave values that cannot work.
    InvalidArgument,
    /// Reading or writing a file failed.
    Io,
    /// The device or the host has not enough memory.
    OutOfMemory,
    /// What is needed is not here, or not now: no device, no plugin, no network.
    Unavailable,
    /// This platform or version cannot do it.
    Unsupported,
}

impl Error {
    /// `op` is what was being done (`upload`, `compile`); `message` says with which values it
    /// failed and what would work.
    pub fn new(
        kind: ErrorKind,
        op: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Error(Box::new(Parts {
            kind,
            op: op.into(),
            platform: None,
            message: message.into(),
            source: None,
        }))
    }

    /// An [`ErrorKind::InvalidArgument`].
    pub fn invalid(op: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Error::new(ErrorKind::InvalidArgument, op, message)
    }

    /// Says one thing more, after what it says.
    pub fn with_note(mut self, note: &str) -> Self {
        self.0.message = format!("{}; {note}", self.0.message);
        self
    }

    /// Names the platform it happened on.
    pub fn on(mut self, platform: &Arc<str>) -> Self {
        self.0.platform = Some(platform.clone());
        self
    }

    /// Keeps what caused it; printed after the message, and returned by `source`.
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What was being done.
    pub fn op(&self) -> &str {
        &self.0.op
    }

    /// With which values it failed, and what would work.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// By how much memory does not suffice, where that is known.
    pub fn shortage(&self) -> Option<Shortage> {
        self.0.source.as_deref()?.downcast_ref().copied()
    }

    /// The platform it happened on, where one was involved.
    pub fn platform(&self) -> Option<&str> {
        self.0.platform.as_deref()
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
    /// The same words as `Display`, with the kind: this is what `fn main() -> Result<()>` prints.
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

/// By how much memory does not suffice: the source of an [`ErrorKind::OutOfMemory`] error where it
/// is known.
///
/// ```
/// use halite_core::{Error, ErrorKind, Shortage};
///
/// let shortage = Shortage { required: 3 << 30, available: 2 << 30 };
/// let error = Error::new(ErrorKind::OutOfMemory, "compile", "`step` does not fit").caused_by(shortage);
/// assert_eq!(error.shortage(), Some(shortage));
/// assert!(error.to_string().ends_with("3.00 GiB needed on each device, 2.00 GiB there"));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shortage {
    /// Bytes that are needed on each device.
    pub required: u64,
    /// Bytes that each device has for it.
    pub available: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        write!(
            f,
            "{:.2} GiB needed on each device, {:.2} GiB there",
            gib(self.required),
            gib(self.available)
        )
    }
}

impl StdError for Shortage {}
