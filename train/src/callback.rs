//! Callbacks: code that observes a run, may stop it, and has state in its checkpoints.

mod run;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
};

use halite_core::{Error, ErrorKind, HostArray, Pending, Result};

pub use self::run::Run;
pub(crate) use self::run::RunFacts;
use crate::{
    Report,
    checkpoint::{RunPosition, Share, StateStream},
    format::type_name,
    loggers::Row,
};

/// Observer of a run, in the terms of Lightning. Every method has a default that does nothing.
///
/// The trainer's progress bar, `metrics.csv`, plot, report, checkpoints and NaN check are callbacks
/// too. Register one with [`TrainerBuilder::callback`](crate::TrainerBuilder::callback).
///
/// # What a callback sees
///
/// The host runs ahead of the device, and no method is given an array that is still computed:
/// a callback cannot make a step wait for the device, unless it [asks](Self::waits_for) to.
///
/// * [`check`](Self::check): before anything is compiled, and before a file of the run is opened.
/// * [`on_fit_start`](Self::on_fit_start): once, after [`load_state`](Self::load_state). The run is
///   at the position from which it starts.
/// * [`on_epoch_start`](Self::on_epoch_start): before the first step of an epoch, or of the rest of
///   an epoch after a resume.
/// * [`on_step_end`](Self::on_step_end): after a step was queued. It may not have run yet, and none
///   of its results are known. With several
///   [`steps_per_execution`](crate::TrainerOptions::steps_per_execution), it is called for each step
///   of a launch after the launch was queued; a stop or checkpoint that it requests follows the last.
/// * [`on_train_metrics`](Self::on_train_metrics): when the metrics of `log_every_n_steps` steps
///   have arrived on the host. Later steps are queued already.
/// * [`additional_metrics`](Self::additional_metrics): before any callback or logger sees a row of
///   metrics, of training or validation.
/// * [`on_train_epoch_end`](Self::on_train_epoch_end): when the steps of an epoch are done and their
///   metrics known, before the validation and the checkpoint of the epoch.
/// * [`on_validation_start`](Self::on_validation_start): when the steps of an epoch are done, and
///   within the epoch where a [`val_check_interval`](crate::TrainerOptions::val_check_interval) ends.
///   After the epoch, [`Run::train_metrics`] are those of it.
/// * [`on_validation_end`](Self::on_validation_end): after the validation, with its metrics.
/// * [`on_checkpoint`](Self::on_checkpoint): for each checkpoint, before it is written. Its arrays
///   arrive later, on another thread: [`PendingCheckpoint::before_commit`].
/// * [`on_epoch_end`](Self::on_epoch_end): while the checkpoint of the epoch is written.
/// * [`on_fit_end`](Self::on_fit_end): once, when every checkpoint is on the disk.
/// * [`on_error`](Self::on_error): once, instead of `on_fit_end`, if the run fails after
///   `on_fit_start`.
///
/// # Order
///
/// For each event: the NaN check; progress bar, `metrics.csv` and other
/// [loggers](crate::loggers::Logger); the callbacks of the user, in the order in which they were
/// registered; checkpointing; the plot and the report. So a checkpoint holds the state that every
/// callback has after the event, and what a run can do without comes after its checkpoint.
///
/// # Errors
///
/// The first error ends the event and the run, which saves a checkpoint before it returns the
/// error, unless saving is what failed or a training step has diverged. Loggers, the plot and the
/// report are accessories: their errors are warnings, and they are tried again.
pub trait Callback {
    /// Name under which the state is saved; the name of the type by default. No two callbacks of a
    /// run may have the same.
    fn name(&self) -> String {
        type_name::<Self>()
    }

    /// Whether it calls [`Run::set_learning_rate_factor`]: the state of the run has a factor of
    /// learning rates then.
    fn changes_learning_rate(&self) -> bool {
        false
    }

