//! The `halite` command, called in the process of the tests. These are unit tests of the command:
//! the library does not contain it. Tests of what belongs to a process, such as signals and exit
//! codes, are in `main.rs`.

mod arguments;
#[path = "call.rs"]
mod command;
mod config;
mod generate;
mod help;
mod numbers;
mod observing;
mod recovery;
mod results;
mod run_identity;
mod sharding;
mod support;
mod text;
