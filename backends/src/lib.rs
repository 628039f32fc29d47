//! Find, install, probe and open accelerators.
//!
//! An [`Accelerator`] is parsed once from what a user writes (`auto`, `cpu:8`, `plugin:PATH`) and
//! opened as a [`Client`](halite_core::Client); from there on nothing depends on which one it is.
//!
//! ```no_run
//! // no_run: installs the CPU plugin (63 MB) where it is missing.
//! use halite_backends::Accelerator;
//!
//! let client = "cpu:8".parse::<Accelerator>()?.open()?;
//! assert_eq!(client.local_devices().len(), 8);
//! # Ok::<(), halite_core::Error>(())
//! ```
//!
//! The CPU's plugin is looked for at `HALITE_CPU_PLUGIN`, in the cache directory
//! (`HALITE_CACHE_DIR`, else the platform's), in the Python environment, and installed where it is
//! in none of them. A library is loaded only from a path that the user gave, or if its digest is in
//! [`PLUGINS`]; [`Driver::Plugin`] says which file it was.
// The modules that call libraries of vendors have some, and say why.
#![deny(unsafe_code)]

mod accelerator;
mod compile_cache;
mod cpu;
pub mod cuda;
mod devices;
mod embedded;
mod environment;
#[doc(hidden)]
pub mod fuzz;
mod holders;
mod kernels;
mod load;
mod locate;
mod needed;
mod opened;
mod options;
mod plugins;
mod profile;
mod target;
pub mod tpu;
mod vendor;

pub use halite_kernels::host_memory;
pub use halite_pjrt as pjrt;

pub use accelerator::Accelerator;
pub use compile_cache::{
    Access, CacheEntry, CompileCache, CompileCacheOptions, DamagedFile, FileCount, OtherFiles,
    Verified, parse_bytes,
};
pub use devices::Devices;
pub use locate::{Located, Search, Source, install};
pub use opened::{Driver, Opened};
pub use options::OpenOptions;
pub use plugins::{KnownPlugin, Need, PLUGINS, Provider, plugin};
pub use profile::ChromeTrace;
pub use target::{CudaTarget, Gpu, OpenTarget, Target, TpuGeneration, TpuTarget};
