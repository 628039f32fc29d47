//! Ahead-of-time compilation by the vendors' compilers, without devices: the conformance suite and
//! training steps. Installs libtpu and the CUDA plugin if they are missing. `.ci/full` also compiles
//! steps of whole networks, and steps for every kind of target. Operations are in the table
//! `edge_values` of `values`.

mod collectives;
mod conformance;
mod models;
mod refusals;
mod steps;
