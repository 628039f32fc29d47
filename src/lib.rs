//! halite: hardware abstraction for machine learning, and the training stack on top of it.
#![forbid(unsafe_code)]
