//! The `halite` command, run as a user runs it: in child processes, each with a deadline. Tests that
//! need no process are in `in_process.rs`.

mod caches;
#[path = "child.rs"]
mod command;
mod compile_cache;
mod corruption;
#[cfg(target_os = "linux")]
mod disks;
mod embedded;
mod environment;
mod faults;
mod hardware;
mod kill;
mod launchers;
mod plan;
#[cfg(target_os = "linux")]
mod plugin;
mod plugins_command;
#[cfg(target_os = "linux")]
mod processes;
mod reports;
mod resume;
mod signals;
mod streams;
mod support;
mod training;
