//! Integration tests of `halite-backends`, in one executable: each links all of its dependencies.

mod accelerator;
mod cache_safety;
mod compile_cache;
mod compiler_flags;
mod environment;
mod locate;
mod profile;
mod target;
