//! A run as its callbacks see it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use halite_core::{Client, DeviceId, Error, MemoryStats, Result};
use halite_nn::Schedule;

#[cfg(doc)]
use super::Callback;
use crate::{MetricValues, checkpoint::RunPosition};

/// A run as its callbacks see it: where it is, and what they may request.
#[derive(Clone, Debug)]
pub struct Run {
    pub(crate) step: u64,
    pub(crate) epoch: u64,
    pub(crate) batch: usize,
    pub(crate) epochs: u64,
    pub(crate) batches_per_epoch: usize,
    pub(crate) batch_size: usize,
    /// Training samples of an epoch.
    pub(crate) samples_per_epoch: usize,
    pub(crate) out: Option<PathBuf>,
    pub(crate) resumed_from_step: Option<u64>,
    pub(crate) train_metrics: MetricValues,
    pub(crate) facts: Arc<RunFacts>,
    /// Seconds of earlier starts of this run.
    pub(crate) earlier_seconds: f64,
    /// Steps that were skipped, as far as their metrics have arrived.
    pub(crate) skipped: u64,
    pub(crate) started: Instant,
    /// Seconds of the run that the processes of a job agreed on last, if there are several.
    pub(crate) agreed_seconds: Option<f64>,
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
    /// Validation metrics that are NaN where they are undefined.
    pub(crate) collected: Vec<Arc<str>>,
    /// Learning rates of the optimizer, by name.
    pub(crate) schedules: Vec<(String, Schedule)>,
    /// Floating point operations of the contractions of a step.
    pub(crate) flops_per_step: f64,
    /// Peak rate of all devices together.
    pub(crate) peak_flops: Option<f64>,
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

    /// Samples of a step, over all devices. The last step of an epoch may have fewer, where batches
    /// are accumulated or the last one is padded.
    pub fn batch_size(&self) -> usize {
        self.batch_size
    }

    /// Training samples of the first `steps` steps of the run, without the padding of batches and
    /// steps. Speeds are of these.
    pub fn samples_of(&self, steps: u64) -> u64 {
        let per_epoch = self.batches_per_epoch.max(1) as u64;
        let (epochs, rest) = (steps / per_epoch, steps % per_epoch);
        let of_epoch = self.samples_per_epoch as u64;
        let of_rest = rest.saturating_mul(self.batch_size as u64).min(of_epoch);
        epochs.saturating_mul(of_epoch).saturating_add(of_rest)
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

    /// Whether this value of a validation metric is undefined, such as the ROC-AUC of a label with
    /// one class: callbacks leave it out. Other metrics are not NaN unless a run has diverged.
    pub(crate) fn is_undefined(&self, metric: &str, value: f64) -> bool {
        value.is_nan() && self.facts.collected.iter().any(|known| **known == *metric)
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

    /// Peak rate of all devices of the run together, in FLOP/s of the type that the
    /// precision of the trainer multiplies in, from the vendor's
    /// [specification](halite_core::DeviceSpec). `None` if it is not known of one of them, as of CPUs.
    pub fn peak_flops(&self) -> Option<f64> {
        self.facts.peak_flops
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

    /// Seconds of the run, by which all processes of a job decide alike.
    pub(crate) fn clock(&self) -> f64 {
        self.agreed_seconds.unwrap_or_else(|| self.seconds())
    }

    /// Requests the end of the run, with a checkpoint: after this step, or after this epoch if its
    /// steps are done. [`Fitted::stopped_by`](crate::Fitted) is
    /// [`StopReason::Callback`](crate::signals::StopReason::Callback) then, and the report has the
    /// [name](Callback::name) of the callback, unless it was the last epoch.
    pub fn stop(&mut self) {
        self.stop_requested = true;
    }

    /// Multiplies the learning rates of all steps that are launched later by `factor`, in place of
    /// the factor before, which is 1 at first. It is part of the state of the run, and nothing is
    /// compiled again.
    ///
    /// A resumed run begins with the factor of its checkpoint. One that is set in
    /// [`on_epoch_end`](Callback::on_epoch_end) is in the next checkpoint, not in that of the
    /// epoch.
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
            samples_per_epoch: 1,
            out: None,
            resumed_from_step: None,
            train_metrics: MetricValues::new(),
            facts: Arc::new(RunFacts {
                metric_names: Vec::new(),
                collected: Vec::new(),
                schedules: Vec::new(),
                flops_per_step: 0.0,
                peak_flops: None,
                devices: client.local_devices(),
                client,
            }),
            earlier_seconds: 0.0,
            skipped: 0,
            started: Instant::now(),
            agreed_seconds: None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_step_of_an_epoch_has_fewer_samples() {
        let run = Run {
            batches_per_epoch: 3,
            batch_size: 40,
            samples_per_epoch: 95,
            ..Run::for_tests()
        };
        let samples = [0, 1, 2, 3, 4, 6].map(|steps| run.samples_of(steps));
        assert_eq!(samples, [0, 40, 80, 95, 135, 190]);
    }
}
