//! Ahead-of-time compilation by the vendors' compilers, without devices: every case of the
//! conformance suite, and training steps on every kind of target. Installs libtpu and the CUDA plugin
//! if they are missing. `.ci/full` also compiles every operation, and the steps of whole networks.

mod collectives;
mod conformance;
mod models;
mod refusals;
mod steps;
mod types;
