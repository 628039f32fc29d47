//! The progress bar as a callback.

use halite_core::Result;

use crate::{
    LOSS,
    callback::{Callback, MetricsWindow, Run},
    loggers::{Progress, Row},
};

/// Shows progress on the terminal.
pub(crate) struct ProgressBar {
    pub(crate) progress: Progress,
    /// Whether the line of the epoch is complete.
    is_done: bool,
}

impl ProgressBar {
    pub(crate) fn new(progress: Progress) -> Self {
        ProgressBar {
            progress,
            is_done: true,
        }
    }
}

impl Callback for ProgressBar {
    fn on_epoch_start(&mut self, run: &mut Run) -> Result<()> {
        self.progress.epoch_begun(run.epoch, run.batch as u64);
        self.is_done = false;
        Ok(())
    }

    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        let before = run.samples_of(run.step.saturating_sub(1));
        self.progress.step(run.samples_of(run.step) - before);
        Ok(())
    }

    fn on_train_metrics(&mut self, _: &mut Run, window: &MetricsWindow) -> Result<()> {
        let metrics = by_name(&window.row);
        self.progress.metrics(&metrics);
        if let Some((_, loss)) = metrics.iter().find(|(name, _)| *name == LOSS) {
            self.progress.losses(window.row.step, *loss);
        }
        Ok(())
    }

    fn on_validation_start(&mut self, _: &mut Run) -> Result<()> {
        self.progress.validating();
        Ok(())
    }

    fn on_validation_end(&mut self, run: &mut Run, validation: &Row) -> Result<()> {
        // Those of single labels, `roc_auc/central`, are in the table and the report.
        let scores = (validation.metrics.iter()).filter(|(name, _)| !name.contains('/'));
        let scores = scores.map(|(name, value)| (format!("validation {name}"), *value));
        if run.batch < run.batches_per_epoch {
            let scores: Vec<(String, f64)> = scores.collect();
            self.progress.validated(run.step, &borrowed(&scores));
            return Ok(());
        }
        let all: Vec<(String, f64)> = trained(run).chain(scores).collect();
        self.progress.epoch_done(&borrowed(&all));
        self.is_done = true;
        Ok(())
    }

    fn on_epoch_end(&mut self, run: &mut Run) -> Result<()> {
        if !self.is_done {
            // An epoch without a validation.
            let all: Vec<(String, f64)> = trained(run).collect();
            self.progress.epoch_done(&borrowed(&all));
            self.is_done = true;
        }
        Ok(())
    }
}

/// Training metrics of the epoch.
fn trained(run: &Run) -> impl Iterator<Item = (String, f64)> {
    let metrics = run.train_metrics.iter();
    metrics.map(|(name, value)| (name.to_string(), *value))
}

fn borrowed(metrics: &[(String, f64)]) -> Vec<(&str, f64)> {
    metrics
        .iter()
        .map(|(name, value)| (&**name, *value))
        .collect()
}

fn by_name(row: &Row) -> Vec<(&str, f64)> {
    let metrics = row.metrics.iter();
    metrics.map(|(name, value)| (&**name, *value)).collect()
}
