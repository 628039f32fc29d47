//! Integration tests of `halite-stablehlo`, in one executable: each links all of its dependencies.

mod bytecode;
mod programs;
mod text;