    /// Whether the host waits for the devices to complete this step, counted from 1, before
    /// [`on_step_end`](Self::on_step_end) is called for it. It delays the next step: for tools that
    /// measure single steps. With several
    /// [`steps_per_execution`](crate::TrainerOptions::steps_per_execution) a launch ends with the
    /// step. It is asked before each epoch too, and must always give the same answer, in every
    /// process of a job.
    fn waits_for(&self, step: u64) -> bool {
        let _ = step;
        false
    }

    /// Checks its settings before anything is compiled, and before a file of the run is opened.
    /// `metrics` are the [`Run::metric_names`].
    ///
    /// # Errors
    /// If no run, or none with these metrics, can have these settings.
    fn check(&mut self, metrics: &[String]) -> Result<()> {
        let _ = metrics;
        Ok(())
    }

    /// The run starts, or resumes.
    fn on_fit_start(&mut self, run: &mut Run) -> Result<()> {
        let _ = run;
        Ok(())
    }

    /// An epoch starts.
    fn on_epoch_start(&mut self, run: &mut Run) -> Result<()> {
        let _ = run;
        Ok(())
    }

    /// A step was queued. It is called for each step, so it should be cheap.
    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        let _ = run;
        Ok(())
    }

    /// Metrics of training steps arrived on the host.
    fn on_train_metrics(&mut self, run: &mut Run, window: &MetricsWindow) -> Result<()> {
        let _ = (run, window);
        Ok(())
    }

    /// Further metrics for a row, by name: what is logged with those of the task.
    fn additional_metrics(&mut self, run: &Run, row: &Row) -> Result<Vec<(String, f64)>> {
        let _ = (run, row);
        Ok(Vec::new())
    }

    /// The steps of the epoch are done: [`Run::train_metrics`] are those of the epoch.
    fn on_train_epoch_end(&mut self, run: &mut Run) -> Result<()> {
        let _ = run;
        Ok(())
    }

    /// A validation starts.
    fn on_validation_start(&mut self, run: &mut Run) -> Result<()> {
        let _ = run;
        Ok(())
    }

    /// The validation is done.
    fn on_validation_end(&mut self, run: &mut Run, validation: &Row) -> Result<()> {
        let _ = (run, validation);
        Ok(())
    }

    /// A checkpoint is about to be saved. [`state`](Self::state) is called next.
    fn on_checkpoint(&mut self, run: &mut Run, checkpoint: &mut PendingCheckpoint) -> Result<()> {
        let _ = (run, checkpoint);
        Ok(())
    }

    /// The epoch is done, and its checkpoint is being written.
    fn on_epoch_end(&mut self, run: &mut Run) -> Result<()> {
        let _ = run;
        Ok(())
    }

    /// The run is done.
    fn on_fit_end(&mut self, run: &mut Run, report: &mut Report) -> Result<()> {
        let _ = (run, report);
        Ok(())
    }

    /// The run failed.
    fn on_error(&mut self, run: &Run, error: &Error) {
        let _ = (run, error);
    }

    /// State to save in each checkpoint, if there is any.
    fn state(&self) -> Option<serde_json::Value> {
        None
    }

    /// Restores the state of the checkpoint that the run resumes from. Not called for a new run, or
    /// if the checkpoint has no state of this name.
    ///
    /// # Errors
    /// If the value is not a state of this callback; the run does not start then.
    fn load_state(&mut self, state: serde_json::Value) -> Result<()> {
        let _ = state;
        Ok(())
    }
}

/// Means of the training metrics over some consecutive steps.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricsWindow {
    /// The means, and the last of the steps.
    pub row: Row,
    /// The first metric that was not finite, if any was not.
    pub not_finite: Option<NotFinite>,
    /// With [`detect_anomaly`](crate::TrainerOptions::detect_anomaly), the path of the parameter
    /// whose gradient was the first that was not finite, and the step.
    pub anomaly: Option<NotFinite>,
}

/// A metric or gradient that is NaN or infinite.
#[derive(Clone, Debug, PartialEq)]
pub struct NotFinite {
    /// The name of the metric, or the path of the parameter.
    pub metric: Arc<str>,
    /// The step at which it was computed, from 1.
    pub step: u64,
}

