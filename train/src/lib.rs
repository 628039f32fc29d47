//! Tasks, the trainer, checkpoints, loggers and plots.
#![forbid(unsafe_code)]

pub mod checkpoint;
mod files;
mod fit;
pub mod loggers;
mod outputs;
mod programs;
pub mod signals;
mod state;
mod task;
mod trainer;

pub use fit::Fitted;
pub use loggers::Report;
pub use programs::LOSS;
pub use state::State;
pub use task::{Predict, Task};
pub use trainer::{Answers, Metrics, Trainer, TrainerBuilder, TrainerOptions};
