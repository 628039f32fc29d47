//! Validation of a run: when it is due, and its events.

use halite_core::{
    Array, Error, ErrorKind, Result,
    tree::{Empty, Family, Leaf, Tree},
};
use halite_data::Loader;
use halite_nn::{ArraySpec, Optimizer};

use super::{Fit, LoopState, lost, state::Validated};
use crate::{
    Interval, Task,
    callback::Run,
    loggers::{Row, Split},
    metrics::Scores,
    programs::{Evaluation, ModelParams},
    validation_set::NamedSet,
};

impl<K: Task, O: Optimizer> Fit<'_, K, O>
where
    ModelParams<K>: Send + Sync,
{
    /// Whether the model should be validated after the steps so far. At the end of an epoch it
    /// should after the last step of the run, too.
    pub(super) fn is_validation_due(&self, now: &LoopState<K, O>) -> bool {
        let Run {
            step,
            epoch,
            batch,
            batches_per_epoch,
            ..
        } = now.run;
        if self.validation.is_empty() || now.validated.step == Some(step) {
            return false;
        }
        let is_end = batch >= batches_per_epoch;
        let is_last = epoch + 1 >= now.run.epochs || self.limit_is_reached(now);
        if is_end && is_last {
            return true;
        }
        let options = &self.trainer.options;
        match options.val_check_interval.unwrap_or(Interval::Epoch(1.0)) {
            Interval::Time(time) => now.seconds() - now.validated.seconds >= time.as_secs_f64(),
            Interval::Epoch(_) if !(epoch + 1).is_multiple_of(options.check_val_every_n_epoch) => {
                false
            }
            interval => interval.is_reached(step, batch, batches_per_epoch),
        }
    }

    /// Validates the model, and returns what the callbacks return; `None` if the run is asked to
    /// stop first.
    pub(super) fn validation(&mut self, now: &mut LoopState<K, O>) -> Result<Option<Result<()>>> {
        // The metrics of the steps before come first: rows are in the order of their steps.
        self.collect_all(now)?;
        let seconds = now.seconds();
        self.notify(now, |callback, run| callback.on_validation_start(run))?;
        self.update_statistics(now)?;
        let scores = match self.validate(now) {
            Ok(Some(scores)) => scores,
            Ok(None) => return Ok(None),
            Err(error) => {
                let error = self.save_before(now, error);
                return Err(self.of_validation(now, error));
            }
        };
        let mut row = Row {
            step: now.run.step,
            epoch: now.run.epoch,
            seconds: now.run.seconds(),
            split: Split::Validation,
            metrics: (scores.values.iter())
                .map(|(name, value)| (name.to_string(), *value))
                .collect(),
        };
        now.validated = Validated {
            step: Some(now.run.step),
            seconds,
            scores: Some(scores),
        };
        // A checkpoint of this position, from before a resume, has no score.
        now.saved_at = None;
        let completed = self.callbacks.complete_row(&now.run, &mut row);
        Ok(Some(completed.and_then(|()| {
            self.callbacks.notify(&mut now.run, |callback, run| {
                callback.on_validation_end(run, &row)
            })
        })))
    }

    /// Gives averaged weights statistics of their own: before a validation, or without validation
    /// data at the end of an epoch and of the run.
    pub(super) fn update_statistics(&self, now: &mut LoopState<K, O>) -> Result<()> {
        let Some(program) = &self.programs.statistics else {
            return Ok(());
        };
        let (mut state, window) = now.live.take().ok_or_else(lost)?;
        let epoch = now.run.epoch;
        if let Some(averages) = state.average.take() {
            let averages = (self.trainer).with_statistics::<K, O>(
                program,
                &state,
                averages,
                &self.train,
                epoch,
            )?;
            state.average = Some(averages);
        }
        now.live = Some((state, window));
        Ok(())
    }

    /// Scores the model on each validation set; `None` if the run is asked to stop first, or has
    /// none.
    pub(super) fn validate(&self, now: &LoopState<K, O>) -> Result<Option<Scores>> {
        let _span = tracing::trace_span!("validate").entered();
        self.with_validated(&now.live()?.0, |model| self.scores(model))
    }

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

    /// Validates a few batches before the first step of a new run. Their metrics are of no interest.
    pub(super) fn check_sanity(&self, now: &LoopState<K, O>) -> Result<()> {
        let most = usize::try_from(self.trainer.options.num_sanity_val_steps).unwrap_or(usize::MAX);
        let is_new = now.run.resumed_from_step.is_none();
        if !is_new || most == 0 {
            return Ok(());
        }
        let of_check = |error: Error| error.with_note("validated before the first step");
        self.with_validated(&now.live()?.0, |model| {
            for NamedSet { data, .. } in &self.validation {
                let batches = most.min(data.batches_per_epoch());
                let scored = self.score(model, &data.clone().limited(batches)?);
                scored.map(drop).map_err(&of_check)?;
            }
            Ok(())
        })
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

    /// An error of a validation that found a number that is not finite, with the place in the run.
    pub(super) fn of_validation(&self, now: &LoopState<K, O>, error: Error) -> Error {
        if error.kind() != ErrorKind::Diverged {
            return error;
        }
        let (step, checkpoint) = (now.run.step, self.callbacks.newest_checkpoint());
        error.with_note(&format!("validated after step {step}; {checkpoint}"))
    }
}
