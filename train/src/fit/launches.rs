//! Numbers of steps of the launches of an epoch.

use crate::{Interval, TrainerOptions};

/// Iterator over the numbers of steps of the launches of the rest of an epoch: the most, or 1
/// before a step at which metrics are copied, a checkpoint is saved or a validation is due, for which
/// a callback waits, and before the end of the epoch. So these happen after the same steps as in a run with one step a
/// launch, and there are two programs.
#[derive(Clone, Debug)]
pub(super) struct Launches {
    most: usize,
    /// Steps of the run so far.
    step: u64,
    /// Steps of the epoch so far.
    batch: usize,
    /// Steps of the epoch after which it ends, or the run.
    end: usize,
    per_epoch: usize,
    metrics_every: Vec<u64>,
    checkpoint_every: Option<u64>,
    validation: Option<Interval>,
    /// Steps that are waited for, in order.
    waited_for: Vec<u64>,
}

impl Launches {
    /// The launches of an epoch of `per_epoch` steps after `batch` of them, and after `step` steps
    /// of the run.
    pub(super) fn new(options: &TrainerOptions, step: u64, batch: usize, per_epoch: usize) -> Self {
        let left = options.max_steps.unwrap_or(u64::MAX).saturating_sub(step);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        Launches {
            most: options.steps_per_execution,
            step,
            batch,
            end: batch.saturating_add(left).min(per_epoch),
            per_epoch,
            metrics_every: options.metrics_every(),
            checkpoint_every: options.checkpoint.every_n_train_steps,
            validation: options.val_check_interval,
            waited_for: Vec::new(),
        }
    }

    /// Ends launches also after the steps that `is_waited_for`: what the host does then is between
    /// launches.
    pub(super) fn ending_after(mut self, is_waited_for: impl Fn(u64) -> bool) -> Self {
        if self.most > 1 {
            let left = self.end.saturating_sub(self.batch) as u64;
            let steps = self.step + 1..=self.step + left;
            self.waited_for = steps.filter(|step| is_waited_for(*step)).collect();
        }
        self
    }

    /// Whether no launch may pass the step after this many.
    fn ends_after(&self, steps: usize) -> bool {
        let (step, batch) = (self.step + steps as u64, self.batch + steps);
        let validates = |interval: Interval| interval.is_reached(step, batch, self.per_epoch);
        (self.metrics_every.iter()).any(|every| step.is_multiple_of(*every))
            || (self.checkpoint_every).is_some_and(|every| step.is_multiple_of(every))
            || self.validation.is_some_and(validates)
            || self.waited_for.binary_search(&step).is_ok()
    }
}

impl Iterator for Launches {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let left = self.end.checked_sub(self.batch).filter(|left| *left > 0)?;
        let fits = left >= self.most && !(1..self.most).any(|steps| self.ends_after(steps));
        let size = if fits { self.most } else { 1 };
        self.step += size as u64;
        self.batch += size;
        Some(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launches(change: impl FnOnce(&mut TrainerOptions), step: u64, left: usize) -> Vec<usize> {
        let mut options = TrainerOptions {
            steps_per_execution: 4,
            log_every_n_steps: 10,
            ..TrainerOptions::default()
        };
        change(&mut options);
        Launches::new(&options, step, 0, left).collect()
    }

    #[test]
    fn launches_end_where_metrics_are_copied() {
        assert_eq!(launches(|_| (), 0, 15), [4, 4, 1, 1, 4, 1]);
        assert_eq!(launches(|_| (), 7, 8), [1, 1, 1, 4, 1]);
    }

    #[test]
    fn launches_end_where_lines_are_printed() {
        let print = |options: &mut TrainerOptions| options.observing.print_every = Some(6);
        assert_eq!(launches(print, 0, 10), [4, 1, 1, 4]);
    }

    #[test]
    fn launches_end_where_checkpoints_are_saved() {
        let every = |steps| {
            move |options: &mut TrainerOptions| options.checkpoint.every_n_train_steps = steps
        };
        assert_eq!(launches(every(Some(5)), 0, 10), [4, 1, 4, 1]);
        assert_eq!(launches(every(Some(15)), 10, 9), [4, 1, 4]);
    }

    #[test]
    fn launches_end_where_validations_are_due() {
        let half = |options: &mut TrainerOptions| {
            options.val_check_interval = Some(Interval::Epoch(0.5));
        };
        assert_eq!(launches(half, 0, 10), [4, 1, 4, 1]);
    }

    #[test]
    fn launches_end_where_callbacks_wait() {
        let options = TrainerOptions {
            steps_per_execution: 4,
            ..TrainerOptions::default()
        };
        let waiting = |steps: [u64; 2]| {
            let launches = Launches::new(&options, 0, 0, 16);
            let launches = launches.ending_after(|step| steps.contains(&step));
            launches.collect::<Vec<_>>()
        };
        assert_eq!(waiting([8, 12]), [4, 4, 4, 4]);
        assert_eq!(waiting([9, 12]), [4, 4, 1, 1, 1, 1, 4]);
    }

    #[test]
    fn launches_do_not_pass_the_last_step() {
        let last = |options: &mut TrainerOptions| options.max_steps = Some(7);
        assert_eq!(launches(last, 0, 10), [4, 1, 1, 1]);
    }
}
