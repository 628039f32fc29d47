//! Published models against the libraries they come from, with weights of the packages that ship
//! them, on XLA's CPU plugin and on the embedded executor.

mod bert;
mod common;
mod decoders;
mod generation;
mod lora;
mod packages;
mod smollm2;
mod tokenizers;

use halite_backends::Accelerator;
use halite_core::Client;

/// XLA's plugin for the CPU, and the embedded executor.
fn clients() -> [Client; 2] {
    [Accelerator::cpu(), Accelerator::embedded()].map(|accelerator| accelerator.open().unwrap())
}
