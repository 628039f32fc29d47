//! The `halite` command, run as a user runs it: in child processes, each with a deadline. Tests that
//! need no process are in `in_process.rs`.

mod caches;
mod checkpoint;
#[path = "child.rs"]
mod command;
mod compile_cache;
mod ct;
#[cfg(target_os = "linux")]
mod disks;
mod embed;
mod embedded;
mod environment;
mod export;
mod finetune;
mod hardware;
mod images;
mod new;
mod plan;
#[cfg(target_os = "linux")]
mod plugin;
mod predict;
#[cfg(target_os = "linux")]
mod processes;
mod programs;
mod reports;
mod resume;
mod signals;
mod streams;
mod support;
mod training;
