//! The options of a trainer: the one place with their names, defaults and descriptions.
//!
//! The names are Lightning's. Options of which halite had the name before have both.

mod amount;
mod check;
mod checkpoint_mode;
mod choice;
mod model_checkpoint;
mod numerics;
mod resolved;
#[cfg(all(test, feature = "clap"))]
mod tests;

use std::{path::PathBuf, time::Duration};

use halite_data::{BadSample, LastBatch};

#[cfg(feature = "clap")]
use self::amount::time;
use self::numerics::NUMERICS;
pub use self::{
    amount::{Interval, Limit},
    checkpoint_mode::CheckpointMode,
    choice::{GradientClip, GradientClipAlgorithm, OnNotFinite},
    model_checkpoint::{CheckpointName, ModelCheckpoint},
    numerics::NumericsOptions,
};
use crate::ObservingOptions;
#[cfg(feature = "clap")]
use crate::flags::{positive, seconds};

/// Options of a [`Trainer`](crate::Trainer). Each has a default that works.
///
/// With the feature `clap` they are `clap::Args` too: the descriptions here are the help of the
/// flags, and the defaults are theirs. A command with other defaults sets them with `mut_arg`, by
/// the name of the field. Properties and the label have no flags; a command that trains one model
/// sets them.
///
/// A run that resumes may have other lengths (`max_epochs`, `max_steps`, `max_time`), other
/// validations and other output. What changes the weights (`batch_size`, `accumulate_grad_batches`,
/// `limit_train_batches`, `overfit_batches`, `last_batch`, `seed`, clipping, precision) is the same
/// as in its checkpoint, or named in `allow_changes`.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct TrainerOptions {
    /// Passes over the training data [default: 1; no limit with --max-steps or --max-time]
    #[cfg_attr(
        feature = "clap",
        arg(long, visible_alias = "epochs", value_name = "N", value_parser = positive::<u64>,
            allow_negative_numbers = true)
    )]
    pub max_epochs: Option<u64>,
    /// Optimizer steps after which the run ends, also within an epoch
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", value_parser = positive::<u64>, allow_negative_numbers = true)
    )]
    pub max_steps: Option<u64>,
    /// Time after which the run ends, that before a resume included: `90m`, `12h`, `DD:HH:MM:SS`,
    /// or seconds
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "TIME", value_parser = time, allow_negative_numbers = true)
    )]
    pub max_time: Option<Duration>,
    /// Samples of a batch, over all devices. A step takes --accumulate-grad-batches of them
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = DEFAULT.batch_size,
            value_parser = positive::<usize>, allow_negative_numbers = true)
    )]
    pub batch_size: usize,
    /// Samples of a batch in validation, test and prediction, over all devices
    /// [default: --batch-size]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)
    )]
    pub eval_batch_size: Option<usize>,
    /// Training samples at the end of an epoch that do not fill a batch: `drop` leaves them out of
    /// this epoch, `pad` fills the batch with samples of weight 0
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "drop|pad", default_value_t = DEFAULT.last_batch)
    )]
    pub last_batch: LastBatch,
    /// Samples that cannot be read: `fail` ends the run, `skip:N` skips up to N of a dataset, at
    /// weight 0, with warnings
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "fail|skip:N", default_value_t = DEFAULT.bad_samples)
    )]
    pub bad_samples: BadSample,
    /// Training batches of an epoch: a number, or a fraction of all [default: all]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "LIMIT", allow_negative_numbers = true)
    )]
    pub limit_train_batches: Option<Limit>,
    /// Batches of a validation: a number, or a fraction of all; 0 turns validation off
    /// [default: all]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "LIMIT", allow_negative_numbers = true)
    )]
    pub limit_val_batches: Option<Limit>,
    /// Train on these first batches only, in the order of the data, and validate on as many: a
    /// model that cannot learn them by heart has a mistake
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "LIMIT", allow_negative_numbers = true)
    )]
    pub overfit_batches: Option<Limit>,
    /// Run N steps and validate N batches, to find mistakes, those in names of metrics too; nothing
    /// is written
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1",
            value_parser = positive::<u64>, allow_negative_numbers = true)
    )]
    pub fast_dev_run: Option<u64>,
    /// Distance between two validations: a number of steps, a fraction of an epoch, or a time
    /// [default: each epoch]
    // The last step of a run is always followed by one.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "INTERVAL", allow_negative_numbers = true)
    )]
    pub val_check_interval: Option<Interval>,
    /// Validate in each Nth epoch only
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = DEFAULT.check_val_every_n_epoch,
            value_parser = positive::<u64>, allow_negative_numbers = true)
    )]
    pub check_val_every_n_epoch: u64,
    /// Validation batches that run before the first step, to find mistakes early
    // Not 2, as in Lightning: mistakes of the code are found while it is traced, and the program of
    // the validation would be compiled before the first step.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = DEFAULT.num_sanity_val_steps,
            allow_negative_numbers = true)
    )]
    pub num_sanity_val_steps: u64,
    /// Steps in one launch of a program, for models whose steps take microseconds
    // The steps are the same, but for rounding: on XLA's CPU plugin, those of a tiny model are
    // compiled in another way if this is more than 1. Launches do not pass a step at which metrics
    // are copied, a checkpoint is saved or a validation is due; steps that do not fill one are
    // launched singly.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = DEFAULT.steps_per_execution,
            value_parser = positive::<usize>, allow_negative_numbers = true)
    )]
    pub steps_per_execution: usize,
    /// Seed of all random numbers: initialization, order of samples, dropout, sampling
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "SEED", default_value_t = DEFAULT.seed,
            allow_negative_numbers = true)
    )]
    pub seed: u64,
    /// Precision, gradient clipping and accumulation.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub numerics: NumericsOptions,
    /// A step whose gradients are not finite: `stop` ends the run, `skip` leaves the step out and
    /// counts it
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "stop|skip", default_value_t = DEFAULT.on_not_finite)
    )]
    pub on_not_finite: OnNotFinite,
    /// Name the first parameter whose gradient is not finite, at the cost of a look at every
    /// gradient in each step
    #[cfg_attr(feature = "clap", arg(long))]
    pub detect_anomaly: bool,
    /// Directory of the run: checkpoints, metrics, plot, report
    // Without it nothing is written.
    #[cfg_attr(feature = "clap", arg(long, value_name = "DIR"))]
    pub out: Option<PathBuf>,
    /// Continue from the latest checkpoint in --out, if there is one
    #[cfg_attr(feature = "clap", arg(long))]
    pub resume: bool,
    /// Continue from this checkpoint in --out instead of the latest: `step-00000040`, or `40`
    #[cfg_attr(feature = "clap", arg(long = "from", value_name = "CHECKPOINT"))]
    pub resume_from: Option<String>,
    /// Resume although these properties differ from those of the saved run, by the names in the
    /// error; `all` allows any
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "NAMES", value_delimiter = ',')
    )]
    pub allow_changes: Vec<String>,
    /// Further properties of the run, by name: it does not resume from a checkpoint with other
    /// values, unless the change is allowed.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub properties: Vec<Property>,
    /// Steps between two log entries of the training metrics
    // The copies to the host never make the device wait.
    #[cfg_attr(
        feature = "clap",
        arg(long, visible_alias = "log-every", value_name = "N",
            default_value_t = DEFAULT.log_every_n_steps, value_parser = positive::<u64>,
            allow_negative_numbers = true)
    )]
    pub log_every_n_steps: u64,
    /// When checkpoints are saved, and which are the best.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub checkpoint: ModelCheckpoint,
    /// How a checkpoint is written while the run trains
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "MODE", value_enum, default_value_t = DEFAULT.checkpoint_mode)
    )]
    pub checkpoint_mode: CheckpointMode,
    /// Newest checkpoints to keep, in addition to the best ones
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = DEFAULT.keep_last,
            value_parser = positive::<usize>, allow_negative_numbers = true)
    )]
    pub keep_last: usize,
    /// Loggers and early stopping.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub observing: ObservingOptions,
    /// Threads that load samples; the result does not depend on their number
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = DEFAULT.workers,
            allow_negative_numbers = true)
    )]
    pub workers: usize,
    /// Batches that are read ahead on the host
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = DEFAULT.read_ahead,
            value_parser = positive::<usize>, allow_negative_numbers = true)
    )]
    pub read_ahead: usize,
    /// Launches (of one step, or of --steps-per-execution) whose batches wait on the devices
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = DEFAULT.prefetch,
            value_parser = positive::<usize>, allow_negative_numbers = true)
    )]
    pub prefetch: usize,
    /// Read batches into page-locked memory, which GPUs copy from faster. The result does not depend
    /// on it
    // Off until it is measured on a GPU. Memory of the pool is kept until the trainer is dropped.
    #[cfg_attr(feature = "clap", arg(long))]
    pub pinned_memory: bool,
    /// Timeout for one step or one batch, after which the run fails [default: 20 times the longest
    /// so far, at least an hour, and a day for the first]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)
    )]
    pub wait_limit: Option<Duration>,
    /// Timeout for waiting on other processes, in a training step and at a checkpoint [default: 60]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)
    )]
    pub process_timeout: Option<Duration>,
    /// Compare the replicas of the state bit for bit before each checkpoint, to detect processes that
    /// have diverged
    // The loop waits while the arrays are read.
    #[cfg_attr(feature = "clap", arg(long))]
    pub check_replicas: bool,
    /// Do not show a progress bar
    #[cfg_attr(feature = "clap", arg(long))]
    pub quiet: bool,
    /// Description of the model and data. A run does not resume from a checkpoint with another one.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub label: Option<String>,
}

