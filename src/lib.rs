//! halite: hardware abstraction for machine learning, and the training stack on top of it.
#![forbid(unsafe_code)]

pub use halite_core::tree::{self, Tree};
