//! Faulty plugins, as a user meets them: each fault under `halite plugins check`, `halite devices`
//! and a tiny training. What is asserted is that every command ends in time with an error that
//! names the plugin, and that nothing a plugin claims ends the process by a signal.
//!
//! A plugin that calls `abort` or dereferences null in this process cannot be contained by it; the
//! child processes of `halite plugins check` contain it.
#![cfg(target_os = "linux")]

mod callbacks;
mod commands;
mod library;
mod process;