/// Work that the checkpoint's thread does when its arrays have arrived, before it is written.
pub type BeforeCommit = Box<dyn FnOnce(&[(String, HostArray)]) -> Result<()> + Send>;

/// Check of the name and the elements of one array of a checkpoint.
pub(crate) type EachArray = Box<dyn FnMut(&str, &HostArray) -> Result<()> + Send>;

/// Work that the checkpoint's thread does before it writes.
pub(crate) type BeforeWrite = Box<dyn FnOnce() -> Result<()> + Send>;

/// The arrays of the state in a checkpoint.
pub(crate) enum StateArrays {
    /// Copies that are under way.
    Copied(Vec<(String, Pending<HostArray>)>),
    /// One at a time.
    Streamed(StateStream),
}

/// A checkpoint before it is written.
pub struct PendingCheckpoint {
    position: RunPosition,
    pub(crate) arrays: StateArrays,
    /// The whole state and the parts of it that this process has in `arrays`, of a job of several.
    pub(crate) share: Option<Share>,
    pub(crate) before_write: Vec<BeforeWrite>,
    pub(crate) each_array: Vec<EachArray>,
    pub(crate) before_commit: Vec<BeforeCommit>,
    /// State of the callbacks, by name.
    pub(crate) callbacks: BTreeMap<String, serde_json::Value>,
    /// The state of the loop besides the arrays.
    pub(crate) metadata: serde_json::Map<String, serde_json::Value>,
}

impl PendingCheckpoint {
    pub(crate) fn new(
        position: RunPosition,
        arrays: StateArrays,
        share: Option<Share>,
        metadata: serde_json::Map<String, serde_json::Value>,
    ) -> Self {
        PendingCheckpoint {
            position,
            arrays,
            share,
            before_write: Vec::new(),
            each_array: Vec::new(),
            before_commit: Vec::new(),
            callbacks: BTreeMap::new(),
            metadata,
        }
    }

    /// Where in the run it is taken: what a resume continues with.
    pub fn position(&self) -> RunPosition {
        self.position
    }

    /// Adds a check that the checkpoint's thread does for each array of the state, by its name,
    /// before the array is written. An error discards the checkpoint and ends the run. In a job of
    /// several processes each gets the arrays of which it writes a part.
    pub fn for_each_array(
        &mut self,
        check: impl FnMut(&str, &HostArray) -> Result<()> + Send + 'static,
    ) {
        self.each_array.push(Box::new(check));
    }

    /// Adds work that the checkpoint's thread does before it writes anything.
    pub(crate) fn before_write(&mut self, work: impl FnOnce() -> Result<()> + Send + 'static) {
        self.before_write.push(Box::new(work));
    }

    /// Adds work that the checkpoint's thread does with the arrays of the state, when they have
    /// arrived on the host and before anything is written. Training continues meanwhile, and the
    /// host has memory for all of them, also where it would otherwise have one
    /// ([`CheckpointMode::Stream`](crate::CheckpointMode)):
    /// [`for_each_array`](Self::for_each_array) needs less. An error discards the checkpoint and
    /// ends the run. In a job of several processes each gets the arrays of which it writes a part.
    pub fn before_commit(
        &mut self,
        work: impl FnOnce(&[(String, HostArray)]) -> Result<()> + Send + 'static,
    ) {
        self.before_commit.push(Box::new(work));
    }
}

impl fmt::Debug for PendingCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingCheckpoint")
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

/// A callback or logger that the clones of a trainer share.
pub(crate) struct Shared<T: ?Sized>(pub(crate) Arc<Mutex<T>>);

impl<T: ?Sized> Shared<T> {
    /// Takes it for a whole run.
    ///
    /// # Errors
    /// If another run has it.
    pub(crate) fn take(&self) -> Result<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Ok(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => Err(Error::new(
                ErrorKind::Unavailable,
                "fit",
                "another run uses a callback or logger of this trainer; build a trainer for each \
                 run",
            )),
        }
    }
}

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<T: ?Sized> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}
