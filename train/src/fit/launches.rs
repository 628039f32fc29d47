//! Numbers of steps of the launches of an epoch.

use crate::TrainerOptions;

/// Iterator over the numbers of steps of the launches of the rest of an epoch: the most, or 1
/// before a step at which metrics are copied or a checkpoint is saved, and before the end of the
/// epoch. So these happen after the same steps as in a run with one step a launch, and there are
/// two programs.
#[derive(Clone, Debug)]
pub(super) struct Launches {
    most: usize,
    /// Steps of the run so far.
    step: u64,
    /// Steps left in the epoch.
    left: usize,
    /// Numbers of steps of which no launch passes a multiple.
    intervals: [u64; 2],
}

impl Launches {
    /// The launches of the `left` last steps of an epoch, after `step` steps of the run.
    pub(super) fn new(options: &TrainerOptions, step: u64, left: usize) -> Self {
        let log_every = options.log_every;
        Launches {
            most: options.steps_per_execution,
            step,
            left,
            intervals: [log_every, options.checkpoint_every.unwrap_or(log_every)],
        }
    }
}

impl Iterator for Launches {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.left == 0 {
            return None;
        }
        let most = self.most as u64;
        let fits = |every: u64| self.step % every + most <= every;
        let size = match self.left >= self.most && self.intervals.into_iter().all(fits) {
            true => self.most,
            false => 1,
        };
        self.step += size as u64;
        self.left -= size;
        Some(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(checkpoint_every: Option<u64>, step: u64, left: usize, expected: &[usize]) {
        let options = TrainerOptions {
            steps_per_execution: 4,
            log_every: 10,
            checkpoint_every,
            ..TrainerOptions::default()
        };
        let launches: Vec<usize> = Launches::new(&options, step, left).collect();
        assert_eq!(launches, expected);
    }

    #[test]
    fn launches_end_where_metrics_are_copied() {
        check(None, 0, 15, &[4, 4, 1, 1, 4, 1]);
        check(None, 7, 8, &[1, 1, 1, 4, 1]);
    }

    #[test]
    fn launches_end_where_checkpoints_are_saved() {
        check(Some(5), 0, 10, &[4, 1, 4, 1]);
        check(Some(15), 10, 9, &[4, 1, 4]);
    }
}
