//! Tasks, the trainer, checkpoints, loggers and plots.
#![forbid(unsafe_code)]
