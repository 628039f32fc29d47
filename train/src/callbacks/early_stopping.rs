//! Ends a run whose metric no longer improves.

use halite_core::{Error, ErrorKind, Result};
use halite_nn::schedule::Mode;
use serde::{Deserialize, Serialize};

use crate::{
    callback::{Callback, Run},
    checkpoint::Exact,
    format::format_metric,
    loggers::{Row, Split},
    monitor::Monitor,
};

const OP: &str = "early stopping";

/// What sets the direction of the metric.
const MODE: &str = "`EarlyStopping::mode` (--early-stopping-mode min or max)";

/// Ends a run when a metric has stopped improving, like Lightning's callback of this name.
///
/// The metric is one of [`Run::metric_names`]: `validation loss`, looked at after each validation,
/// or `train loss`, the mean over an epoch; `loss` alone is the validation's. Its counts are in the
/// checkpoints, so that a resumed run stops where the whole one does, and a stopped one stays so.
///
/// ```
/// use halite_train::EarlyStopping;
///
/// let stopping = EarlyStopping::new("validation loss").patience(3).min_delta(1e-4);
/// # let client = halite_backends::Accelerator::cpu().open()?;
/// let trainer = halite_train::Trainer::builder(&client).callback(stopping).build()?;
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct EarlyStopping {
    name: String,
    /// That of the name, if none is given.
    mode: Option<Mode>,
    patience: u64,
    min_delta: f64,
    stopping_threshold: Option<f64>,
    divergence_threshold: Option<f64>,
    check_finite: bool,
    monitor: Option<Monitor>,
    seen: Seen,
}

/// What is in the checkpoints.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Seen {
    best: Option<Exact>,
    last: Option<Exact>,
    /// Values in a row without improvement.
    wait: u64,
    /// Steps before the last value: a run that stops between a value and its validation or
    /// checkpoint comes there again.
    step: Option<u64>,
}

impl EarlyStopping {
    /// Watches this metric, with a patience of 3. Its direction is that of its name, if
    /// [`Mode::of`] knows it; otherwise [`mode`](Self::mode) gives it.
    pub fn new(monitor: impl Into<String>) -> Self {
        let name = monitor.into();
        EarlyStopping {
            mode: Mode::of(&name),
            name,
            patience: 3,
            min_delta: 0.0,
            stopping_threshold: None,
            divergence_threshold: None,
            check_finite: true,
            monitor: None,
            seen: Seen::default(),
        }
    }

    /// Sets the direction in which the metric improves.
    pub fn mode(self, mode: Mode) -> Self {
        EarlyStopping {
            mode: Some(mode),
            ..self
        }
    }

    /// The direction, which [`check`](Callback::check) has found.
    fn is_better(&self, value: f64, other: f64) -> bool {
        self.mode.is_some_and(|mode| mode.is_better(value, other))
    }

    /// Sets the number of values in a row without improvement after which the run ends, at
    /// least 1.
    pub fn patience(self, patience: u64) -> Self {
        EarlyStopping { patience, ..self }
    }

    /// Sets the least change that counts as an improvement. Default 0: any.
    pub fn min_delta(self, min_delta: f64) -> Self {
        EarlyStopping { min_delta, ..self }
    }

    /// Ends the run when the metric is better than this.
    pub fn stopping_threshold(self, threshold: f64) -> Self {
        EarlyStopping {
            stopping_threshold: Some(threshold),
            ..self
        }
    }

    /// Ends the run when the metric is worse than this.
    pub fn divergence_threshold(self, threshold: f64) -> Self {
        EarlyStopping {
            divergence_threshold: Some(threshold),
            ..self
        }
    }

    /// Sets whether the run ends when the metric is NaN or infinite. Default true. Values of a
    /// [collected](crate::Collect) metric that are undefined are left out.
    pub fn check_finite(self, check_finite: bool) -> Self {
        EarlyStopping {
            check_finite,
            ..self
        }
    }

    fn check_numbers(&self) -> Result<()> {
        if self.patience == 0 {
            return Err(Error::invalid(OP, "`patience` is 0; it must be at least 1"));
        }
        if !(self.min_delta >= 0.0 && self.min_delta.is_finite()) {
            let message = format!("`min_delta` is {}; it must be 0 or more", self.min_delta);
            return Err(Error::invalid(OP, message));
        }
        let thresholds = [
            ("stopping_threshold", self.stopping_threshold),
            ("divergence_threshold", self.divergence_threshold),
        ];
        for (name, threshold) in thresholds {
            if threshold.is_some_and(f64::is_nan) {
                return Err(Error::invalid(OP, format!("`{name}` is NaN")));
            }
        }
        Ok(())
    }

    /// Takes a value of the metric, and stops the run if it is time.
    fn look(&mut self, run: &mut Run, value: f64) {
        if self.seen.step.replace(run.step()) == Some(run.step()) {
            return;
        }
        let best = self.seen.best.map(|best| best.0);
        let at_least = match self.mode {
            Some(Mode::Max) => value - self.min_delta,
            _ => value + self.min_delta,
        };
        let first = best.is_none() && !value.is_nan();
        if first || best.is_some_and(|best| self.is_better(at_least, best)) {
            self.seen.best = Some(Exact(value));
            self.seen.wait = 0;
        } else {
            self.seen.wait += 1;
        }
        self.seen.last = Some(Exact(value));
        self.stop_if_due(run);
    }

    fn stop_if_due(&self, run: &mut Run) {
        if let Some(reason) = self.reason() {
            run.stop_because(format!("EarlyStopping: {reason}"));
        }
    }

