//! Faulty plugins under `halite plugins check`, `halite devices` and a tiny training. Every command
//! must end in time with an error that names the plugin, and no value that a plugin reports may
//! crash the process.
//!
//! A process cannot contain a plugin that calls `abort` or dereferences null in it; the child
//! processes of `halite plugins check` do.
#![cfg(target_os = "linux")]

mod callbacks;
mod commands;
mod library;
mod process;
