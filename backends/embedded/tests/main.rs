//! Integration tests of `halite-embedded`, in one executable: each links all of its dependencies.

mod common;
mod compile;
mod complex;
mod conformance;
mod devices;
mod extremes;
mod fused;
mod indexing;
mod interpreted;
mod operations;
mod partitions;
mod processes;
mod programs;
mod random;
mod semantics;
mod steps;
mod types;
mod unfused;
