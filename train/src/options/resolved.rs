//! What options mean together: the length of a run, and the limits that `fast_dev_run` and
//! `overfit_batches` set.

use halite_data::LastBatch;

use super::{TrainerOptions, amount::Limit, model_checkpoint::ModelCheckpoint};

impl TrainerOptions {
    /// Optimizer steps of an epoch of this many training samples.
    ///
    /// Batches that do not fill a step of `accumulate_grad_batches` make one more. A task whose batch
    /// has no leaf for the weights leaves them out: it makes one step less.
    pub fn steps_per_epoch(&self, samples: usize) -> u64 {
        let options = self.clone().resolved();
        let all = match options.last_batch {
            LastBatch::Drop => samples / options.batch_size.max(1),
            LastBatch::Pad => samples.div_ceil(options.batch_size.max(1)),
        };
        let limit = options.limit_train_batches;
        let batches = limit.map_or(all, |limit| limit.of("", all).unwrap_or(0));
        options.numerics.steps_of(batches) as u64
    }

    /// Optimizer steps of a run on this many training samples, as the length of a schedule:
    /// `max_epochs` or `max_steps`, whichever ends first. It is `u64::MAX` if only `max_time` limits
    /// the run. Epochs have the steps of [`steps_per_epoch`](Self::steps_per_epoch): those of a task
    /// whose batch has no leaf for the weights can be one shorter.
    pub fn total_steps(&self, samples: usize) -> u64 {
        let options = self.clone().resolved();
        let epochs = options
            .epochs()
            .saturating_mul(options.steps_per_epoch(samples));
        epochs.min(options.max_steps.unwrap_or(u64::MAX))
    }

    /// Passes over the training data; `u64::MAX` if only steps or time limit them.
    pub(crate) fn epochs(&self) -> u64 {
        let is_limited = self.max_steps.is_some() || self.max_time.is_some();
        self.max_epochs
            .unwrap_or(if is_limited { u64::MAX } else { 1 })
    }

    /// Metrics are copied to the host after the steps that one of these divides: they are logged
    /// then, or printed.
    pub(crate) fn metrics_every(&self) -> Vec<u64> {
        let printed = self.observing.print_every.filter(|_| !self.quiet);
        [self.log_every_n_steps]
            .into_iter()
            .chain(printed)
            .collect()
    }

    /// The options with what `fast_dev_run` and `overfit_batches` mean for others.
    pub(crate) fn resolved(self) -> Self {
        let overfit = self.overfit_batches;
        let options = TrainerOptions {
            limit_train_batches: overfit.or(self.limit_train_batches),
            // 0 turns validation off.
            limit_val_batches: (self.limit_val_batches)
                .filter(|limit| limit.is_none())
                .or(overfit)
                .or(self.limit_val_batches),
            ..self
        };
        let Some(steps) = options.fast_dev_run else {
            return options;
        };
        let batches = steps.saturating_mul(options.numerics.accumulate_grad_batches as u64);
        TrainerOptions {
            max_epochs: Some(1),
            max_steps: Some(steps),
            limit_train_batches: Some(Limit::Batches(batches)),
            limit_val_batches: options
                .limit_val_batches
                .filter(|limit| limit.is_none())
                .or(Some(Limit::Batches(steps))),
            val_check_interval: None,
            check_val_every_n_epoch: 1,
            num_sanity_val_steps: 0,
            out: None,
            // Nothing is saved, but names of metrics are checked.
            checkpoint: ModelCheckpoint {
                monitor: options.checkpoint.monitor,
                filename: options.checkpoint.filename,
                ..ModelCheckpoint::DEFAULT
            },
            ..options
        }
    }

    /// Samples of a batch in validation, test and prediction.
    pub(crate) fn eval_batch_size(&self) -> usize {
        self.eval_batch_size.unwrap_or(self.batch_size)
    }

    /// Samples of an optimizer step.
    pub fn samples_per_step(&self) -> usize {
        let batches = self.numerics.accumulate_grad_batches;
        self.batch_size.saturating_mul(batches)
    }
}
