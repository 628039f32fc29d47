//! The embedded executor against XLA's CPU plugin and against itself behind the C API: random
//! operations, and training.

mod differential;
mod nodes;
mod training;

use halite_core::Client;
use halite_embedded::{Embedded, Mode, Options};

/// A client of the embedded executor.
fn embedded(mode: Mode, devices: u32) -> Client {
    Client::new(
        Embedded::new(&Options {
            devices,
            mode,
            ..Options::default()
        })
        .unwrap(),
    )
}
