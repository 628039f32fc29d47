//! Integration tests of `halite-core`, in one executable: each links all of its dependencies.

mod buffers;
mod compile_errors;
mod observer;
mod tree;
mod tree_properties;
