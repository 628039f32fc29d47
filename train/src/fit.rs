//! The training loop.
//!
//! The loop queues steps and reads nothing back. Metrics accumulate on the device in a *window*;
//! every `log_every_n_steps` steps the window is copied to the host in the background, and a new one
//! begins. Everything else - progress, tables, checkpoints, the NaN check - is a
//! [callback](crate::callback::Callback).

mod frozen;
mod launches;
mod messages;
mod meter;
mod rates;
mod save;
mod start;
mod summary;
mod validate;
mod whole;

use std::{
    fmt,
    mem::replace,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use halite_core::{Array, Error, ErrorKind, Result};
use halite_data::{DeviceBatch, Loader, Position, Prefetch};
use halite_nn::{ArrayCollectives, Exchanged, Optimizer};
use halite_telemetry::{Activity, ClientMetrics};

pub(crate) use self::start::{FitInputs, Start};
use self::{launches::Launches, meter::Meter};
use crate::{
    Report, Task, Trainer,
    callback::{Callback, Run, RunFacts},
    callbacks::{Callbacks, Checkpointing},
    checkpoint::RunPosition,
    identity::PendingIdentity,
    in_flight::InFlight,
    loss_scale::LOSS_SCALE,
    measured::Measured,
    metrics::Scores,
    processes::{Agreement, ResumeFrom, Wish},
    programs::{ModelArrays, ModelParams, Programs, RunState},
    signals::{Interrupts, StopFlag, StopReason},
    since_start::since_start,
    validation_set::NamedSet,
    waits::{Limits, NextBatch, next_batch},
};

/// A trained model, and the report of its training.
pub struct Fitted<K: Task> {
    /// The model after the last step.
    pub model: ModelArrays<K>,
    /// The model with the averages of its parameters, if the trainer has a rule of them.
    pub average: Option<ModelArrays<K>>,
    /// Measurements and results.
    pub report: Report,
    /// The reason for which the run stopped before its last epoch, if it did.
    pub stopped_by: Option<StopReason>,
}

impl<K: Task> fmt::Display for Fitted<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.fmt(f)
    }
}

impl<K: Task> fmt::Debug for Fitted<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fitted")
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

/// What the steps of a run share.
pub(crate) struct Fit<'a, K: Task, O: Optimizer> {
    trainer: &'a Trainer,
    programs: Programs<K, O>,
    train: Loader,
    validation: Vec<NamedSet>,
    identity: PendingIdentity,
    callbacks: Callbacks<'a>,
    facts: Arc<RunFacts>,
    /// The checkpoint to resume from, until the run has begun.
    saved: Option<ResumeFrom>,
    interrupts: Interrupts,
    stop: StopFlag,
    /// Activity of the client before the run.
    before: Activity,
    /// What the programs of the job had exchanged before the run.
    exchanged_before: Exchanged,
    started: Instant,
    /// Initial parameters, if they are given.
    values: Option<ModelArrays<K>>,
    /// How the state is saved, once that is decided.
    saves_copies: Option<bool>,
    /// Gathers the state for a checkpoint, where other processes have parts of it.
    gather: Option<ArrayCollectives>,
}

/// One run: the parts that change.
struct LoopState<K: Task, O: Optimizer> {
    /// The state and the window of metrics; `None` only while a step has them.
    live: Option<(RunState<K, O, Array>, Array)>,
    run: Run,
    meter: Meter,
    in_flight: InFlight,
    /// Steps that earlier processes of the run did.
    first: u64,
    /// Position of the newest checkpoint, which may still be written.
    saved_at: Option<RunPosition>,
    /// Time in which a step could have been queued and its batch was not there.
    input_wait: Duration,
    /// Time in the steps of epochs; not in validation, nor in compiling.
    training: Duration,
    /// Time until the first step was done, since the start of the run and of the process.
    time_to_first_step: Arc<OnceLock<(Duration, Option<Duration>)>>,
    /// A save after an error is under way.
    has_failed: bool,
    /// What the processes agree on, if there are several.
    agreement: Option<Agreement>,
    /// Measurements of the process before, which are reported if this one has no step to do.
    measured: Measured,
    validated: Validated,
    /// Steps that were skipped in the window on the device, when the run ended.
    skipped_in_window: u64,
    /// Factor of learning rates of the last step that was queued.
    step_rate_factor: f64,
    /// Loss scale of the steps of the last window that arrived, if there is one.
    loss_scale: Option<f64>,
}

