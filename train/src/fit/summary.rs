//! Measurements of a run, and its report.

use std::collections::BTreeMap;

use halite_core::{Error, Result};
use halite_nn::Optimizer;
use halite_telemetry::{Activity, ClientMetrics};

use super::{Fit, TrainingLoop};
use crate::{
    MetricValues, Report, Task, Trainer,
    callback::Run,
    checkpoint::{Exact, this_host},
    loggers::{DeviceReport, ProcessReport, findings_of_processes},
    measured::Measured,
    processes::patience,
    programs::{Programs, Steps},
};

/// Variable of `halite launch` with the number of restarts of the job.
const RESTARTS: &str = "HALITE_RESTART";

impl<K: Task, O: Optimizer> TrainingLoop<'_, K, O> {
    /// Measurements of the steps of this process, or those of the process before if this one made
    /// no step.
    pub(super) fn measured(&self) -> Measured {
        let train_metrics = self.now.run.train_metrics.iter();
        let train_metrics = train_metrics
            .map(|(name, value)| (name.to_string(), Exact(*value)))
            .collect();
        if self.now.run.step == self.now.first {
            return Measured {
                train_metrics,
                ..self.now.measured.clone()
            };
        }
        let activity = self
            .fit
            .trainer
            .client
            .metrics()
            .activity()
            .since(&self.fit.before);
        let device_time = |name: &str, origin| {
            let program = activity.function(name, Some(origin))?;
            Some(program.execute_mean()?.as_secs_f64() * program.launches as f64)
        };
        let Programs { step, steps, .. } = &self.fit.programs;
        let steps = steps.as_ref().map(Steps::program);
        let busy = [
            device_time(step.name(), step.origin()),
            steps.and_then(|steps| device_time(steps.name(), steps.origin())),
        ];
        let busy = busy.into_iter().flatten().reduce(|one, other| one + other);
        let training = self.now.training.as_secs_f64();
        let samples =
            self.now.run.samples_of(self.now.run.step) - self.now.run.samples_of(self.now.first);
        let samples = samples as f64;
        let (first_step, of_process) = self
            .now
            .time_to_first_step
            .get()
            .copied()
            .unwrap_or_default();
        Measured {
            train_metrics,
            samples_per_second: Exact(if training > 0.0 {
                samples / training
            } else {
                0.0
            }),
            training_seconds: Exact(training),
            input_wait_seconds: Exact(self.now.input_wait.as_secs_f64()),
            // Two clocks may differ by a little.
            device_busy_seconds: busy.map(|busy| Exact(busy.min(training))),
            seconds_to_first_step: Exact(first_step.as_secs_f64()),
            process_seconds_to_first_step: of_process.map(|since| Exact(since.as_secs_f64())),
            loss_scale: self.now.loss_scale.map(Exact),
        }
    }

    /// Measurements of each process of a job, in all of them; none if there is one process.
    pub(super) fn of_processes(&self) -> Result<Vec<ProcessReport>> {
        let Some(processes) = &self.fit.trainer.processes else {
            return Ok(Vec::new());
        };
        let exchanged = processes.exchanged();
        let before = &self.fit.exchanged_before;
        // The devices' own collectives are not.
        let is_measured = !self.fit.trainer.spans_processes;
        let restarts = std::env::var(RESTARTS).ok();
        let mine = ProcessReport {
            process: processes.rank() as u64,
            host: this_host(),
            steps: self.now.run.step - self.now.first,
            training_seconds: self.now.training.as_secs_f64(),
            input_wait_seconds: self.now.input_wait.as_secs_f64(),
            exchange_seconds: is_measured.then(|| (exchanged.time - before.time).as_secs_f64()),
            bytes_sent: is_measured.then(|| exchanged.bytes_sent - before.bytes_sent),
            restarts: restarts.and_then(|count| count.parse().ok()).unwrap_or(0),
            skipped_samples: self.fit.skipped_samples(),
        };
        let json = |error: serde_json::Error| {
            Error::invalid("processes", "measurements are not JSON").caused_by(error)
        };
        let mine = serde_json::to_vec(&mine).map_err(json)?;
        let group = processes.group();
        let all = group.all_gather("measurements", &mine, patience(processes))?;
        let all = all.iter().map(|bytes| serde_json::from_slice(bytes));
        all.collect::<Result<_, _>>().map_err(json)
    }

    /// The report of a run.
    pub(super) fn report(&self, processes: Vec<ProcessReport>, interrupted: bool) -> Report {
        let Trainer {
            client,
            mesh,
            options,
            ..
        } = self.fit.trainer;
        let activity = client.metrics().activity().since(&self.fit.before);
        let (counted, measured) = (activity.counters, self.measured());
        // Findings are about training, and a validation alone has none.
        let mut findings = if self.now.run.step > self.now.first {
            self.findings(activity)
        } else {
            Vec::new()
        };
        findings.extend(findings_of_processes(&processes));
        let skipped_samples = if processes.is_empty() {
            self.fit.skipped_samples()
        } else {
            processes.iter().map(|one| one.skipped_samples).sum()
        };
        let device = DeviceReport::of(client, mesh.devices(), &self.fit.trainer.precision);
        let steps_per_second =
            measured.samples_per_second.0 / options.samples_per_step().max(1) as f64;
        let mfu = (self.now.run.peak_flops())
            .map(|peak| steps_per_second * self.now.run.flops_per_step() / peak)
            .filter(|_| steps_per_second > 0.0);
        Report {
            samples_per_second: measured.samples_per_second.0,
            compiles: counted.compiles,
            cache_hits: counted.cache_hits,
            compile_seconds_saved: counted.compile_time_saved.as_secs_f64(),
            step_compiles: self.fit.programs.step.compiles()
                + (self.fit.programs.steps.as_ref()).map_or(0, |steps| steps.program().compiles()),
            blocking_reads: counted.blocking_reads,
            uploads: counted.uploads,
            training_seconds: measured.training_seconds.0,
            input_wait_seconds: measured.input_wait_seconds.0,
            device_busy_seconds: measured.device_busy_seconds.map(|busy| busy.0),
            findings,
            device,
            mfu,
            loss_scale: measured.loss_scale.map(|scale| scale.0),
            seconds_to_first_step: measured.seconds_to_first_step.0,
            process_seconds_to_first_step: measured
                .process_seconds_to_first_step
                .map(|since| since.0),
            devices: mesh.size() as u64,
            processes,
            precision: self.fit.trainer.precision.to_string(),
            plugin: client.platform().name.to_string(),
            plugin_version: client.platform().version.clone(),
            halite_version: env!("CARGO_PKG_VERSION").to_string(),
            seed: options.seed,
            skipped_samples,
            ..self.results(interrupted)
        }
    }

    /// The metrics and the position of a run: the part of its report that is the same on any device.
    fn results(&self, interrupted: bool) -> Report {
        let run = &self.now.run;
        let validation = self.now.validated.scores.as_ref();
        let last = validation.map_or(&run.train_metrics, |scores| &scores.values);
        let at_end = validation.is_some() && self.now.validated.step == Some(run.step);
        Report {
            metrics: named(last),
            metrics_of_step: self.now.validated.step.filter(|_| validation.is_some()),
            confusion: validation.map_or_else(Vec::new, |scores| scores.confusion.clone()),
            train_metrics: named(&run.train_metrics),
            steps: run.step,
            epochs: run.epoch,
            seconds: run.seconds(),
            device_memory_peak: run.memory_peak(),
            interrupted,
            stopped_by: self.stopped_by().filter(|_| interrupted),
            train_metrics_of_steps: steps_of_epoch(run).filter(|_| !at_end),
            skipped_steps: run.skipped + self.now.skipped_in_window,
            resumed_from_step: run.resumed_from_step,
            ..Report::default()
        }
    }

    /// What asked the run to stop, if anything did.
    fn stopped_by(&self) -> Option<String> {
        match self.fit.interrupts.reason() {
            Some(reason) => Some(reason.to_string()),
            None => self.now.run.stopped_by.clone(),
        }
    }

    /// Findings about the run. Waits for training batches are those of the report, so that both
    /// have the same numbers.
    fn findings(&self, mut activity: Activity) -> Vec<String> {
        let (dataset, workers) = (
            self.fit.train.dataset().name(),
            self.fit.trainer.options.workers,
        );
        let inputs = activity.inputs.iter_mut();
        for input in inputs.filter(|one| one.dataset == dataset && one.workers == workers) {
            input.batches = self.now.run.step - self.now.first;
            (input.waited, input.of) = (self.now.input_wait, self.now.training);
        }
        activity
            .findings()
            .iter()
            .map(ToString::to_string)
            .collect()
    }
}

impl<K: Task, O: Optimizer> Fit<'_, K, O> {
    /// Samples that this process skipped because they cannot be read.
    fn skipped_samples(&self) -> u64 {
        let validation = self.validation.iter().map(|set| &set.data);
        let loaders = validation.chain([&self.train]);
        loaders.map(|loader| loader.skipped().len() as u64).sum()
    }
}

fn named(metrics: &MetricValues) -> BTreeMap<String, f64> {
    let metrics = metrics.iter();
    metrics
        .map(|(name, value)| (name.to_string(), *value))
        .collect()
}

/// The first and the last step of the current epoch; `None` between two epochs.
fn steps_of_epoch(run: &Run) -> Option<[u64; 2]> {
    let steps = run.batch as u64;
    (steps > 0).then(|| [run.step.saturating_sub(steps) + 1, run.step])
}
