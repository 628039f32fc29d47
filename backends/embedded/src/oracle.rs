//! The interpreter: every operation in plain loops, on one thread for each process.
//!
//! Numerical reference for faster executors: it shares no code with them and prefers what is
//! obviously right to what is fast. Values are bytes, numbers are computed in the widest type of
//! their class and rounded once, sums of floats are in `f64`.

mod binary;
mod collective;
mod complex;
mod cost;
mod custom;
mod dot;
mod expect;
mod fft;
mod gather;
mod index;
mod interpret;
mod last_uses;
mod linalg;
mod manual;
mod norm;
mod operation;
mod random;
mod reduce;
mod registered;
mod shape;
mod sharding;
mod sort;
mod tensor;
mod unary;
mod world;

pub(crate) use collective::{combined, members};
pub(crate) use cost::cost;
pub(crate) use custom::check_custom_calls;
pub(crate) use interpret::{Single, run_main, run_operation};
pub(crate) use manual::{Partitioning, STACK, Shards, guarded, no_thread};
pub(crate) use operation::compute;
pub(crate) use sharding::{shard_start, shard_type};
pub(crate) use tensor::{Tensor, Value, allocate, collect, push_count};
pub(crate) use world::{LAUNCH, World};
