//! The reference executor against XLA's CPU plugin and against itself behind the C API: random
//! operations, and training.

mod differential;
mod training;

use halite_core::Client;
use halite_reference::{Mode, Options, Reference};

/// A client of the reference executor.
fn reference(mode: Mode, devices: u32) -> Client {
    Client::new(
        Reference::new(&Options {
            devices,
            mode,
            ..Options::default()
        })
        .unwrap(),
    )
}
