//! Checks and interfaces of programs: valid programs of every family, and the errors of others.

mod families;
mod interface;
mod mutations;
mod program;
mod valid;
mod values;
