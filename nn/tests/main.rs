//! Integration tests of `halite-nn`, in one executable: each links all of its dependencies.

mod compile_errors;
mod cost;
mod full_products;
mod hyperparameters;
mod jit;
mod kernels;
mod mistakes;
mod operation_mistakes;
mod operators;
mod optimizers;
mod schedules;
mod shard_map;
mod shared;
mod silence;
mod stderr;
mod unrolled;
