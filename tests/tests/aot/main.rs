//! Ahead-of-time compilation by the vendors' compilers, without devices: the conformance suite and
//! training steps. Installs libtpu and the CUDA plugin if they are missing. `.ci/full` also compiles
//! every operation, steps of whole networks, and steps for every kind of target.

mod collectives;
mod conformance;
mod models;
mod refusals;
mod steps;
