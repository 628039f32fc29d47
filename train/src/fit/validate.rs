//! Validation of a run: when it is due, and its events.

use halite_core::{
    Array, Error, ErrorKind, Result,
    tree::{Empty, Family, Leaf, Tree},
};
use halite_data::Loader;
use halite_nn::{ArraySpec, Optimizer};

use super::{Fit, TrainingLoop, lost, state::Validated};
use crate::{
    Interval, Task,
    callback::Run,
    loggers::{Row, Split},
    metrics::Scores,
    programs::Evaluation,
    validation_set::NamedSet,
};

impl<K: Task, O: Optimizer> TrainingLoop<'_, K, O> {
    /// Whether the model should be validated after the steps so far. At the end of an epoch it
    /// should after the last step of the run, too.
    pub(super) fn is_validation_due(&self) -> bool {
        let Run {
            step,
            epoch,
            batch,
            batches_per_epoch,
            ..
        } = self.now.run;
        if self.fit.validation.is_empty() || self.now.validated.step == Some(step) {
            return false;
        }
        let is_end = batch >= batches_per_epoch;
        let is_last = epoch + 1 >= self.now.run.epochs || self.limit_is_reached();
        if is_end && is_last {
            return true;
        }
        let options = &self.fit.trainer.options;
        match options.val_check_interval.unwrap_or(Interval::Epoch(1.0)) {
            Interval::Time(time) => {
                self.now.seconds() - self.now.validated.seconds >= time.as_secs_f64()
            }
            Interval::Epoch(_) if !(epoch + 1).is_multiple_of(options.check_val_every_n_epoch) => {
                false
            }
            interval => interval.is_reached(step, batch, batches_per_epoch),
        }
    }

    /// Validates the model, and returns what the callbacks return; `None` if the run is asked to
    /// stop first.
    pub(super) fn validation(&mut self) -> Result<Option<Result<()>>> {
        // The metrics of the steps before come first: rows are in the order of their steps.
        self.collect_all()?;
        let seconds = self.now.seconds();
        self.notify(|callback, run| callback.on_validation_start(run))?;
        self.update_statistics()?;
        let scores = match self.validate() {
            Ok(Some(scores)) => scores,
            Ok(None) => return Ok(None),
            Err(error) => {
                let error = self.save_before(error);
                return Err(self.of_validation(error));
            }
        };
        let mut row = Row {
            step: self.now.run.step,
            epoch: self.now.run.epoch,
            seconds: self.now.run.seconds(),
            split: Split::Validation,
            metrics: (scores.values.iter())
                .map(|(name, value)| (name.to_string(), *value))
                .collect(),
        };
        self.now.validated = Validated {
            step: Some(self.now.run.step),
            seconds,
            scores: Some(scores),
        };
        // A checkpoint of this position, from before a resume, has no score.
        self.now.saved_at = None;
        let completed = self.fit.callbacks.complete_row(&self.now.run, &mut row);
        Ok(Some(completed.and_then(|()| {
            self.fit
                .callbacks
                .notify(&mut self.now.run, |callback, run| {
                    callback.on_validation_end(run, &row)
                })
        })))
    }

    /// Gives averaged weights statistics of their own: before a validation, or without validation
    /// data at the end of an epoch and of the run.
    pub(super) fn update_statistics(&mut self) -> Result<()> {
        let Some(program) = &self.fit.programs.statistics else {
            return Ok(());
        };
        let (mut state, window) = self.now.live.take().ok_or_else(lost)?;
        let epoch = self.now.run.epoch;
        if let Some(averages) = state.average.take() {
            let averages = (self.fit.trainer).with_statistics::<K, O>(
                program,
                &state,
                averages,
                &self.fit.train,
                epoch,
            )?;
            state.average = Some(averages);
        }
        self.now.live = Some((state, window));
        Ok(())
    }

    /// Scores the model on each validation set; `None` if the run is asked to stop first, or has
    /// none.
    pub(super) fn validate(&self) -> Result<Option<Scores>> {
        let _span = tracing::trace_span!("validate").entered();
        self.fit
            .with_validated(&self.now.live()?.0, |model| self.fit.scores(model))
    }

    /// Validates a few batches before the first step of a new run. Their metrics are of no interest.
    pub(super) fn check_sanity(&self) -> Result<()> {
        let most =
            usize::try_from(self.fit.trainer.options.num_sanity_val_steps).unwrap_or(usize::MAX);
        let is_new = self.now.run.resumed_from_step.is_none();
        if !is_new || most == 0 {
            return Ok(());
        }
        let of_check = |error: Error| error.with_note("validated before the first step");
        self.fit.with_validated(&self.now.live()?.0, |model| {
            for NamedSet { data, .. } in &self.fit.validation {
                let batches = most.min(data.batches_per_epoch());
                let scored = self.fit.score(model, &data.clone().limited(batches)?);
                scored.map(drop).map_err(&of_check)?;
            }
            Ok(())
        })
    }

    /// An error of a validation that found a number that is not finite, with the place in the run.
    pub(super) fn of_validation(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Diverged {
            return error;
        }
        let (step, checkpoint) = (self.now.run.step, self.fit.callbacks.newest_checkpoint());
        error.with_note(&format!("validated after step {step}; {checkpoint}"))
    }
}

impl<K: Task, O: Optimizer> Fit<'_, K, O> {
    fn scores(&self, model: &<K::Model as Family>::Of<&Array>) -> Result<Option<Scores>> {
        let mut all = Scores::default();
        for set in &self.validation {
            let of_set = |error: Error| match &set.name {
                Some(_) => error.with_note(&format!("in the {}", set.described())),
                None => error,
            };
            let Some(scores) = self.score(model, &set.data).map_err(of_set)? else {
                return Ok(None);
            };
            all.extend(scores, |name| set.metric(name));
        }
        if let Some(evaluation) = &self.programs.evaluation {
            evaluation.metrics.collected().warn_undefined(&all);
        }
        Ok((!self.validation.is_empty()).then_some(all))
    }

    fn score(
        &self,
        model: &<K::Model as Family>::Of<&Array>,
        loader: &Loader,
    ) -> Result<Option<Scores>> {
        let Some(Evaluation { program, metrics }) = &self.programs.evaluation else {
            return Ok(None);
        };
        let window = Leaf(metrics.spec(&self.trainer.mesh));
        let inputs = (
            Tree::leaf_refs(model).map_leaves(|_, array| ArraySpec::of(array)),
            (self.trainer.batch_specs::<K>(loader)?, window),
        );
        program.prepare_in_background(&Empty::new(), &inputs)?;
        if !self.wait_until_compiled(program, "evaluate")? {
            program.abandon_background();
            return Ok(None);
        }
        let stop = || self.stops_alone();
        self.trainer
            .score::<K>(program, metrics, model, loader, &stop)
    }
}
