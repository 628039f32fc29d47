//! A PJRT plugin for a toy accelerator, to start from.
//!
//! The accelerator has a memory of its own, and programs of `f32`, `i32` and `i1`. Replace, file by
//! file: `driver` by calls of your driver, `program` and `kernel` by your compiler.
#![forbid(unsafe_code)]

mod driver;
mod kernel;
mod program;

use halite_core::{Backend, Error, Platform, Result};
use halite_plugin::{Options, QueuedBackend, Traced};

use crate::driver::Toy;

halite_plugin::export_plugin!(open);

/// Opens the plugin, with a log of every call at the level `debug` of `tracing`. Options: `devices`
/// (1 to 8, default 1), `memory_bytes` of each (default 256 MiB).
///
/// # Errors
/// If an option is out of range, or the system cannot create a thread.
pub fn open(options: &mut Options) -> Result<impl Backend + use<>> {
    let devices = options.int("devices")?.unwrap_or(1);
    let bytes = options.int("memory_bytes")?.unwrap_or(256 << 20);
    let (1..=8, Ok(limit)) = (devices, u64::try_from(bytes)) else {
        let message = format!(
            "{devices} devices of {bytes} bytes; expected 1 to 8 devices, and 0 bytes or more"
        );
        return Err(Error::invalid("create client", message));
    };
    // A name of its own: under that of another platform, JAX lowers programs for it.
    let platform = Platform {
        name: "toy".into(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let devices = devices as usize;
    QueuedBackend::new(platform, "toy", devices, Toy::new(devices, limit)).map(Traced::new)
}
