//! Tasks, the trainer, checkpoints, loggers and plots.
#![forbid(unsafe_code)]

pub mod checkpoint;
mod files;
pub mod loggers;
pub mod signals;
