//! The training loop.
//!
//! The loop queues steps and reads nothing back. Metrics accumulate on the device in a *window*;
//! every `log_every_n_steps` steps the window is copied to the host in the background, and a new one
//! begins. Everything else - progress, tables, checkpoints, the NaN check - is a
//! [callback](crate::callback::Callback).

mod begin;
mod frozen;
mod launches;
mod messages;
mod meter;
mod rates;
mod restore;
mod save;
mod start;
mod state;
mod steps;
mod stop;
mod summary;
mod validate;
mod whole;
mod windows;

use std::{fmt, sync::Arc, time::Instant};

use halite_core::{ErrorKind, Result, tree::Leaf};
use halite_data::Loader;
use halite_nn::{ArrayCollectives, Exchanged, Lowered, Optimizer};
use halite_telemetry::Activity;

pub(crate) use self::start::{FitInputs, Start};
use self::{
    meter::Meter,
    state::{LoopState, lost},
};
use crate::{
    Report, Task, Trainer,
    callback::{Callback, Run, RunFacts},
    callbacks::Callbacks,
    identity::PendingIdentity,
    processes::{Agreement, ResumeFrom},
    programs::{ModelArrays, Programs},
    signals::{Interrupts, StopFlag, StopReason},
    validation_set::NamedSet,
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

impl<K: Task> Fitted<K> {
    /// The model that the metrics of the validation are of: that of the averages, if there are some.
    pub fn validated(&self) -> &ModelArrays<K> {
        self.average.as_ref().unwrap_or(&self.model)
    }

    /// Takes the model that the metrics of the validation are of.
    pub fn into_validated(self) -> ModelArrays<K> {
        self.average.unwrap_or(self.model)
    }
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
    /// The training step, until it is compiled.
    lowered: Option<Lowered<Leaf<()>>>,
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

/// A run whose steps have begun.
struct TrainingLoop<'a, K: Task, O: Optimizer> {
    // Dropped first: its arrays are of the client of the other.
    now: LoopState<K, O>,
    fit: Fit<'a, K, O>,
}

/// The end of the steps of an epoch.
#[derive(PartialEq)]
enum Ended {
    Complete,
    /// The steps or the time of the run are over first.
    Limit,
    /// The run was asked to stop first.
    Stopped,
}

impl<K: Task, O: Optimizer> Fit<'_, K, O> {
    /// Runs to the end, or to the first error.
    ///
    /// Every checkpoint is on the disk before it returns, unless the run was stopped or failed and
    /// the copies of the state did not arrive in time.
    pub(crate) fn fit(mut self) -> Result<Fitted<K>> {
        let now = self.begin().inspect_err(|error| {
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
        let mut running = TrainingLoop { now, fit: self };
        running.meet()?;
        running.run()
    }
}

impl<K: Task, O: Optimizer> TrainingLoop<'_, K, O> {
    /// Waits for the other processes: none starts a step before all have compiled it.
    fn meet(&mut self) -> Result<()> {
        self.agree()?;
        if self.now.run.resumed_from_step.is_some() {
            // Several processes use the time that they agreed on: each has its own clock.
            self.now.validated.seconds = self.now.seconds();
        }
        Ok(())
    }

    fn run(mut self) -> Result<Fitted<K>> {
        let result = self.epochs();
        let is_late = result
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::DeadlineExceeded);
        if is_late {
            self.give_up_device();
        }
        let saved = self.fit.callbacks.finish_saving();
        // The first error is the cause of the second.
        let report = match result.and_then(|report| saved.map(|()| report)) {
            Ok(report) => report,
            Err(mut error) => {
                let of_job = self.now.agreement.as_ref().and_then(Agreement::checkpoint);
                match of_job {
                    Some(path) if !error.to_string().contains(path) => {
                        error = error.with_note(&format!("the last checkpoint is {path}"));
                    }
                    None if is_late => {
                        error = error.with_note(&self.fit.callbacks.newest_checkpoint());
                    }
                    _ => {}
                }
                self.fit.callbacks.fail(&self.now.run, &error);
                return Err(error);
            }
        };
        let stopped_by = self.fit.interrupts.reason().or(Some(StopReason::Callback));
        let (state, _) = self.now.live.take().ok_or_else(lost)?;
        let average = state.average.as_ref();
        let average = average.map(|_| {
            self.fit
                .with_validated(&state, |model| rates::copied::<K::Model>(model))
        });
        Ok(Fitted {
            average: average.transpose()?,
            model: state.model,
            stopped_by: stopped_by.filter(|_| report.interrupted),
            report,
        })
    }

    fn epochs(&mut self) -> Result<Report> {
        self.fit
            .callbacks
            .notify(&mut self.now.run, |callback, run| {
                callback.on_fit_start(run)
            })?;
        self.check_sanity()?;
        let mut is_stopped = false;
        while !self.is_over() && !self.is_end_requested()? {
            if self.epoch()? == Ended::Stopped {
                self.save_stopped()?;
                if self.now.run.batch > 0 {
                    self.measure_unfinished()?;
                }
                is_stopped = true;
                break;
            }
        }
        let at_end = self.now.validated.step == Some(self.now.run.step);
        let is_known = at_end && self.now.validated.scores.is_some();
        let is_trained = self.now.run.step > 0;
        if !is_known && !is_stopped && is_trained && !self.fit.validation.is_empty() {
            // The run had ended before the resume: validated for the report.
            let progress = &self.fit.callbacks.progress_bar.progress;
            progress.waiting_for("validating");
            let validated = self.validate();
            self.fit.callbacks.progress_bar.progress.done_waiting();
            let scores = validated.map_err(|error| self.of_validation(error))?;
            is_stopped = scores.is_none();
            self.now.validated.step = Some(self.now.run.step);
            self.now.validated.scores = scores;
        }
        self.fit.callbacks.finish_saving()?;
        let interrupted = is_stopped || !self.is_over();
        let processes = self.of_processes()?;
        let mut report = self.report(processes, interrupted);
        self.fit.callbacks.finish(&mut self.now.run, &mut report)?;
        Ok(report)
    }

    /// Does the rest of an epoch, and validates where that is due.
    fn epoch(&mut self) -> Result<Ended> {
        match self.steps()? {
            Ended::Stopped => return Ok(Ended::Stopped),
            Ended::Limit => return self.end_within_epoch(),
            Ended::Complete => self.now.run.train_metrics = self.now.meter.means(),
        }
        self.notify(|callback, run| callback.on_train_epoch_end(run))?;
        let mut called = Ok(());
        if self.is_validation_due() {
            match self.validation()? {
                Some(result) => called = result,
                // The steps of the epoch are saved, and a resume validates.
                None => return Ok(Ended::Stopped),
            }
        } else if self.fit.validation.is_empty() {
            self.update_statistics()?;
        }
        self.start_epoch()?;
        if let Err(error) = called {
            return Err(self.save_before(error));
        }
        let is_last = self.is_over() || self.now.run.stop_requested;
        if is_last || self.fit.callbacks.saves_epoch(&self.now.run) {
            self.now.run.save();
        }
        self.save_if_requested()?;
        self.notify(|callback, run| callback.on_epoch_end(run))?;
        Ok(Ended::Complete)
    }

    /// Validates and saves a run whose last step is within an epoch.
    fn end_within_epoch(&mut self) -> Result<Ended> {
        // The time may be over before the first step: the metrics are those of the epoch before.
        if self.now.run.batch > 0 {
            self.measure_unfinished()?;
            if self.fit.validation.is_empty() {
                self.update_statistics()?;
            }
        }
        let validated =
            self.fit.validation.is_empty() || self.now.validated.step == Some(self.now.run.step);
        if !validated {
            match self.validation()? {
                Some(called) => self.check_called(called)?,
                None => return Ok(Ended::Stopped),
            }
        }
        self.now.run.save();
        self.save_if_requested()?;
        Ok(Ended::Limit)
    }

    /// Moves to the next epoch, with empty metrics.
    fn start_epoch(&mut self) -> Result<()> {
        let metrics = &self.fit.programs.train_metrics;
        let window = metrics.upload(&self.fit.trainer.client, &self.fit.trainer.mesh)?;
        self.now.live.as_mut().ok_or_else(lost)?.1 = window;
        self.now.meter = Meter::new(metrics);
        self.now.run.epoch += 1;
        self.now.run.batch = 0;
        Ok(())
    }

    /// Calls `event` of each callback.
    fn notify(
        &mut self,
        event: impl FnMut(&mut dyn Callback, &mut Run) -> Result<()>,
    ) -> Result<()> {
        let called = self.fit.callbacks.notify(&mut self.now.run, event);
        self.check_called(called)
    }

    /// Returns the error of a callback, if there is one. The steps so far are saved before, unless
    /// they have diverged.
    fn check_called(&mut self, called: Result<()>) -> Result<()> {
        let Err(error) = called else { return Ok(()) };
        if error.kind() == ErrorKind::Diverged {
            return Err(error);
        }
        if self.now.has_failed {
            // The save after an error must not fail for another one of a callback.
            tracing::debug!("{error}");
            return Ok(());
        }
        Err(self.save_before(error))
    }
}