    /// Why the run should end after the last value, if it should.
    fn reason(&self) -> Option<String> {
        let (name, last) = (&self.name, self.seen.last?.0);
        let shown = |value| format_metric(name, value);
        let is_beyond = |threshold: &f64| self.is_better(last, *threshold);
        let is_worse = |threshold: &f64| self.is_better(*threshold, last);
        let value = format!("{name} is {}", shown(last));
        if self.check_finite && !last.is_finite() {
            return Some(value);
        }
        if let Some(threshold) = self.stopping_threshold.filter(is_beyond) {
            return Some(format!("{value}, better than {}", shown(threshold)));
        }
        if let Some(threshold) = self.divergence_threshold.filter(is_worse) {
            return Some(format!("{value}, worse than {}", shown(threshold)));
        }
        if self.seen.wait < self.patience {
            return None;
        }
        let best = self.seen.best.map_or(f64::NAN, |best| best.0);
        let values = match self.seen.wait {
            1 => "1 validation".to_string(),
            wait => format!("{wait} validations"),
        };
        let values = match &self.monitor {
            Some(monitor) if monitor.split == Split::Train => values.replace("validation", "epoch"),
            _ => values,
        };
        Some(format!(
            "{name} did not improve on {} in {values}",
            shown(best)
        ))
    }
}

impl Callback for EarlyStopping {
    fn name(&self) -> String {
        format!("EarlyStopping({})", self.name)
    }

    fn check(&mut self, metrics: &[String]) -> Result<()> {
        self.check_numbers()?;
        self.monitor = Some(Monitor::resolve(OP, &self.name, metrics)?);
        Mode::given_or_of(self.mode, &self.name, MODE)?;
        Ok(())
    }

    fn on_fit_start(&mut self, run: &mut Run) -> Result<()> {
        if run.resumed_from_step().is_none() {
            // The run before, of a clone of the trainer, is over.
            self.seen = Seen::default();
        }
        self.stop_if_due(run);
        Ok(())
    }

    fn on_train_epoch_end(&mut self, run: &mut Run) -> Result<()> {
        let Some(Monitor {
            split: Split::Train,
            metric,
        }) = &self.monitor
        else {
            return Ok(());
        };
        let found = run
            .train_metrics()
            .iter()
            .find(|(name, _)| **name == **metric);
        if let Some(value) = found.map(|(_, value)| *value) {
            self.look(run, value);
        }
        Ok(())
    }

    fn on_validation_end(&mut self, run: &mut Run, validation: &Row) -> Result<()> {
        let Some(Monitor {
            split: Split::Validation,
            metric,
        }) = &self.monitor
        else {
            return Ok(());
        };
        let value = validation.get(metric);
        if let Some(value) = value.filter(|value| !run.is_undefined(metric, *value)) {
            self.look(run, value);
        }
        Ok(())
    }

    fn state(&self) -> Option<serde_json::Value> {
        serde_json::to_value(&self.seen).ok()
    }

    fn load_state(&mut self, state: serde_json::Value) -> Result<()> {
        self.seen = serde_json::from_value(state)
            .map_err(|error| Error::new(ErrorKind::Corrupt, OP, error.to_string()))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of values after which the run stops, and why.
    fn stopped(mut stopping: EarlyStopping, values: &[f64]) -> Option<(usize, String)> {
        let mut run = Run::for_tests();
        for (count, value) in values.iter().enumerate() {
            run.step += 1;
            stopping.look(&mut run, *value);
            if run.stop_requested {
                return Some((count + 1, run.stopped_by.unwrap()));
            }
        }
        None
    }

    fn loss() -> EarlyStopping {
        EarlyStopping::new("validation loss").patience(2)
    }

    fn check(stopping: EarlyStopping, values: &[f64], expected: (usize, &str)) {
        let (count, reason) = stopped(stopping, values).expect("it stops");
        let expected = (expected.0, format!("EarlyStopping: {}", expected.1));
        assert_eq!((count, reason), expected);
    }

    #[test]
    fn values_that_do_not_improve_are_counted_in_a_row() {
        let values = [3.0, 2.0, 2.0, 1.5, 1.6, 1.5];
        let reason = "validation loss did not improve on 1.500 in 2 validations";
        check(loss(), &values, (6, reason));
        assert_eq!(stopped(loss(), &values[..5]), None);
    }

    #[test]
    fn accuracies_improve_upward() {
        let values = [0.5, 0.6, 0.6, 0.7];
        let stopping = EarlyStopping::new("accuracy").patience(1);
        let reason = "accuracy did not improve on 60.00 % in 1 validation";
        check(stopping, &values, (3, reason));
        let other = EarlyStopping::new("gain").mode(Mode::Max).patience(1);
        assert_eq!(stopped(other, &[1.0, 2.0, 3.0]), None);
    }

    #[test]
    fn change_below_min_delta_is_no_improvement() {
        let stopping = loss().min_delta(0.5);
        let reason = "validation loss did not improve on 1.000 in 2 validations";
        check(stopping, &[1.0, 0.75, 0.5], (3, reason));
        assert_eq!(stopped(loss().min_delta(0.25), &[1.0, 0.5, 0.0]), None);
    }

    #[test]
    fn thresholds_stop_at_once() {
        let better = "validation loss is 0.09000, better than 0.1000";
        check(loss().stopping_threshold(0.1), &[1.0, 0.09], (2, better));
        let worse = "validation loss is 12.00, worse than 10.00";
        check(loss().divergence_threshold(10.0), &[1.0, 12.0], (2, worse));
        check(loss(), &[1.0, f64::NAN], (2, "validation loss is NaN"));
        let unchecked = loss().check_finite(false);
        assert_eq!(stopped(unchecked, &[1.0, f64::NAN, 0.5]), None);
    }
}
