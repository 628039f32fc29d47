//! The reference executor of halite as a PJRT plugin, for JAX and every other caller of PJRT.
//!
//! Options of the client: `devices`, the number of virtual devices, 1 by default; `oracle`, true to
//! interpret programs in `f64`.
#![forbid(unsafe_code)]

use halite_core::{Error, Result};
use halite_plugin::Options;
use halite_reference::{Mode, Reference};

fn open(options: &mut Options) -> Result<Reference> {
    let devices = options.int("devices")?.unwrap_or(1);
    let mode = match options.bool("oracle")? {
        Some(true) => Mode::Oracle,
        Some(false) | None => Mode::Fast,
    };
    let devices = u32::try_from(devices).map_err(|_| {
        let message = format!("option `devices` is {devices}; expected a number of devices");
        Error::invalid("open", message)
    })?;
    Reference::new(&halite_reference::Options {
        devices,
        mode,
        ..halite_reference::Options::default()
    })
}

halite_plugin::export_plugin!(open);
