//! A plugin over another plugin: `halite-pjrt` as a backend, exported again.
//!
//! Options of its client: `library`, the path of the other plugin (or the environment variable
//! `FORWARD_LIBRARY`), and `devices`, the number of devices of a plugin for CPUs. It runs whatever
//! that plugin runs, so that the tests of the SDK compute.
#![forbid(unsafe_code)]

use halite_core::{Error, Result};
use halite_pjrt::{Pjrt, Plugin};
use halite_plugin::Options;

halite_plugin::export_plugin!(open);

fn open(options: &mut Options) -> Result<Pjrt> {
    let library = options.text("library")?;
    let library = library.or_else(|| std::env::var("FORWARD_LIBRARY").ok());
    let library = library.ok_or_else(|| {
        let message = "option `library` is missing; pass the path of a plugin";
        Error::invalid("create client", message)
    })?;
    let devices = options.int("devices")?;
    let devices = devices.map(|count| ("cpu_device_count".into(), count.into()));
    Plugin::load(library)?.client(devices.into_iter().collect())
}