/// The last validation of a run.
#[derive(Default)]
struct Validated {
    /// The step after which it was.
    step: Option<u64>,
    /// Seconds of the run when it began; at first, those when the process began its steps, or 0.
    seconds: f64,
    /// Its metrics, if this process made it.
    scores: Option<Scores>,
}

impl<K: Task, O: Optimizer> LoopState<K, O> {
    /// The state and the window.
    ///
    /// # Errors
    /// If a step took them and failed: the run is over then.
    fn live(&self) -> Result<&(RunState<K, O, Array>, Array)> {
        self.live.as_ref().ok_or_else(lost)
    }

    /// Seconds of the run; of several processes, those that they agreed on.
    fn seconds(&self) -> f64 {
        let agreement = self.agreement.as_ref();
        agreement.map_or_else(|| self.run.seconds(), Agreement::seconds)
    }
}

fn lost() -> Error {
    Error::new(
        ErrorKind::Internal,
        "fit",
        "an earlier step failed and took the state with it",
    )
}

/// Steps after which several processes take a window of metrics: more than are queued, so that none
/// waits for a step that others have not launched.
const WINDOW_DELAY: u64 = 16;

/// The end of the steps of an epoch.
#[derive(PartialEq)]
enum Ended {
    Complete,
    /// The steps or the time of the run are over first.
    Limit,
    /// The run was asked to stop first.
    Stopped,
}

