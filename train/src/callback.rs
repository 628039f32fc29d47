//! Callbacks: code that observes a run, may stop it, and has state in its checkpoints.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
    time::Instant,
};

use halite_core::{Client, DeviceId, Error, ErrorKind, HostArray, MemoryStats, Pending, Result};
use halite_nn::Schedule;

use crate::{
    MetricValues, Report,
    checkpoint::{RunPosition, StateStream},
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
/// a callback cannot make a step wait for the device.
///
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

/// A run as its callbacks see it: where it is, and what they may request.
#[derive(Clone, Debug)]
pub struct Run {
    pub(crate) step: u64,
    pub(crate) epoch: u64,
    pub(crate) batch: usize,
    pub(crate) epochs: u64,
    pub(crate) batches_per_epoch: usize,
    pub(crate) batch_size: usize,
    pub(crate) out: Option<PathBuf>,
    pub(crate) resumed_from_step: Option<u64>,
    pub(crate) train_metrics: MetricValues,
    pub(crate) facts: Arc<RunFacts>,
    /// Seconds of earlier starts of this run.
    pub(crate) earlier_seconds: f64,
    /// Steps that were skipped, as far as their metrics have arrived.
    pub(crate) skipped: u64,
    pub(crate) started: Instant,
    pub(crate) save_requested: bool,
    pub(crate) stop_requested: bool,
    /// Name of the callback that requested the stop.
    pub(crate) stopped_by: Option<String>,
    /// Factor of learning rates, set since the last step.
    pub(crate) new_rate_factor: Option<f64>,
    pub(crate) rate_factor: f64,
    /// Whether the state has such a factor.
    pub(crate) has_rate_factor: bool,
}

/// What does not change in a run.
#[derive(Debug)]
pub(crate) struct RunFacts {
    pub(crate) metric_names: Vec<String>,
    /// Learning rates of the optimizer, by name.
    pub(crate) schedules: Vec<(String, Schedule)>,
    /// Floating point operations of the contractions of a step.
    pub(crate) flops_per_step: f64,
    pub(crate) client: Client,
    /// Devices that it trains on.
    pub(crate) devices: Vec<DeviceId>,
}

impl Run {
    /// Optimizer steps queued since the first start of the run.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The current epoch, from 0. In `on_epoch_end` it is the next one: the number of epochs that
    /// are done.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Steps queued in this epoch.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Epochs that the run should have; `u64::MAX` if only its steps or its time are limited.
    pub fn epochs(&self) -> u64 {
        self.epochs
    }

    /// Steps of an epoch.
    pub fn batches_per_epoch(&self) -> usize {
        self.batches_per_epoch
    }

    /// Samples of a step, over all devices.
    pub fn batch_size(&self) -> usize {
        self.batch_size
    }

    /// The directory of the run, if it has one.
    pub fn out(&self) -> Option<&Path> {
        self.out.as_deref()
    }

    /// Steps that changed nothing, since their gradients were not finite, as far as their metrics
    /// have arrived: [`OnNotFinite::Skip`](crate::OnNotFinite).
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The step of the checkpoint that this process resumed from.
    pub fn resumed_from_step(&self) -> Option<u64> {
        self.resumed_from_step
    }

    /// Means of the training metrics over the last epoch whose steps are done; in `on_fit_end` of a
    /// run that stopped in an epoch, over its steps so far.
    pub fn train_metrics(&self) -> &MetricValues {
        &self.train_metrics
    }

    /// Names of the metrics that the task reports, with the data that they are of: `train loss`,
    /// `validation loss`. They are known before the first step.
    pub fn metric_names(&self) -> &[String] {
        &self.facts.metric_names
    }

    /// The learning rates of the update that follows `step` others, by name, times their
    /// [factor](Self::learning_rate_factor).
    pub fn learning_rates(&self, step: u64) -> Vec<(String, f64)> {
        let schedules = self.facts.schedules.iter();
        let rate = |schedule: &Schedule| schedule.value(step) * self.rate_factor;
        schedules
            .map(|(name, schedule)| (name.clone(), rate(schedule)))
            .collect()
    }

    /// Floating point operations of a step in matrix multiplications and convolutions, over all
    /// devices, counted from the program.
    pub fn flops_per_step(&self) -> f64 {
        self.facts.flops_per_step
    }

    /// Number of devices of the run.
    pub fn devices(&self) -> usize {
        self.facts.devices.len()
    }

    /// Bytes in use on the device with the most; `None` where the driver does not count them.
    pub fn memory_in_use(&self) -> Option<u64> {
        self.memory().map(|memory| memory.in_use).max()
    }

    /// Largest memory in use on one device so far, in bytes; `None` where the driver does not count
    /// it.
    pub fn memory_peak(&self) -> Option<u64> {
        self.memory().filter_map(|memory| memory.peak).max()
    }

    /// Memory of each device of the run whose driver counts it.
    fn memory(&self) -> impl Iterator<Item = MemoryStats> {
        let devices = self.facts.client.devices().into_iter();
        let used = devices.filter(|device| self.facts.devices.contains(&device.id()));
        used.filter_map(|device| device.memory().ok())
    }

    /// Seconds since the run started, earlier starts of the same run included.
    pub fn seconds(&self) -> f64 {
        self.earlier_seconds + self.started.elapsed().as_secs_f64()
    }

    /// Requests the end of the run, with a checkpoint: after this step, or after this epoch if its
    /// steps are done. [`Fitted::stopped_by`](crate::Fitted) is
    /// [`StopReason::Callback`](crate::signals::StopReason::Callback) then, and the report has the
    /// [name](Callback::name) of the callback, unless it was the last epoch.
    pub fn stop(&mut self) {
        self.stop_requested = true;
    }

    /// Multiplies the learning rates of all steps that are launched later by `factor`, in place of the
    /// factor before, which is 1 at first. It is part of the state of the run, and nothing is compiled again.
    ///
    /// A resumed run begins with the factor of its checkpoint. One that is set in
    /// [`on_epoch_end`](Callback::on_epoch_end) is in the next checkpoint, not in that of the epoch.
    ///
    /// # Errors
    /// If no callback of the run [changes the learning rate](Callback::changes_learning_rate), or
    /// the factor is negative or not finite.
    pub fn set_learning_rate_factor(&mut self, factor: f64) -> Result<()> {
        if !self.has_rate_factor {
            let message = "the state has no factor of learning rates; return `true` from \
                           `Callback::changes_learning_rate`";
            return Err(Error::invalid("callback", message));
        }
        if !(factor.is_finite() && factor >= 0.0) {
            let message = format!(
                "the factor of learning rates is {factor}; expected 0 or a positive number"
            );
            return Err(Error::invalid("callback", message));
        }
        if self.rate_factor.to_bits() != factor.to_bits() {
            self.rate_factor = factor;
            self.new_rate_factor = Some(factor);
        }
        Ok(())
    }

    /// Factor of learning rates that a callback has set, in this process or before the checkpoint
    /// that it resumed from; 1 if none has. In
    /// [`additional_metrics`](Callback::additional_metrics) of training, it is that of the last step
    /// of the row.
    pub fn learning_rate_factor(&self) -> f64 {
        self.rate_factor
    }

    /// [`stop`](Self::stop) with a reason for the report, in place of the callback's name.
    pub fn stop_because(&mut self, reason: impl Into<String>) {
        self.stop_requested = true;
        self.stopped_by.get_or_insert_with(|| reason.into());
    }

    /// Requests a checkpoint after this event. Without an `out` directory nothing is saved.
    pub fn save(&mut self) {
        self.save_requested = true;
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        let client = Client::new(halite_core::Null::new(1));
        Run {
            step: 0,
            epoch: 0,
            batch: 0,
            epochs: 1,
            batches_per_epoch: 1,
            batch_size: 1,
            out: None,
            resumed_from_step: None,
            train_metrics: MetricValues::new(),
            facts: Arc::new(RunFacts {
                metric_names: Vec::new(),
                schedules: Vec::new(),
                flops_per_step: 0.0,
                devices: client.local_devices(),
                client,
            }),
            earlier_seconds: 0.0,
            skipped: 0,
            started: Instant::now(),
            save_requested: false,
            stop_requested: false,
            stopped_by: None,
            new_rate_factor: None,
            rate_factor: 1.0,
            has_rate_factor: false,
        }
    }

    pub(crate) fn position(&self) -> RunPosition {
        RunPosition {
            step: self.step,
            epoch: self.epoch,
            batch: self.batch as u64,
        }
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
        metadata: serde_json::Map<String, serde_json::Value>,
    ) -> Self {
        PendingCheckpoint {
            position,
            arrays,
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
    /// before the array is written. An error discards the checkpoint and ends the run.
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
    /// ends the run.
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
