//! The reference executor against XLA's CPU plugin: random operations, and training.

mod differential;
#[path = "../ir_ops/draw.rs"]
mod draw;
mod training;

use halite_core::Client;
use halite_reference::{Mode, Options, Reference};

/// A client of the reference executor.
fn reference(devices: u32) -> Client {
    Client::new(
        Reference::new(&Options {
            devices,
            mode: Mode::Oracle,
            ..Options::default()
        })
        .unwrap(),
    )
}
