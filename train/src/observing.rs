//! Options that show how a run goes, and end it when it no longer improves. They change no step.

use halite_nn::schedule::Mode;

use crate::words::words;

/// Loggers and callbacks by name, for command lines and files of options. Programs add them with
/// [`logger`](crate::TrainerBuilder::logger) and [`callback`](crate::TrainerBuilder::callback), with
/// all their settings.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct ObservingOptions {
    /// Loggers besides metrics.csv: `tensorboard` (event files), `jsonl` (metrics.jsonl)
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "NAMES", value_delimiter = ',')
    )]
    pub logger: Vec<LoggerName>,
    /// Further metrics to log: `learning-rate`, `gradient-norm`, `throughput` (samples a
    /// second, device memory)
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "NAMES", value_delimiter = ',')
    )]
    pub log: Vec<Measure>,
    /// Print a line each N steps, without a terminal too: loss, its average in the epoch, the lowest
    /// of the run, time, samples a second
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", value_parser = crate::flags::positive::<u64>,
            allow_negative_numbers = true)
    )]
    pub print_every: Option<u64>,
    /// End the run when this metric no longer improves: `validation loss`, `train loss`
    #[cfg_attr(feature = "clap", arg(long, value_name = "METRIC"))]
    pub early_stopping: Option<String>,
    /// Whether a smaller or a larger value of --early-stopping is better, where its name does not
    /// say it
    #[cfg_attr(feature = "clap", arg(long, value_name = "min|max"))]
    pub early_stopping_mode: Option<Mode>,
    /// Validations in a row (epochs, for a metric of the training) without improvement after which
    /// --early-stopping ends the run [default: 3]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", value_parser = crate::flags::positive::<u64>,
            allow_negative_numbers = true)
    )]
    pub patience: Option<u64>,
    /// Least change that --early-stopping counts as an improvement [default: 0]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "CHANGE", allow_negative_numbers = true)
    )]
    pub min_delta: Option<f64>,
}

impl ObservingOptions {
    pub(crate) const DEFAULT: Self = ObservingOptions {
        logger: Vec::new(),
        log: Vec::new(),
        print_every: None,
        early_stopping: None,
        early_stopping_mode: None,
        patience: None,
        min_delta: None,
    };
}

impl Default for ObservingOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

words! {
    /// A logger.
    LoggerName, "logger" {
        /// `metrics.csv`, which every run with a directory has.
        Csv = "csv",
        /// [`JsonLines`](crate::JsonLines).
        JsonLines = "jsonl",
        /// [`TensorBoard`](crate::TensorBoard).
        TensorBoard = "tensorboard",
    }
}

words! {
    /// What is measured of a run and logged with its metrics.
    Measure, "measure" {
        /// The norm of all gradients before clipping, as the metric `gradient_norm`. It is computed in
        /// the step, so a run resumes with or without it as it began.
        GradientNorm = "gradient-norm",
        /// [`LearningRateMonitor`](crate::LearningRateMonitor).
        LearningRate = "learning-rate",
        /// [`ThroughputMonitor`](crate::ThroughputMonitor).
        Throughput = "throughput",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_logger_lists_the_names() {
        assert_eq!(
            "tensorboard".parse::<LoggerName>().unwrap(),
            LoggerName::TensorBoard
        );
        let error = "wandb".parse::<LoggerName>().unwrap_err().to_string();
        assert!(
            error.contains("unknown logger `wandb`; expected csv, jsonl, tensorboard"),
            "{error}"
        );
    }
}
