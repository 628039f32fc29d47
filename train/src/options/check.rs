//! Checks of options, before a run begins.

use std::time::Duration;

use halite_core::{Error, Result};

use super::{GradientClipAlgorithm, Interval, ModelCheckpoint, TrainerOptions};
use crate::ObservingOptions;

fn invalid<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::invalid("trainer", message.into()))
}

impl TrainerOptions {
    /// Checks values that cannot work, and options that need others.
    ///
    /// # Errors
    /// The first option with such a value.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_numbers()?;
        self.check_limits()?;
        self.check_steps_per_execution()?;
        self.check_observing()?;
        self.check_clipping()?;
        if self.wait_limit == Some(Duration::ZERO) {
            return invalid(
                "`wait_limit` is 0, in which no step can end; it must be longer, or not set",
            );
        }
        if self.process_timeout == Some(Duration::ZERO) {
            return invalid(
                "`process_timeout` is 0, in which no step can end; it must be longer, or not set",
            );
        }
        self.check_resume()
    }

    /// Checks that no count is 0.
    fn check_numbers(&self) -> Result<()> {
        let some = |value: Option<u64>| value.unwrap_or(1);
        let numbers = [
            ("max_epochs", some(self.max_epochs)),
            ("max_steps", some(self.max_steps)),
            ("batch_size", self.batch_size as u64),
            (
                "eval_batch_size",
                some(self.eval_batch_size.map(|size| size as u64)),
            ),
            (
                "accumulate_grad_batches",
                self.numerics.accumulate_grad_batches as u64,
            ),
            ("steps_per_execution", self.steps_per_execution as u64),
            ("fast_dev_run", some(self.fast_dev_run)),
            ("check_val_every_n_epoch", self.check_val_every_n_epoch),
            ("log_every_n_steps", self.log_every_n_steps),
            ("print_every", some(self.observing.print_every)),
            ("read_ahead", self.read_ahead as u64),
            ("prefetch", self.prefetch as u64),
            ("keep_last", self.keep_last as u64),
        ];
        if let Some((name, _)) = numbers.into_iter().find(|(_, value)| *value == 0) {
            return invalid(format!("`{name}` is 0; it must be at least 1"));
        }
        if self.max_time == Some(Duration::ZERO) {
            return invalid("`max_time` is 0, in which no step can be made; give a longer time");
        }
        Ok(())
    }

    /// Checks the limits of batches, and when validations are due.
    fn check_limits(&self) -> Result<()> {
        let limits = [
            ("limit_train_batches", self.limit_train_batches),
            ("limit_val_batches", self.limit_val_batches),
            ("overfit_batches", self.overfit_batches),
        ];
        for (name, limit) in limits {
            let Some(limit) = limit else { continue };
            limit.check(name)?;
            if limit.is_none() && name != "limit_val_batches" {
                return invalid(format!(
                    "`{name}` is 0: there would be nothing to train on; give at least 1 batch, or \
                     leave it out for all"
                ));
            }
        }
        match (self.overfit_batches, self.limit_train_batches) {
            (Some(overfit), Some(limit)) => invalid(format!(
                "`overfit_batches` ({overfit}) and `limit_train_batches` ({limit}) both limit the \
                 training data; give one of them"
            )),
            _ => self.check_validations(),
        }
    }

    /// Checks when validations are due.
    fn check_validations(&self) -> Result<()> {
        let Some(interval) = self.val_check_interval else {
            return Ok(());
        };
        interval.check("val_check_interval")?;
        let epochs = self.check_val_every_n_epoch;
        if epochs > 1 && !matches!(interval, Interval::Epoch(_)) {
            return invalid(format!(
                "`val_check_interval` is {interval}, which does not follow epochs, and \
                 `check_val_every_n_epoch` is {epochs}; leave one of them out, or give an interval \
                 that is a fraction of an epoch"
            ));
        }
        Ok(())
    }

    fn check_observing(&self) -> Result<()> {
        let ObservingOptions {
            logger,
            early_stopping,
            early_stopping_mode,
            patience,
            min_delta,
            ..
        } = &self.observing;
        if !logger.is_empty() && self.out.is_none() {
            return invalid("`logger` needs `out`: the directory to write to");
        }
        let given = [
            ("early_stopping_mode", early_stopping_mode.is_some()),
            ("patience", patience.is_some()),
            ("min_delta", min_delta.is_some()),
        ];
        let alone = given.into_iter().find(|(_, is_given)| *is_given);
        if let (None, Some((name, _))) = (early_stopping, alone) {
            return invalid(format!(
                "`{name}` needs `early_stopping`: the metric that should improve, such as \
                 `validation loss`"
            ));
        }
        let change = min_delta.unwrap_or(0.0);
        if !(change >= 0.0 && change.is_finite()) {
            return invalid(format!("`min_delta` is {change}; it must be 0 or more"));
        }
        if *patience == Some(0) {
            return invalid("`patience` is 0; it must be at least 1");
        }
        Ok(())
    }

    fn check_clipping(&self) -> Result<()> {
        let numerics = &self.numerics;
        if let Some(limit) = numerics.gradient_clip_val
            && !(limit >= 0.0 && limit.is_finite())
        {
            return invalid(format!(
                "`gradient_clip_val` is {limit}; it must be finite, and positive or 0 for no \
                 clipping"
            ));
        }
        let is_value = numerics.gradient_clip_algorithm == GradientClipAlgorithm::Value;
        if is_value && numerics.clipping().is_none() {
            return invalid(
                "`gradient_clip_algorithm` is value, and nothing is clipped; give the limit of \
                 each element (`gradient_clip_val`, --gradient-clip-val)",
            );
        }
        Ok(())
    }

    fn check_resume(&self) -> Result<()> {
        let resumes = self.resume || self.resume_from.is_some();
        if resumes && self.fast_dev_run.is_some() {
            return invalid(
                "`fast_dev_run` begins a new run that writes nothing; leave out `resume` (--resume, \
                 --from)",
            );
        }
        if resumes && self.out.is_none() {
            return invalid("`resume` needs `out`: the directory of the run to continue");
        }
        if !self.allow_changes.is_empty() && !resumes {
            return invalid(
                "`allow_changes` needs `resume` or `resume_from` (--resume, --from): a run to \
                 continue",
            );
        }
        self.check_checkpoint()
    }

    fn check_checkpoint(&self) -> Result<()> {
        let ModelCheckpoint {
            save_top_k,
            every_n_train_steps,
            train_time_interval,
            save_weights_only,
            ..
        } = &self.checkpoint;
        if *every_n_train_steps == Some(0) {
            return invalid("`checkpoint_every` is 0; it must be at least 1, or not set");
        }
        if *train_time_interval == Some(Duration::ZERO) {
            return invalid("`train_time_interval` is 0; give a longer time, or leave it out");
        }
        if *save_weights_only && *save_top_k == 0 {
            return invalid(
                "`save_weights_only` is of the best checkpoints, and `save_top_k` is 0, so that none \
                 is kept; give at least 1",
            );
        }
        if self.checkpoint != ModelCheckpoint::DEFAULT && self.out.is_none() {
            let option = match every_n_train_steps {
                Some(_) => "checkpoint_every",
                None => "checkpoint",
            };
            return invalid(format!(
                "`{option}` needs `out`: the directory to write checkpoints to"
            ));
        }
        Ok(())
    }

    /// Checks that a launch fits between two steps at which metrics are copied, a checkpoint is
    /// saved or a validation is due.
    fn check_steps_per_execution(&self) -> Result<()> {
        let steps = self.steps_per_execution;
        let validation = match self.val_check_interval {
            Some(Interval::Steps(steps)) => Some(steps),
            _ => None,
        };
        let intervals = [
            ("log_every_n_steps", Some(self.log_every_n_steps)),
            ("print_every", self.observing.print_every),
            ("checkpoint_every", self.checkpoint.every_n_train_steps),
            ("val_check_interval", validation),
        ];
        for (name, every) in intervals {
            if let Some(every) = every.filter(|every| *every < steps as u64) {
                return invalid(format!(
                    "`steps_per_execution` is {steps} and `{name}` is {every}, so that no launch \
                     has {steps} steps; use at most {every}, or a `{name}` of at least {steps}"
                ));
            }
        }
        Ok(())
    }
}
