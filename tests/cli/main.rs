//! The `halite` command, run as a user runs it: in child processes, each with a deadline.

mod arguments;
mod caches;
mod checkpoint;
mod compile_cache;
mod config;
mod corruption;
mod ct;
#[cfg(target_os = "linux")]
mod disks;
mod embed;
mod embedded;
mod environment;
mod export;
mod faults;
mod finetune;
mod generate;
mod hardware;
mod help;
mod images;
mod kill;
mod new;
mod numbers;
mod observing;
mod plan;
#[cfg(target_os = "linux")]
mod plugin;
mod plugins_command;
mod predict;
#[cfg(target_os = "linux")]
mod processes;
mod programs;
mod recovery;
mod reports;
mod resume;
mod run_identity;
#[cfg(unix)]
mod sharding;
mod signals;
mod streams;
mod support;
mod text;
mod training;
