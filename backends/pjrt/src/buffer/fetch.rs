//! Copies of a buffer to memory of the host that the caller does not wait for.

use std::mem::{ManuallyDrop, MaybeUninit};

use halite_core::{AlignedBytes, Buffer, Error, ErrorKind, Event, OnFetched, OnFilled, Result};

use super::{CopyError, PjrtBuffer};

impl PjrtBuffer {
    /// Implementation of [`Buffer::fetch`].
    pub(super) fn queue_fetch(&self, then: OnFetched) {
        const OP: &str = "fetch";
        if let Err(error) = self.check_alive(OP) {
            return then(Err(error));
        }
        let length = self.kind.ty.bytes();
        if length == 0 {
            return match self.ready() {
                Ok(event) => event.on_ready(Box::new(|result| then(result.map(|()| Vec::new())))),
                Err(error) => then(Err(error)),
            };
        }
        // Not a box until the copy is done: moving one would claim the bytes while the plugin
        // writes them.
        let Some(bytes) = uninit_bytes(length) else {
            let message = format!(
                "the host has no memory for the {length} bytes of {}",
                self.kind.ty
            );
            let error = Error::new(ErrorKind::OutOfMemory, OP, message).of_host();
            return then(Err(error.on(self.kind.client.platform_name())));
        };
        let bytes = Written(Box::into_raw(bytes));
        // SAFETY: the bytes are given up in the callback only, which runs when the event is ready.
        match unsafe { self.copy_to_host(OP, bytes.0.cast()) } {
            Ok(event) => {
                let arrived = Box::new(move |result: Result<()>| {
                    // SAFETY: the plugin is done with them, so they are ours alone again.
                    let bytes = unsafe { bytes.into_box() };
                    // SAFETY: the copy succeeded, so every byte is written.
                    then(result.map(|()| unsafe { bytes.assume_init() }.into_vec()));
                });
                // A plugin that takes no callback is polled instead.
                if let Err((_, arrived)) = event.when_done(arrived) {
                    let result = event.wait();
                    if event.is_done() {
                        arrived(result);
                    }
                    // Otherwise it may still write: the bytes are kept, and the request is
                    // cancelled.
                }
            }
            Err(CopyError::Refused(error)) => {
                // SAFETY: the plugin refused the copy, so the bytes are ours alone.
                drop(unsafe { bytes.into_box() });
                then(Err(error));
            }
            // The plugin may write the bytes at any time, so they are never freed.
            Err(CopyError::NoEvent(error)) => then(Err(error)),
        }
    }

    /// Implementation of [`Buffer::fetch_into`].
    pub(super) fn queue_fetch_into(&self, mut memory: AlignedBytes, then: OnFilled) {
        const OP: &str = "fetch";
        if let Err(error) = self.check_alive(OP) {
            return then(Err(error));
        }
        if self.kind.ty.bytes() == 0 || memory.as_ref().len() != self.kind.ty.bytes() {
            // Nothing is copied; the error of the computation is that of the event.
            return match self.ready() {
                Ok(event) => event.on_ready(Box::new(|result| then(result.map(|()| memory)))),
                Err(error) => then(Err(error)),
            };
        }
        let into = memory.as_mut().as_mut_ptr();
        // Dropped in the callback only: whoever drops the callback leaks the memory, to which the
        // plugin may still write.
        let memory = ManuallyDrop::new(memory);
        // SAFETY: the memory is of the type's bytes, nobody else uses it until the event is ready,
        // and it is given up in the callback only, which runs then.
        match unsafe { self.copy_to_host(OP, into) } {
            Ok(event) => {
                let arrived = Box::new(move |result| then(filled(result, memory)));
                // A plugin that takes no callback is polled instead.
                if let Err((_, arrived)) = event.when_done(arrived) {
                    let result = event.wait();
                    if event.is_done() {
                        arrived(result);
                    }
                }
            }
            Err(CopyError::Refused(error)) => then(filled(Err(error), memory)),
            Err(CopyError::NoEvent(error)) => then(Err(error)),
        }
    }
}

/// Frees memory that a plugin no longer writes, or passes it on.
fn filled(result: Result<()>, memory: ManuallyDrop<AlignedBytes>) -> Result<AlignedBytes> {
    let memory = ManuallyDrop::into_inner(memory);
    result.map(|()| memory)
}

/// Uninitialized memory of this length; `None` if the host has none. (`Box::new_uninit_slice` would
/// end the process.)
fn uninit_bytes(length: usize) -> Option<Box<[MaybeUninit<u8>]>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).ok()?;
    // SAFETY: there is room for `length` elements, and `MaybeUninit` is valid without being
    // written.
    unsafe { bytes.set_len(length) };
    Some(bytes.into_boxed_slice())
}

/// Bytes that the plugin is writing.
struct Written(*mut [MaybeUninit<u8>]);

// SAFETY: it is the only pointer to the bytes but for the plugin's, and they are read only
// when the plugin is done.
unsafe impl Send for Written {}

impl Written {
    /// # Safety
    ///
    /// * Nobody writes the bytes any more.
    unsafe fn into_box(self) -> Box<[MaybeUninit<u8>]> {
        // SAFETY: it came from a box, and this is the one place that makes it one again.
        unsafe { Box::from_raw(self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uninit_bytes_fails_without_memory() {
        assert_eq!(uninit_bytes(3).map(|bytes| bytes.len()), Some(3));
        assert!(uninit_bytes(1 << 60).is_none() && uninit_bytes(usize::MAX).is_none());
    }
}
