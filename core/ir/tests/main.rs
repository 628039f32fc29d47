//! Integration tests of `halite-ir`, in one executable: each links all of its dependencies.

mod cost;
mod graphs;
mod infer;
mod legalize;
mod precision;
mod print;
mod samples;
mod shapes;
mod shard_map;
mod speed;
