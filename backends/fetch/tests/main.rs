//! Integration tests of `halite-fetch`, in one executable: each links all of its dependencies.

mod install;
mod trust;
