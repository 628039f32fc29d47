//! The learning rate as a metric.

use halite_core::Result;

use crate::{
    callback::{Callback, Run},
    loggers::{Row, Split},
};

/// Adds the learning rate of the last step of a row to the metrics of training, for `metrics.csv` and
/// all loggers: `learning_rate`, and `learning_rate of PATTERN` for each group of parameters with a
/// rate of its own.
///
/// The rates are those of [`Optimizer::schedules`](halite_nn::Optimizer::schedules), computed on the
/// host.
#[derive(Clone, Copy, Debug, Default)]
pub struct LearningRateMonitor;

impl Callback for LearningRateMonitor {
    fn additional_metrics(&mut self, run: &Run, row: &Row) -> Result<Vec<(String, f64)>> {
        Ok(match row.split {
            Split::Train => run.learning_rates(row.step.saturating_sub(1)),
            _ => Vec::new(),
        })
    }
}