/// A named property of a run, which changes its result.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Property {
    /// Name in errors; a command line gives its flag: `--dropout`.
    pub name: String,
    /// Value, as text.
    pub value: String,
}

const DEFAULT: TrainerOptions = TrainerOptions {
    max_epochs: None,
    max_steps: None,
    max_time: None,
    batch_size: 128,
    eval_batch_size: None,
    last_batch: LastBatch::Drop,
    bad_samples: BadSample::Fail,
    limit_train_batches: None,
    limit_val_batches: None,
    overfit_batches: None,
    fast_dev_run: None,
    val_check_interval: None,
    check_val_every_n_epoch: 1,
    num_sanity_val_steps: 0,
    steps_per_execution: 1,
    seed: 0,
    numerics: NUMERICS,
    on_not_finite: OnNotFinite::Stop,
    detect_anomaly: false,
    out: None,
    resume: false,
    resume_from: None,
    allow_changes: Vec::new(),
    properties: Vec::new(),
    log_every_n_steps: 50,
    checkpoint: ModelCheckpoint::DEFAULT,
    checkpoint_mode: CheckpointMode::Auto,
    keep_last: 2,
    observing: ObservingOptions::DEFAULT,
    workers: 1,
    read_ahead: 4,
    prefetch: 2,
    pinned_memory: false,
    wait_limit: None,
    process_timeout: None,
    check_replicas: false,
    quiet: false,
    label: None,
};

impl Default for TrainerOptions {
    fn default() -> Self {
        DEFAULT
    }
}