impl<K: Task, O: Optimizer> Fit<'_, K, O>
where
    ModelParams<K>: Send + Sync,
{
    /// Runs to the end, or to the first error.
    ///
    /// Every checkpoint is on the disk before it returns, unless the run was stopped or failed and
    /// the copies of the state did not arrive in time.
    pub(crate) fn fit(mut self) -> Result<Fitted<K>> {
        let mut now = self.begin().inspect_err(|error| {
            // Dropping a program waits for its compiler, which may be what hangs.
            if matches!(
                error.kind(),
                ErrorKind::Cancelled | ErrorKind::DeadlineExceeded
            ) {
                self.programs.init.abandon_background();
                self.programs.step.abandon_background();
                if let Some(steps) = &self.programs.steps {
                    steps.program().abandon_background();
                }
            }
        })?;
        let result = self.epochs(&mut now);
        let is_late = result
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::DeadlineExceeded);
        if is_late {
            self.give_up_device(&now);
        }
        let saved = self.callbacks.finish_saving();
        // The first error is the cause of the second.
        let report = match result.and_then(|report| saved.map(|()| report)) {
            Ok(report) => report,
            Err(mut error) => {
                let of_job = now.agreement.as_ref().and_then(Agreement::checkpoint);
                match of_job {
                    Some(path) if !error.to_string().contains(path) => {
                        error = error.with_note(&format!("the last checkpoint is {path}"));
                    }
                    None if is_late => {
                        error = error.with_note(&self.callbacks.newest_checkpoint());
                    }
                    _ => {}
                }
                self.callbacks.fail(&now.run, &error);
                return Err(error);
            }
        };
        let stopped_by = self.interrupts.reason().or(Some(StopReason::Callback));
        let (state, _) = now.live.take().ok_or_else(lost)?;
        let average = state.average.as_ref();
        let average =
            average.map(|_| self.with_validated(&state, |model| rates::copied::<K::Model>(model)));
        Ok(Fitted {
            average: average.transpose()?,
            model: state.model,
            stopped_by: stopped_by.filter(|_| report.interrupted),
            report,
        })
    }

    fn epochs(&mut self, now: &mut LoopState<K, O>) -> Result<Report> {
        self.callbacks
            .notify(&mut now.run, |callback, run| callback.on_fit_start(run))?;
        self.check_sanity(now)?;
        let mut is_stopped = false;
        while !self.is_over(now) && !self.is_end_requested(now)? {
            if self.epoch(now)? == Ended::Stopped {
                self.save_stopped(now)?;
                if now.run.batch > 0 {
                    self.measure_unfinished(now)?;
                }
                is_stopped = true;
                break;
            }
        }
        let at_end = now.validated.step == Some(now.run.step);
        let mut validation = now.validated.scores.take().filter(|_| at_end);
        if validation.is_none() && !is_stopped && !self.validation.is_empty() && self.is_over(now) {
            // All steps were done before the resume: validated for the report.
            let progress = &self.callbacks.progress_bar.progress;
            progress.waiting_for("validating");
            let validated = self.validate(now);
            self.callbacks.progress_bar.progress.done_waiting();
            validation = validated.map_err(|error| self.of_validation(now, error))?;
            is_stopped = validation.is_none();
        }
        self.callbacks.finish_saving()?;
        let interrupted = is_stopped || !self.is_over(now);
        let (validation, processes) = (validation.unwrap_or_default(), self.of_processes(now)?);
        let mut report = self.report(now, &validation, processes, interrupted);
        self.callbacks.finish(&mut now.run, &mut report)?;
        Ok(report)
    }

    /// Whether the epochs, the steps or the time of the run are over.
    fn is_over(&self, now: &LoopState<K, O>) -> bool {
        now.run.epoch >= now.run.epochs || self.limit_is_reached(now)
    }

    /// Whether the steps or the time of the run are over.
    fn limit_is_reached(&self, now: &LoopState<K, O>) -> bool {
        let options = &self.trainer.options;
        let time = options.max_time.map(|time| time.as_secs_f64());
        options.max_steps.is_some_and(|most| now.run.step >= most)
            || time.is_some_and(|most| now.seconds() >= most)
    }

    /// Does the rest of an epoch, and validates where that is due.
    fn epoch(&mut self, now: &mut LoopState<K, O>) -> Result<Ended> {
        match self.steps(now)? {
            Ended::Stopped => return Ok(Ended::Stopped),
            Ended::Limit => return self.end_within_epoch(now),
            Ended::Complete => now.run.train_metrics = now.meter.means(),
        }
        self.notify(now, |callback, run| callback.on_train_epoch_end(run))?;
        let mut called = Ok(());
        if self.is_validation_due(now) {
            match self.validation(now)? {
                Some(result) => called = result,
                // The steps of the epoch are saved, and a resume validates.
                None => return Ok(Ended::Stopped),
            }
        }
        self.start_epoch(now)?;
        if let Err(error) = called {
            return Err(self.save_before(now, error));
        }
        let is_last = self.is_over(now) || now.run.stop_requested;
        if is_last || self.callbacks.saves_epoch(&now.run) {
            now.run.save();
        }
        self.save_if_requested(now)?;
        self.notify(now, |callback, run| callback.on_epoch_end(run))?;
        Ok(Ended::Complete)
    }

    /// Validates and saves a run whose last step is within an epoch.
    fn end_within_epoch(&mut self, now: &mut LoopState<K, O>) -> Result<Ended> {
        // The time may be over before the first step: the metrics are those of the epoch before.
        if now.run.batch > 0 {
            self.measure_unfinished(now)?;
        }
        let validated = self.validation.is_empty() || now.validated.step == Some(now.run.step);
        if !validated {
            match self.validation(now)? {
                Some(called) => self.check_called(now, called)?,
                None => return Ok(Ended::Stopped),
            }
        }
        now.run.save();
        self.save_if_requested(now)?;
        Ok(Ended::Limit)
    }

    /// Moves to the next epoch, with empty metrics.
    fn start_epoch(&mut self, now: &mut LoopState<K, O>) -> Result<()> {
        let metrics = &self.programs.train_metrics;
        let window = metrics.upload(&self.trainer.client, &self.trainer.mesh)?;
        now.live.as_mut().ok_or_else(lost)?.1 = window;
        now.meter = Meter::new(metrics);
        now.run.epoch += 1;
        now.run.batch = 0;
        Ok(())
    }

    /// Does the remaining steps of an epoch.
    fn steps(&mut self, now: &mut LoopState<K, O>) -> Result<Ended> {
        let (begun, compiled) = (Instant::now(), self.compile_time());
        self.notify(now, |callback, run| callback.on_epoch_start(run))?;
        let mut prefetch = None;
        if now.run.batch < now.run.batches_per_epoch {
            let Run {
                step, epoch, batch, ..
            } = now.run;
            let options = &self.trainer.options;
            let start = Position {
                epoch,
                batch: batch * options.numerics.accumulate_grad_batches,
            };
            let sizes = Launches::new(options, step, batch, now.run.batches_per_epoch)
                .ending_after(|step| self.callbacks.wait_for(step..=step));
            prefetch = Some(self.trainer.prefetch_steps(&self.train, start, sizes)?);
        }
        let mut validating = Duration::ZERO;
        let mut limits = Limits::new(self.trainer.options.wait_limit);
        let mut ended = Ended::Complete;
        while let Some(prefetch) = &mut prefetch {
            if self.is_asked_to_stop(now)? {
                ended = Ended::Stopped;
                break;
            }
            let is_within = now.run.batch < now.run.batches_per_epoch;
            if is_within && now.run.batch > 0 && self.is_validation_due(now) {
                let begun = Instant::now();
                let called = self.validation(now)?;
                validating += begun.elapsed();
                let Some(called) = called else {
                    ended = Ended::Stopped;
                    break;
                };
                self.check_called(now, called)?;
                // A callback may have asked for the end of the run.
                continue;
            }
            self.save_if_requested(now)?;
            if is_within && self.limit_is_reached(now) {
                ended = Ended::Limit;
                break;
            }
            match next_batch("training", prefetch, &mut limits, &|| self.stops_alone()) {
                Ok(NextBatch::Batch(batch)) => self.step(now, batch)?,
                Ok(NextBatch::End) => break,
                Ok(NextBatch::Stopped) => ended = Ended::Stopped,
                Err(error) => return Err(self.save_before(now, error)),
            }
        }
        now.input_wait += prefetch.as_ref().map_or(Duration::ZERO, Prefetch::waited);
        if ended == Ended::Complete {
            self.send_window(now)?;
            self.collect_all(now)?;
        }
        let compiling = self.compile_time() - compiled;
        now.training += (begun.elapsed()).saturating_sub(compiling + validating);
        if ended == Ended::Stopped {
            // Before `prefetch` is dropped, which waits for a reader that may hang.
            self.save_stopped(now)?;
        }
        Ok(ended)
    }

    /// Returns whether a signal, the stop flag or a callback requested a stop; of several processes,
    /// in any of them.
    fn is_asked_to_stop(&self, now: &mut LoopState<K, O>) -> Result<bool> {
        if let Some(agreement) = &now.agreement {
            if agreement.is_due(now.run.step) {
                self.agree(now)?;
            }
            let agreement = now.agreement.as_ref();
            return Ok(agreement.is_some_and(Agreement::stops));
        }
        Ok(self.interrupts.reason().is_some() || now.run.stop_requested)
    }

    /// Returns whether a callback requested the end of the run.
    fn is_end_requested(&self, now: &mut LoopState<K, O>) -> Result<bool> {
        self.agree(now)?;
        Ok(now.run.stop_requested)
    }

    /// Agrees with the other processes, if there are some, on the time and on whether to stop.
    fn agree(&self, now: &mut LoopState<K, O>) -> Result<()> {
        let Some(agreement) = &mut now.agreement else {
            return Ok(());
        };
        agreement.agree(&Wish {
            step: now.run.step,
            done: now.in_flight.done().unwrap_or(now.first),
            seconds: now.run.seconds(),
            stop: self.interrupts.reason(),
            is_requested: now.run.stop_requested,
            saved: (self.callbacks.checkpointing.as_ref())
                .and_then(Checkpointing::newly_saved)
                .map(|path| path.display().to_string()),
        })?;
        now.run.agreed_seconds = Some(agreement.seconds());
        if let Some(reason) = agreement.stop() {
            self.stop.stop_for(reason);
        }
        now.run.stop_requested |= agreement.is_requested();
        Ok(())
    }

    /// Whether the run is asked to stop, and need not agree with other processes on the step.
    fn stops_alone(&self) -> bool {
        self.trainer.processes.is_none() && self.stop.is_set()
    }

    fn compile_time(&self) -> Duration {
        let steps = self.programs.steps.as_ref();
        let steps = steps.map_or(Duration::ZERO, |steps| steps.program().stages().total());
        self.programs.step.stages().total() + steps
    }

    /// Queues the steps of a launch, and takes the metrics that have arrived.
    fn step(&mut self, now: &mut LoopState<K, O>, batch: DeviceBatch) -> Result<()> {
        let _span = tracing::trace_span!("step", step = now.run.step + 1).entered();
        let of_step = self.trainer.options.numerics.accumulate_grad_batches;
        let count = batch.batches.div_ceil(of_step);
        let batch = self.trainer.batch_tree::<K>(batch)?;
        self.set_rate_factor(now)?;
        now.step_rate_factor = now.run.rate_factor;
        let (state, window) = now.live.take().ok_or_else(lost)?;
        let next = match &self.programs.steps {
            Some(steps) if count > 1 => steps.call(state, window, &batch)?,
            _ => self.programs.step.call(state, (&batch, &window))?,
        };
        let (_, window) = now.live.insert(next);
        if now.run.step == now.first {
            let (started, time) = (self.started, now.time_to_first_step.clone());
            let ready = window.shards().first().ready()?;
            ready.on_ready(Box::new(move |_| {
                _ = time.set((started.elapsed(), since_start()))
            }));
        }
        if now.time_to_first_step.get().is_some() {
            self.identity.begin();
            self.prepare_saves();
        }
        let last = now.run.step + count as u64;
        now.in_flight.push(last, window, &|| self.stop.is_set())?;
        if self.callbacks.wait_for(now.run.step + 1..=last) {
            now.in_flight.settle(last, &|| self.stop.is_set())?;
        }
        let mut called = Ok(());
        for _ in 0..count {
            now.run.step += 1;
            now.run.batch += 1;
            self.trainer.client.metrics().step();
            if called.is_ok() {
                called = self
                    .callbacks
                    .notify(&mut now.run, |callback, run| callback.on_step_end(run));
            }
        }
        self.check_called(now, called)?;
        let every = self.trainer.options.log_every_n_steps;
        if now.run.step.is_multiple_of(every) {
            self.send_window(now)?;
        }
        while let Some(window) = self.arrived(now)? {
            self.log(now, window)?;
        }
        Ok(())
    }

    /// Takes the next window if it has arrived. Several processes take each window after the same
    /// step, at which all have it, so that callbacks act alike.
    fn arrived(&self, now: &mut LoopState<K, O>) -> Result<Option<meter::Arrived>> {
        if now.agreement.is_none() {
            return now.meter.poll();
        }
        match now.meter.first_pending() {
            Some(step) if step + WINDOW_DELAY <= now.run.step => {
                now.in_flight.settle(step, &|| self.stop.is_set())?;
                now.meter.wait(now.in_flight.limits(), &self.stop)
            }
            _ => Ok(None),
        }
    }

    /// Starts the copy of the window to the host, and a new window.
    fn send_window(&mut self, now: &mut LoopState<K, O>) -> Result<()> {
        let metrics = &self.programs.train_metrics;
        let empty = metrics.upload(&self.trainer.client, &self.trainer.mesh)?;
        let (_, window) = now.live.as_mut().ok_or_else(lost)?;
        let full = replace(window, empty);
        let (step, rate_factor) = (now.run.step, now.step_rate_factor);
        now.meter.push(step, rate_factor, full.fetch()?);
        Ok(())
    }

    /// Waits for all windows that were sent.
    fn collect_all(&mut self, now: &mut LoopState<K, O>) -> Result<()> {
        // First for the steps of the windows: a device that hangs does so in one of them.
        if let Some(last) = now.meter.last_pending() {
            now.in_flight.settle(last, &|| self.stop.is_set())?;
        }
        while let Some(window) = now.meter.wait(now.in_flight.limits(), &self.stop)? {
            self.log(now, window)?;
        }
        Ok(())
    }

    fn log(&mut self, now: &mut LoopState<K, O>, window: meter::Arrived) -> Result<()> {
        let skipped = window.extras.skipped;
        now.run.skipped += skipped;
        if skipped > 0 {
            halite_core::warning!(
                "{skipped} of the last steps up to step {} changed nothing: their gradients are not \
                 finite (`on_not_finite`)",
                window.step()
            );
        }
        if !window.is_relevant() {
            return Ok(());
        }
        now.loss_scale = window.mean(LOSS_SCALE).or(now.loss_scale);
        let newest = replace(&mut now.run.rate_factor, window.rate_factor);
        let mut window = window.at(now.run.epoch, now.run.seconds());
        let completed = self.callbacks.complete_row(&now.run, &mut window.row);
        now.run.rate_factor = newest;
        self.check_called(now, completed)?;
        self.notify(now, |callback, run| callback.on_train_metrics(run, &window))
    }

    /// Calls `event` of each callback.
    fn notify(
        &mut self,
        now: &mut LoopState<K, O>,
        event: impl FnMut(&mut dyn Callback, &mut Run) -> Result<()>,
    ) -> Result<()> {
        let called = self.callbacks.notify(&mut now.run, event);
        self.check_called(now, called)
    }

    /// Returns the error of a callback, if there is one. The steps so far are saved before, unless
    /// they have diverged.
    fn check_called(&mut self, now: &mut LoopState<K, O>, called: Result<()>) -> Result<()> {
        let Err(error) = called else { return Ok(()) };
        if error.kind() == ErrorKind::Diverged {
            return Err(error);
        }
        if now.has_failed {
            // The save after an error must not fail for another one of a callback.
            tracing::debug!("{error}");
            return Ok(());
        }
        Err(self.save_before(now, error))
    }
}
