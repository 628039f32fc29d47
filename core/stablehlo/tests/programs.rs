//! Checks and interfaces of programs: valid programs of every family, and the errors of others.

mod devices;
mod elementwise;
mod files;
mod interface;
mod mutations;
mod program;
mod reductions;
mod shapes;
mod valid;
mod values;
