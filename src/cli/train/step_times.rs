//! Samples a second of single steps, for `--benchmark`.

use std::sync::{Arc, Mutex, PoisonError};

use halite::{
    Result,
    train::{Callback, callback::Run, loggers::Row},
};

/// Measures the rate of training over groups of steps. The host waits for the devices at the end of
/// each group; the steps of a group are queued as in any other run.
#[derive(Clone, Debug, Default)]
pub(super) struct StepTimes {
    measured: Arc<Mutex<Measured>>,
}

#[derive(Debug, Default)]
struct Measured {
    /// Samples and time of training in seconds at the end of the last group.
    last: Option<(u64, f64)>,
    /// Seconds in validations.
    validating: f64,
    /// When the validation began.
    began: f64,
    /// Samples a second of each group.
    rates: Vec<f64>,
}

/// Steps of a group.
const GROUP: u64 = 5;

/// Steps that are not measured: they compile, and fill caches.
const WARM_UP: u64 = GROUP;

impl Callback for StepTimes {
    fn waits_for(&self, step: u64) -> bool {
        step.is_multiple_of(GROUP)
    }

    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        let step = run.step();
        if !self.waits_for(step) || step < WARM_UP {
            return Ok(());
        }
        let mut measured = self.lock();
        let now = run.seconds() - measured.validating;
        let samples = run.samples_of(step);
        if let Some((before, time)) = measured.last.filter(|(_, time)| *time < now) {
            measured
                .rates
                .push((samples - before) as f64 / (now - time));
        }
        measured.last = Some((samples, now));
        Ok(())
    }

    fn on_validation_start(&mut self, run: &mut Run) -> Result<()> {
        self.lock().began = run.seconds();
        Ok(())
    }

    fn on_validation_end(&mut self, run: &mut Run, _: &Row) -> Result<()> {
        let mut measured = self.lock();
        measured.validating += run.seconds() - measured.began;
        Ok(())
    }
}

impl StepTimes {
    fn lock(&self) -> std::sync::MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Statistics of the rates.
    pub(super) fn summary(&self) -> String {
        summary(&self.lock().rates)
    }
}

fn summary(rates: &[f64]) -> String {
    if rates.is_empty() {
        return format!(
            "benchmark: too few steps; it measures from step {WARM_UP} on, in groups of {GROUP}"
        );
    }
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let mean = sorted.iter().sum::<f64>() / count as f64;
    let variance = sorted.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / count as f64;
    let median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0;
    // The smallest rate that nine tenths of the groups do not exceed.
    let ninetieth = sorted[(count * 9).div_ceil(10) - 1];
    format!(
        "benchmark: samples a second over {count} groups of {GROUP} steps: mean {mean:.1}, median \
         {median:.1}, 90th percentile {ninetieth:.1}, standard deviation {:.1}",
        variance.sqrt()
    )
}

#[cfg(test)]
mod tests {
    use super::summary;

    #[test]
    fn statistics_are_those_of_the_groups() {
        let rates: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        assert_eq!(
            summary(&rates),
            "benchmark: samples a second over 10 groups of 5 steps: mean 5.5, median 5.5, 90th \
             percentile 9.0, standard deviation 2.9"
        );
        assert!(
            summary(&[7.0]).contains("median 7.0, 90th percentile 7.0, standard deviation 0.0")
        );
        assert!(summary(&[]).contains("too few steps"));
    }
}
