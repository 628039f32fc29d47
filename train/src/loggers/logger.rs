//! The trait of loggers.

use std::path::Path;

use halite_core::{Error, Result};

use super::Row;
use crate::{Report, format::type_name};

/// Destination of a run's metrics, in the terms of Lightning: a file, a database, a service.
///
/// Register one with [`TrainerBuilder::logger`](crate::TrainerBuilder::logger). Rows come when
/// their values have arrived on the host, on the thread of the training loop: a logger that is slow
/// should hand them to a thread of its own.
///
/// # Errors
///
/// A logger that does not [open](Self::open) ends the run before its first step. From then on it is
/// an accessory: an error is a warning, said once until it works again, and never ends a run or
/// delays its checkpoint. A row that cannot be logged is the logger's to keep and to try
/// again in [`flush`](Self::flush).
pub trait Logger {
    /// Name for warnings; the name of the type by default.
    fn name(&self) -> String {
        type_name::<Self>()
    }

    /// The run starts, in the directory `out` if it has one, or resumes at a step. Called first.
    ///
    /// # Errors
    /// If nothing can be logged: without a directory, a path that cannot be written.
    fn open(&mut self, out: Option<&Path>, resumed_from: Option<u64>) -> Result<()> {
        let _ = out;
        resumed_from.map_or(Ok(()), |step| self.resume(step))
    }

    /// The run starts. `hyperparameters` are the properties that a resume compares, by name: seed,
    /// batch size, optimizer, and those of [`property`](crate::TrainerBuilder::property).
    fn log_hyperparameters(&mut self, hyperparameters: &[(String, String)]) -> Result<()> {
        let _ = hyperparameters;
        Ok(())
    }

    /// The run resumes at `step`: rows of later steps are logged again. [`open`](Self::open) calls
    /// it.
    fn resume(&mut self, step: u64) -> Result<()> {
        let _ = step;
        Ok(())
    }

    /// Logs the metrics of some training steps, or of a validation.
    fn log_metrics(&mut self, row: &Row) -> Result<()>;

    /// Writes what is buffered. Called before each checkpoint and at the end of each epoch.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    /// The run is done.
    fn finalize(&mut self, report: &Report) -> Result<()> {
        let _ = report;
        Ok(())
    }
}

/// The directory of a logger that writes files: its own, or that of the run.
///
/// # Errors
/// If it has neither.
pub(super) fn directory<'a>(
    op: &'static str,
    own: Option<&'a Path>,
    out: Option<&'a Path>,
) -> Result<&'a Path> {
    own.or(out).ok_or_else(|| {
        let message = "the run has no directory to write to; give it one (`out`, --out), or the \
                       logger its own, with `at`";
        Error::invalid(op, message)
    })
}
