//! PJRT plugins in safe Rust.
//!
//! [`export_plugin!`] exports any [`Backend`](halite_core::Backend) as a shared library with the
//! PJRT C API, which JAX, PyTorch/XLA and halite load. The author writes no `unsafe` code:
//!
//! ```
//! #![forbid(unsafe_code)]
//! use halite_core::{Null, Result};
//! use halite_plugin::Options;
//!
//! fn open(options: &mut Options) -> Result<Null> {
//!     let devices = options.int("devices")?.unwrap_or(1);
//!     Ok(Null::new(devices.clamp(1, 64) as u32))
//! }
//!
//! halite_plugin::export_plugin!(open);
//! ```
//!
//! with this in `Cargo.toml`:
//!
//! ```toml
//! [lib]
//! crate-type = ["cdylib"]
//! ```
//!
//! The guide `docs/writing-a-plugin.md` goes from an empty directory to JAX on a toy accelerator.
//!
//! # What the SDK does
//!
//! * It fills the whole table of PJRT 0.114. Unimplemented functions return UNIMPLEMENTED.
//! * It reads the structs of older and newer callers by their `struct_size`.
//! * Handles are numbers: null, a destroyed handle, and one of another type are errors.
//! * A panic of the backend, also in a callback, becomes an INTERNAL error, and is logged in a
//!   destructor. This needs `panic = "unwind"`, the default. A panic while another one unwinds ends
//!   the process, as everywhere in Rust.
//! * Results of the backend are checked against the contract: the error names the method and the
//!   rule.
//! * [`QueuedBackend`] makes a backend of a [`Driver`]: six functions that allocate, copy, compile
//!   and run. Devices, buffers, executables, events and queues are its own.
//! * [`parse`] reads and verifies a program, and [`check`] has the checks that the contract asks of
//!   every backend.
//! * A caller may register host memory for direct transfers, where the backend has a
//!   [`HostMemory`].
//! * It has the extension Shardings, from which JAX takes the sharding of results that a program
//!   leaves open.
//! * Donation, deletion, chunked transfers, events, contexts and serialized executables are its
//!   own; the backend has only the verbs of the contract.

mod abi;
mod buffer;
pub mod check;
mod client;
mod compile;
mod device;
mod device_layout;
mod driver;
mod dtype;
mod error;
mod event;
mod executable;
mod execute;
mod extensions;
mod handle;
mod host_memory;
mod layout;
mod options;
mod placeholder;
mod program;
mod promise;
mod queue;
mod serialized;
mod shardings;
mod status;
mod sync;
mod table;
mod traced;
mod transfer;
mod transfer_manager;
mod value;

use std::ffi::c_char;

use halite_core::{Client, Result};

pub use driver::{Driver, QueuedBackend, QueuedBuffer, QueuedDevice, QueuedExecutable};
#[doc(hidden)]
pub use halite_core;
#[doc(hidden)]
pub use halite_pjrt_sys::PJRT_Api;
pub use host_memory::HostMemory;
pub use options::Options;
pub use program::parse;
pub use queue::{DeviceQueue, Signal, SignalEvent};
pub use table::api;
pub use traced::Traced;
pub use value::Value;

/// A plugin: how its clients are made. [`export_plugin!`] implements it.
pub trait Plugin: 'static {
    /// Opens the devices. Options that it does not take are refused.
    ///
    /// # Errors
    /// If an option is wrong, or there is no device.
    fn open(options: &mut Options) -> Result<Client>;
}

/// Exports a backend as a PJRT plugin: defines `GetPjrtApi`, the one symbol of a plugin.
///
/// Takes the path of a function `fn(&mut Options) -> halite_core::Result<B>`, where `B` is a
/// [`Backend`](halite_core::Backend). To be used once in a crate of type `cdylib`.
#[macro_export]
macro_rules! export_plugin {
    ($open:path) => {
        const _: () = {
            #[cfg(panic = "abort")]
            compile_error!(
                "a plugin needs `panic = \"unwind\"`: panics of the backend become errors"
            );

            struct Exported;

            impl $crate::Plugin for Exported {
                fn open(
                    options: &mut $crate::Options,
                ) -> $crate::halite_core::Result<$crate::halite_core::Client> {
                    $open(options).map($crate::halite_core::Client::new)
                }
            }

            /// The table of the plugin.
            #[unsafe(no_mangle)]
            pub extern "C-unwind" fn GetPjrtApi() -> *const $crate::PJRT_Api {
                $crate::api::<Exported>()
            }
        };
    };
}

/// Pointer and length of a string, as C takes it. It must stay in place while the caller may read
/// it.
pub(crate) fn text(text: &str) -> (*const c_char, usize) {
    (text.as_ptr().cast(), text.len())
}
