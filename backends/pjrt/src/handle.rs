//! Pointers to objects of a plugin.

use std::{fmt, ptr::NonNull};

use halite_core::{Error, ErrorKind, Result};

/// A pointer to an object of a plugin, without ownership.
pub(crate) struct Handle<T>(NonNull<T>);

// SAFETY: plugins are called from many threads by every framework that uses them; what a handle may
// be used for is decided by its owner, never by which thread it is on.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

impl<T> Handle<T> {
    pub(crate) fn new(pointer: NonNull<T>) -> Self {
        Handle(pointer)
    }

    /// Wraps a pointer that a plugin returned.
    ///
    /// # Errors
    /// If it is null.
    pub(crate) fn from_plugin(op: &'static str, pointer: *mut T) -> Result<Self> {
        let null = || {
            Error::new(
                ErrorKind::Internal,
                op,
                "the plugin reported success but returned a null pointer",
            )
        };
        NonNull::new(pointer).map(Handle).ok_or_else(null)
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Handle<T> {}

impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.0)
    }
}
