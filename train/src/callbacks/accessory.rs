//! Outputs that a run can do without: what fails is a warning, and is tried again.

use std::{mem::replace, ops::DerefMut};

use halite_core::{Error, Result};

use crate::{
    Report,
    callback::{Callback, MetricsWindow, PendingCheckpoint, Run},
    loggers::{Logger, Row},
};

/// Warns of the first failure of an output, and when it works again.
#[derive(Debug)]
pub(crate) struct Accessory {
    name: String,
    fails: bool,
}

impl Accessory {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Accessory {
            name: name.into(),
            fails: false,
        }
    }

    /// Turns an error into a warning.
    pub(crate) fn tolerate(&mut self, result: Result<()>) {
        let failed_before = replace(&mut self.fails, result.is_err());
        match (result, failed_before) {
            (Ok(()), false) => {}
            (Ok(()), true) => {
                halite_core::warning!("{} is written again, with all that was missing", self.name)
            }
            (Err(error), false) => {
                halite_core::warning!(
                    "{error}. The run continues without {}, and tries again at the next \
                     checkpoint or end of an epoch",
                    self.name
                );
            }
            (Err(error), true) => tracing::debug!("{error}"),
        }
    }
}

/// A logger as a callback.
pub(crate) struct LoggerCallback<L> {
    pub(crate) logger: L,
    pub(crate) accessory: Accessory,
    hyperparameters: Vec<(String, String)>,
}

impl<L: DerefMut<Target: Logger>> LoggerCallback<L> {
    pub(crate) fn new(logger: L, hyperparameters: Vec<(String, String)>) -> Self {
        let accessory = Accessory::new(logger.name());
        LoggerCallback {
            logger,
            accessory,
            hyperparameters,
        }
    }

    fn tolerate(&mut self, result: Result<()>) -> Result<()> {
        self.accessory.tolerate(result);
        Ok(())
    }
}

impl<L: DerefMut<Target: Logger>> Callback for LoggerCallback<L> {
    fn on_fit_start(&mut self, run: &mut Run) -> Result<()> {
        self.logger.open(run.out(), run.resumed_from_step)?;
        let logged = self.logger.log_hyperparameters(&self.hyperparameters);
        self.tolerate(logged)
    }

    fn on_train_metrics(&mut self, _: &mut Run, window: &MetricsWindow) -> Result<()> {
        // All steps were skipped.
        if window.row.metrics.is_empty() {
            return Ok(());
        }
        let logged = self.logger.log_metrics(&window.row);
        self.tolerate(logged)
    }

    fn on_validation_end(&mut self, _: &mut Run, validation: &Row) -> Result<()> {
        let logged = self.logger.log_metrics(validation);
        self.tolerate(logged)
    }

    fn on_checkpoint(&mut self, _: &mut Run, _: &mut PendingCheckpoint) -> Result<()> {
        let flushed = self.logger.flush();
        self.tolerate(flushed)
    }

    fn on_epoch_end(&mut self, _: &mut Run) -> Result<()> {
        let flushed = self.logger.flush();
        self.tolerate(flushed)
    }

    fn on_fit_end(&mut self, _: &mut Run, report: &mut Report) -> Result<()> {
        let done = self
            .logger
            .flush()
            .and_then(|()| self.logger.finalize(report));
        self.tolerate(done)
    }

    fn on_error(&mut self, _: &Run, _: &Error) {
        let flushed = self.logger.flush();
        self.accessory.tolerate(flushed);
    }
}
