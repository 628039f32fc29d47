//! Integration tests of `halite-exchange`, in one executable: each links all of its dependencies.

mod chlo;
mod golden;
mod import;
mod portable;
