//! Programs compiled for accelerators that are not here, by their vendors' compilers: every case of the conformance suite, every
//! operation, a training step on every kind of target. libtpu and the CUDA plugin are installed where they are missing.

mod also;
mod conformance;
mod refusals;
mod steps;

#[path = "../ir_ops/contract.rs"]
mod contract;
#[path = "../ir_ops/control.rs"]
mod control;
#[path = "../ir_ops/devices.rs"]
mod devices;
#[path = "../ir_ops/elementwise.rs"]
mod elementwise;
#[path = "../ir_ops/index.rs"]
mod index;
#[path = "../ir_ops/reduce.rs"]
mod reduce;
#[path = "../ir_ops/shape.rs"]
mod shape;
#[path = "../ir_ops/support.rs"]
mod support;

/// What the tests of operations run on: they are compiled for the targets as well.
fn open() -> halite_core::Client {
    also::open().unwrap()
}
