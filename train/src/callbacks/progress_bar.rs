//! The progress bar as a callback.

use halite_core::Result;

use crate::{
    callback::{Callback, MetricsWindow, Run},
    loggers::{Progress, Row},
};

/// Shows progress on the terminal.
pub(crate) struct ProgressBar(pub(crate) Progress);

impl Callback for ProgressBar {
    fn on_epoch_start(&mut self, run: &mut Run) -> Result<()> {
        self.0.epoch_begun(run.epoch, run.batch as u64);
        Ok(())
    }

    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        self.0.step(run.batch_size as u64);
        Ok(())
    }

    fn on_train_metrics(&mut self, _: &mut Run, window: &MetricsWindow) -> Result<()> {
        self.0.metrics(&by_name(&window.row));
        Ok(())
    }

    fn on_validation_start(&mut self, _: &mut Run) -> Result<()> {
        self.0.validating();
        Ok(())
    }

    fn on_validation_end(&mut self, run: &mut Run, validation: &Row) -> Result<()> {
        let train = run.train_metrics.iter();
        let train = train.map(|(name, value)| (name.to_string(), *value));
        let validation = validation.metrics.iter();
        let validation = validation.map(|(name, value)| (format!("validation {name}"), *value));
        let all: Vec<(String, f64)> = train.chain(validation).collect();
        let all: Vec<(&str, f64)> = all.iter().map(|(name, value)| (&**name, *value)).collect();
        self.0.epoch_done(&all);
        Ok(())
    }
}

fn by_name(row: &Row) -> Vec<(&str, f64)> {
    let metrics = row.metrics.iter();
    metrics.map(|(name, value)| (&**name, *value)).collect()
}
