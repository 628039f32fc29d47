//! Tasks, the trainer, checkpoints, loggers and plots.
//!
//! A [`Task`] defines the loss of a model, and [`task()`] makes one from a closure; a [`Trainer`]
//! compiles the training step, feeds it,
//! collects metrics, saves checkpoints, and resumes after an interruption with bit-identical
//! results.
//!
//! ```
//! use halite_backends::Accelerator;
//! use halite_core::{HostArray, tree::Tree};
//! use halite_data::InMemory;
//! use halite_nn::{Adam, Linear};
//! use halite_train::{Trainer, Weighted, task};
//!
//! #[derive(Tree)]
//! struct Model<L> {
//!     out: Linear<L>,
//! }
//!
//! # fn main() -> halite_core::Result<()> {
//! /// Points of `y = x0 - 2 x1`.
//! fn points(count: usize) -> halite_core::Result<InMemory> {
//!     let x: Vec<f32> = (0..2 * count).map(|i| (i as f32).sin()).collect();
//!     let y: Vec<f32> = x.chunks(2).map(|x| x[0] - 2.0 * x[1]).collect();
//!     InMemory::new([("x", HostArray::from_slice(&x, [count, 2])?), ("y", HostArray::from_slice(&y, [count, 1])?)])
//! }
//! # let runs = tempfile::tempdir().unwrap();
//! # let out = runs.path().join("points");
//! let client = Accelerator::cpu().open()?;
//! let builder = Trainer::builder(&client).batch_size(20).seed(7).out(&out).quiet(true);
//! let model = || Model { out: Linear::new(2, 1) };
//! let task = task(&model(), |cx, model, batch| {
//!     let error = model.out.forward(batch.input) - batch.target;
//!     cx.metric("mae", batch.mean(error.abs()));
//!     batch.mean(error.square())
//! });
//! let whole = builder.clone().epochs(10).build()?.fit(task, model(), Adam::new(0.1), points(200)?, points(50)?)?;
//! assert!(whole.report.metrics["mae"] < 0.1, "{whole}");
//! assert_eq!(whole.report.blocking_reads, 0);
//! assert!(out.join("report.json").exists());
//!
//! // The same run again, in two parts.
//! # let out = runs.path().join("in two parts");
//! # let builder = builder.out(&out);
//! builder.clone().epochs(4).build()?.fit(task, model(), Adam::new(0.1), points(200)?, points(50)?)?;
//! let parts = builder.epochs(10).resume(true).build()?.fit(task, model(), Adam::new(0.1), points(200)?, points(50)?)?;
//! assert_eq!(parts.report.resumed_from_step, Some(40));
//! assert_eq!(parts.model.out.weight.read()?, whole.model.out.weight.read()?); // bit for bit
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! * A step is one program, launched once; nothing is read back while steps run.
//!   [`Report::blocking_reads`] shows it.
//! * Random numbers and the order of the samples are functions of the seed. The number of workers
//!   does not change the result.
//! * A run that was stopped or killed at any point resumes from its newest complete [`checkpoint`]
//!   to the same weights.
//! * Padding of the last batch does not count: a loss is a [`Mean`](halite_nn::Mean) of weighted
//!   sums.
//! * A loss or metric that is not finite ends the run, with its name and step.
//! * Several [processes](TrainerBuilder::processes) train what one process would: the order of the
//!   samples, random numbers and metrics are those of the whole batch, and their weights are equal to
//!   the bit.
//! * [Callbacks](Callback) and [loggers](Logger) never make a step wait for the device.
//! * Nothing here knows which accelerator it runs on.
#![forbid(unsafe_code)]

pub mod callback;
mod callbacks;
mod cause;
pub mod checkpoint;
mod files;
mod finite;
mod fit;
#[cfg(feature = "clap")]
pub mod flags;
mod format;
#[doc(hidden)]
pub mod fuzz;
mod identity;
mod in_flight;
mod load;
pub mod loggers;
mod loss_scale;
mod lower;
mod measured;
pub mod metrics;
mod monitor;
mod observing;
mod options;
mod processes;
mod programs;
mod range_test;
mod resume;
mod run_files;
mod runs;
pub mod signals;
mod since_start;
mod state;
mod strategy;
mod task;
mod trained;
mod trainer;
mod validation_set;
mod values;
mod waits;
mod window;
mod words;

pub use callback::Callback;
pub use callbacks::{EarlyStopping, LearningRateMonitor, ReduceLrOnPlateau, ThroughputMonitor};
pub use checkpoint::Checkpoint;
pub use fit::Fitted;
pub use halite_nn::{Pattern, schedule::Mode};
pub use loggers::{JsonLines, Logger, Report, TensorBoard};
pub use loss_scale::Scaling;
pub use lower::{LowerOptions, LoweredStep, lower_step};
pub use metrics::Collect;
pub use observing::{LoggerName, Measure, ObservingOptions};
pub use options::{
    CheckpointMode, CheckpointName, GradientClip, GradientClipAlgorithm, Interval, Limit,
    ModelCheckpoint, NumericsOptions, OnNotFinite, Property, TrainerOptions,
};
pub use programs::LOSS;
pub use range_test::{LearningRateFinder, RangeTest};
pub use runs::{BestMetric, RunProgress, RunSummary};
#[doc(hidden)]
pub use since_start::main_starts;
pub use state::{State, StateOptions};
pub use strategy::{Rule, Strategy};
pub use task::{
    AdaptedTask, Alternating, LossTask, MetricValues, Predict, Task, Update, Weighted, task,
    task_on,
};
pub use trainer::{Answers, BatchSizes, Trainer, TrainerBuilder};
