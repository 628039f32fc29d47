//! Measurements of a run, and its report.

use std::collections::BTreeMap;

use halite_core::{Error, Result};
use halite_nn::Optimizer;
use halite_telemetry::{Activity, ClientMetrics};

use super::{Fit, LoopState};
use crate::{
    MetricValues, Report, Task, Trainer,
    callback::Run,
    checkpoint::{Exact, this_host},
    loggers::{DeviceReport, ProcessReport, findings_of_processes},
    measured::Measured,
    processes::patience,
    programs::{ModelParams, Programs, Steps},
};

/// Variable of `halite launch` with the number of restarts of the job.
const RESTARTS: &str = "HALITE_RESTART";

impl<K: Task, O: Optimizer> Fit<'_, K, O>
where
    ModelParams<K>: Send + Sync,
{
    /// Measurements of the steps of this process, or those of the process before if this one made
    /// no step.
    pub(super) fn measured(&self, now: &LoopState<K, O>) -> Measured {
        let train_metrics = now.run.train_metrics.iter();
        let train_metrics = train_metrics
            .map(|(name, value)| (name.to_string(), Exact(*value)))
            .collect();
        if now.run.step == now.first {
            return Measured {
                train_metrics,
                ..now.measured.clone()
            };
        }
        let activity = self.trainer.client.metrics().activity().since(&self.before);
        let device_time = |name: &str, origin| {
            let program = activity.function(name, Some(origin))?;
            Some(program.execute_mean()?.as_secs_f64() * program.launches as f64)
        };
        let Programs { step, steps, .. } = &self.programs;
        let steps = steps.as_ref().map(Steps::program);
        let busy = [
            device_time(step.name(), step.origin()),
            steps.and_then(|steps| device_time(steps.name(), steps.origin())),
        ];
        let busy = busy.into_iter().flatten().reduce(|one, other| one + other);
        let training = now.training.as_secs_f64();
        let samples = now.run.samples_of(now.run.step) - now.run.samples_of(now.first);
        let samples = samples as f64;
        let (first_step, of_process) = now.time_to_first_step.get().copied().unwrap_or_default();
        Measured {
            train_metrics,
            samples_per_second: Exact(if training > 0.0 {
                samples / training
            } else {
                0.0
            }),
            training_seconds: Exact(training),
            input_wait_seconds: Exact(now.input_wait.as_secs_f64()),
            // Two clocks may differ by a little.
            device_busy_seconds: busy.map(|busy| Exact(busy.min(training))),
            seconds_to_first_step: Exact(first_step.as_secs_f64()),
            process_seconds_to_first_step: of_process.map(|since| Exact(since.as_secs_f64())),
            loss_scale: now.loss_scale.map(Exact),
        }
    }

    /// Measurements of each process of a job, in all of them; none if there is one process.
    pub(super) fn of_processes(&self, now: &LoopState<K, O>) -> Result<Vec<ProcessReport>> {
        let Some(processes) = &self.trainer.processes else {
            return Ok(Vec::new());
        };
        let exchanged = processes.exchanged();
        let before = &self.exchanged_before;
        // The devices' own collectives are not.
        let is_measured = !self.trainer.spans_processes;
        let restarts = std::env::var(RESTARTS).ok();
        let mine = ProcessReport {
            process: processes.rank() as u64,
            host: this_host(),
            steps: now.run.step - now.first,
            training_seconds: now.training.as_secs_f64(),
            input_wait_seconds: now.input_wait.as_secs_f64(),
            exchange_seconds: is_measured.then(|| (exchanged.time - before.time).as_secs_f64()),
            bytes_sent: is_measured.then(|| exchanged.bytes_sent - before.bytes_sent),
            restarts: restarts.and_then(|count| count.parse().ok()).unwrap_or(0),
            skipped_samples: self.skipped_samples(),
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

    /// Samples that this process skipped because they cannot be read.
    fn skipped_samples(&self) -> u64 {
        let validation = self.validation.iter().map(|set| &set.data);
        let loaders = validation.chain([&self.train]);
        loaders.map(|loader| loader.skipped().len() as u64).sum()
    }

    /// The report of a run.
    pub(super) fn report(
        &self,
        now: &LoopState<K, O>,
        processes: Vec<ProcessReport>,
        interrupted: bool,
    ) -> Report {
        let Trainer {
            client,
            mesh,
            options,
            ..
        } = self.trainer;
        let activity = client.metrics().activity().since(&self.before);
        let (counted, measured) = (activity.counters, self.measured(now));
        // Findings are about training, and a validation alone has none.
        let mut findings = match now.run.step > now.first {
            true => self.findings(now, activity),
            false => Vec::new(),
        };
        findings.extend(findings_of_processes(&processes));
        let skipped_samples = match processes.is_empty() {
            true => self.skipped_samples(),
            false => processes.iter().map(|one| one.skipped_samples).sum(),
        };
        let validation = now.validated.scores.as_ref();
        let last = validation.map_or(&now.run.train_metrics, |scores| &scores.values);
        let at_end = validation.is_some() && now.validated.step == Some(now.run.step);
        let device = DeviceReport::of(client, mesh.devices(), &self.trainer.precision);
        let steps_per_second =
            measured.samples_per_second.0 / options.samples_per_step().max(1) as f64;
        let mfu = (now.run.peak_flops())
            .map(|peak| steps_per_second * now.run.flops_per_step() / peak)
            .filter(|_| steps_per_second > 0.0);
        Report {
            metrics: named(last),
            metrics_of_step: now.validated.step.filter(|_| validation.is_some()),
            confusion: validation.map_or_else(Vec::new, |scores| scores.confusion.clone()),
            train_metrics: named(&now.run.train_metrics),
            steps: now.run.step,
            epochs: now.run.epoch,
            seconds: now.run.seconds(),
            samples_per_second: measured.samples_per_second.0,
            compiles: counted.compiles,
            cache_hits: counted.cache_hits,
            compile_seconds_saved: counted.compile_time_saved.as_secs_f64(),
            step_compiles: self.programs.step.compiles()
                + (self.programs.steps.as_ref()).map_or(0, |steps| steps.program().compiles()),
            blocking_reads: counted.blocking_reads,
            uploads: counted.uploads,
            training_seconds: measured.training_seconds.0,
            input_wait_seconds: measured.input_wait_seconds.0,
            device_busy_seconds: measured.device_busy_seconds.map(|busy| busy.0),
            findings,
            device_memory_peak: now.run.memory_peak(),
            device,
            mfu,
            loss_scale: measured.loss_scale.map(|scale| scale.0),
            seconds_to_first_step: measured.seconds_to_first_step.0,
            process_seconds_to_first_step: measured
                .process_seconds_to_first_step
                .map(|since| since.0),
            devices: mesh.size() as u64,
            processes,
            precision: self.trainer.precision.to_string(),
            plugin: client.platform().name.to_string(),
            plugin_version: client.platform().version.clone(),
            halite_version: env!("CARGO_PKG_VERSION").to_string(),
            seed: options.seed,
            interrupted,
            stopped_by: self.stopped_by(now).filter(|_| interrupted),
            train_metrics_of_steps: steps_of_epoch(&now.run).filter(|_| !at_end),
            skipped_steps: now.run.skipped + now.skipped_in_window,
            skipped_samples,
            resumed_from_step: now.run.resumed_from_step,
            ..Report::default()
        }
    }

    /// What asked the run to stop, if anything did.
    fn stopped_by(&self, now: &LoopState<K, O>) -> Option<String> {
        match self.interrupts.reason() {
            Some(reason) => Some(reason.to_string()),
            None => now.run.stopped_by.clone(),
        }
    }

    /// Findings about the run. Waits for training batches are those of the report, so that both
    /// have the same numbers.
    fn findings(&self, now: &LoopState<K, O>, mut activity: Activity) -> Vec<String> {
        let (dataset, workers) = (self.train.dataset().name(), self.trainer.options.workers);
        let inputs = activity.inputs.iter_mut();
        for input in inputs.filter(|one| one.dataset == dataset && one.workers == workers) {
            input.batches = now.run.step - now.first;
            (input.waited, input.of) = (now.input_wait, now.training);
        }
        activity
            .findings()
            .iter()
            .map(ToString::to_string)
            .collect()
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
