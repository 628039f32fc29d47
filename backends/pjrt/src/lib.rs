//! A halite [`Backend`](halite_core::Backend) over any PJRT plugin.
//!
//! A plugin is a shared library that drives one kind of accelerator behind PJRT's C API.
//! [`Plugin::load`] loads one, [`Plugin::client`] opens its devices as a [`Pjrt`], and from there
//! on everything is the contract of `halite-core`:
//!
//! ```no_run
//! // Needs a plugin: the path of its shared library.
//! use halite_core::{Client, HostArray};
//! use halite_pjrt::Plugin;
//!
//! # fn main() -> halite_core::Result<()> {
//! let plugin = Plugin::load("pjrt_c_api_cpu_plugin.so")?;
//! println!("{plugin:?} takes {:?}", plugin.stablehlo());
//! let client = Client::new(plugin.client(vec![("cpu_device_count".into(), 8i64.into())])?);
//! assert_eq!(client.local_devices().len(), 8);
//! # Ok(())
//! # }
//! ```
//!
//! # What this crate promises
//!
//! * Arguments are never misread. Plugins trust their callers, so every argument's type, shape,
//!   device and state is checked here first, and the declared signature of a program is compared
//!   with the compiled program. Programs and flags that are known to end the process are refused.
//! * A plugin that does not return costs its deadline once, while it is loaded, makes or destroys a
//!   client, or compiles; it blocks no other plugin, and no drop of another plugin's client. Sizes
//!   that it claims are bounded.
//! * C++ exceptions that leave the plugin while it is opened or a client compiles are errors. In
//!   most other calls they end the process with a message that names the plugin and the function.
//!   Compiling for a topology and loading a compiled program have neither a deadline nor this
//!   protection.
//!
//! The process can still end by a failed check of the vendor's own code (`LOG(FATAL)`,
//! `abort`), a crash in it, or a flag in `XLA_FLAGS` that the plugin does not know. Only a process
//! of its own contains these: `halite plugins check` and `halite plan` run plugins in one.
//!
//! Further:
//!
//! * A function that a plugin does not have is
//!   [`Unsupported`](halite_core::ErrorKind::Unsupported), with the plugin's version and the one
//!   that brought it.
//! * Handles are `Send + Sync` and can be dropped in any order on any thread: each holds its
//!   client, and no plugin is ever unloaded.
//! * Waiting for an event always returns the error of the work, and ends at the client's wait
//!   limit: [`Pjrt::set_wait_limit`].
//!
//! This is the one place, with `halite-pjrt-sys`, where the calling side of the C API needs
//! `unsafe`.
#![allow(unsafe_code)]

/// The arguments of a function with these fields; the others are zero or null.
macro_rules! args {
    ($Args:ident, $($field:ident $(: $value:expr)?),+) => {
        $Args {
            $($field $(: $value)?,)+
            ..$Args::new()
        }
    };
}

mod at_exit;
mod buffer;
mod call_times;
mod callbacks;
mod check;
mod client;
mod collectives;
mod compile;
mod completion;
mod custom_call;
mod device;
mod element_types;
mod environment;
mod environment_flags;
mod error;
mod event;
mod executable;
mod extension;
mod frame;
#[doc(hidden)]
pub mod fuzz;
mod gate;
mod handle;
mod hlo;
mod hostile;
mod in_flight;
mod isolate;
mod key;
mod key_value;
mod library_file;
mod loaded;
mod loader;
mod op_sharding;
mod options;
mod owned_client;
mod plugin;
mod probe;
mod profiler;
mod program;
mod program_error;
mod quirks;
mod scan;
mod shared_client;
mod signature;
mod table;
mod topology;
mod value;
mod xla_flags;

pub use buffer::PjrtBuffer;
pub use call_times::CallTime;
pub use client::Pjrt;
pub use collectives::{CollectiveKind, CollectiveUse, Collectives};
pub use device::{DeviceDescription, PjrtDevice};
pub use event::PjrtEvent;
pub use executable::PjrtExecutable;
#[doc(hidden)]
pub use frame::seal;
pub use plugin::{Extension, LoadOptions, Plugin, StableHloVersions};
pub use profiler::{Profiler, Profiling};
pub use program::{CompiledInstruction, CompiledProgram, ShardingBytes};
pub use quirks::{capabilities, default_policy};
pub use table::OLDEST_MINOR;
pub use topology::Topology;
pub use value::{OptionValue, Options, printable};
