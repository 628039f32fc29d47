//! The `halite` command, called in the process of the tests. These are unit tests of the command:
//! the library does not contain it. Tests of what belongs to a process, such as signals and exit
//! codes, are in `main.rs`.

mod arguments;
mod checkpoint;
#[path = "call.rs"]
mod command;
mod config;
mod ct;
mod embed;
mod export;
mod finetune;
mod generate;
mod help;
mod images;
mod new;
mod numbers;
mod observing;
mod predict;
mod programs;
mod recovery;
mod results;
mod run_identity;
mod sharding;
mod support;
mod text;
