//! Ahead-of-time compilation by the vendors' compilers, without devices: every case of the
//! conformance suite, every operation, a training step on every kind of target. Installs libtpu and
//! the CUDA plugin if they are missing.

mod also;
mod collectives;
mod conformance;
mod models;
mod refusals;
mod steps;
mod types;

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

/// The client of the tests of operations: it also compiles for the targets.
fn open() -> halite_core::Client {
    also::open().unwrap()
}

#[test]
fn every_group_of_operations_compiles() {
    let here = include_str!("main.rs");
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ir_ops")).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        // Random programs find the compilers' own mistakes, and others in each version.
        if !["main.rs", "random.rs", "draw.rs"].contains(&file.as_str()) {
            assert!(
                here.contains(&format!("#[path = \"../ir_ops/{file}\"]")),
                "{file} is not compiled for the targets"
            );
        }
    }
}
