//! Integration tests of `halite-plugin`, in one executable: each links all of its dependencies.

mod bad_callers;
mod common;
mod every_function;
mod faulty_backends;
mod forward;
mod structs;
mod transfers;
