//! Derive macro for halite trees.
#![forbid(unsafe_code)]
