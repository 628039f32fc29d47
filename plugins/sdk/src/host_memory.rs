//! Registration of host memory of a caller. Nothing here reads or writes it.

use std::fmt;

use halite_core::Result;

/// Registration of host memory of the caller, such as by locking its pages, so that uploads from it
/// need no copy: a backend that has it gives it to [`Options::set_host_memory`].
///
/// The functions are called one at a time for a client. The caller keeps registered memory, and may
/// write it between uploads. `()` has nothing to do: a backend that copies from any memory.
///
/// [`Options::set_host_memory`]: crate::Options::set_host_memory
pub trait HostMemory: fmt::Debug + Send + Sync + 'static {
    /// Registers `bytes` bytes (1 or more) from `address` on, none of which is registered.
    ///
    /// # Errors
    /// If the driver cannot.
    fn map(&self, address: usize, bytes: usize) -> Result<()>;

    /// Ends the registration of what [`map`](Self::map) was called with: on request of the caller, or
    /// with the client.
    ///
    /// # Errors
    /// If the driver cannot.
    fn unmap(&self, address: usize, bytes: usize) -> Result<()>;
}

impl HostMemory for () {
    fn map(&self, _: usize, _: usize) -> Result<()> {
        Ok(())
    }

    fn unmap(&self, _: usize, _: usize) -> Result<()> {
        Ok(())
    }
}
