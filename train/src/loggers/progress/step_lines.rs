//! Lines with the loss of a run, one every N steps.

/// Losses of the steps of a run, for a line each `every` steps.
#[derive(Debug)]
pub(super) struct StepLines {
    every: u64,
    /// The last step of the run whose loss has arrived, from 1.
    last: u64,
    /// The epoch of these sums, from 0.
    epoch: u64,
    /// Sum of the losses of steps of the epoch, and their number.
    total: f64,
    steps: u64,
    /// The lowest loss of the run.
    lowest: f64,
}

/// What a line says of the losses.
#[derive(Debug, PartialEq)]
pub(super) struct Losses {
    /// Mean over the newest steps.
    pub(super) current: f64,
    /// Mean over the steps of the epoch.
    pub(super) average: f64,
    /// Lowest of the current ones since the start.
    pub(super) lowest: f64,
    /// The last step, from 1 in its epoch.
    pub(super) step: u64,
}

impl StepLines {
    pub(super) fn each(every: u64) -> Self {
        StepLines {
            every,
            last: 0,
            epoch: 0,
            total: 0.0,
            steps: 0,
            lowest: f64::INFINITY,
        }
    }

    /// The steps of a run that resumes begin after `step`.
    pub(super) fn begin_after(&mut self, step: u64) {
        self.last = self.last.max(step);
    }

    /// Adds the mean loss of the steps up to `step`; returns the losses if a line is due.
    pub(super) fn add(&mut self, step: u64, steps_per_epoch: u64, loss: f64) -> Option<Losses> {
        let new = step.saturating_sub(self.last);
        if new == 0 {
            return None;
        }
        let epoch = (step - 1) / steps_per_epoch.max(1);
        if epoch != self.epoch {
            (self.epoch, self.total, self.steps) = (epoch, 0.0, 0);
        }
        let is_due = step / self.every > self.last / self.every;
        self.last = step;
        self.total += loss * new as f64;
        self.steps += new;
        self.lowest = self.lowest.min(loss);
        is_due.then(|| Losses {
            current: loss,
            average: self.total / self.steps as f64,
            lowest: self.lowest,
            step: step - epoch * steps_per_epoch,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_due_at_multiples() {
        let mut lines = StepLines::each(100);
        let losses = [(50, 4.0), (100, 2.0), (150, 3.0), (200, 1.0)];
        let due: Vec<_> = (losses.into_iter())
            .filter_map(|(step, loss)| lines.add(step, 150, loss))
            .collect();
        let first = Losses {
            current: 2.0,
            average: 3.0,
            lowest: 2.0,
            step: 100,
        };
        let second = Losses {
            current: 1.0,
            average: 1.0,
            lowest: 1.0,
            step: 50,
        };
        assert_eq!(due, [first, second]);
    }

    #[test]
    fn resumed_steps_are_not_counted_again() {
        let mut lines = StepLines::each(10);
        lines.begin_after(35);
        assert_eq!(lines.add(40, 100, 2.0).unwrap().average, 2.0);
        assert_eq!(lines.add(50, 100, 5.0).unwrap().average, 4.0);
    }
}
