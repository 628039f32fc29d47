//! Learning-rate range test (Smith 2015): a short run whose rate grows exponentially shows which
//! rates a model learns at. It has a state of its own, and writes nothing.

use std::{
    fmt,
    panic::Location,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use halite_core::{Error, ErrorKind, Result};
use halite_data::Dataset;
use halite_nn::Optimizer;

use crate::{
    LOSS, ModelCheckpoint, ObservingOptions, OnNotFinite, Task, Trainer, TrainerOptions,
    callback::{Callback, MetricsWindow, Run, Shared},
    callbacks::grown,
    files,
    fit::Start,
    loggers::render_range,
    programs::{ModelArrays, ModelParams},
    signals::StopReason,
};

const OP: &str = "range test";

/// Part of the mean of the losses that a step keeps, as in fast.ai and Lightning.
const SMOOTHING: f64 = 0.98;

/// Points at the beginning and at the end among which none is suggested, as in fast.ai.
const SKIPPED: [usize; 2] = [10, 5];

/// Settings of a [range test](Trainer::lr_find), by the names of Lightning's callback.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearningRateFinder {
    /// The first learning rate. Default 1e-8.
    pub min_lr: f64,
    /// The last learning rate. Default 1.
    pub max_lr: f64,
    /// Optimizer steps. Default 100.
    pub num_training_steps: u64,
    /// The test ends when the loss exceeds this factor times the least loss, or where that is not
    /// above 0, the least loss by this factor of its distance from the first. Default 4; with
    /// infinity it does not end early.
    pub early_stop_threshold: f64,
}

impl Default for LearningRateFinder {
    fn default() -> Self {
        LearningRateFinder {
            min_lr: 1e-8,
            max_lr: 1.0,
            num_training_steps: 100,
            early_stop_threshold: 4.0,
        }
    }
}

impl LearningRateFinder {
    fn check(&self) -> Result<()> {
        let LearningRateFinder {
            min_lr,
            max_lr,
            num_training_steps,
            early_stop_threshold,
        } = *self;
        if !(min_lr > 0.0 && min_lr < max_lr && max_lr.is_finite()) {
            let message = format!(
                "the rates are from {min_lr} to {max_lr}; the first must be above 0 and below the \
                 last"
            );
            return Err(Error::invalid(OP, message));
        }
        let [first, last] = SKIPPED;
        if num_training_steps < (first + last + 2) as u64 {
            let message = format!(
                "`num_training_steps` is {num_training_steps}; it must be at least {}",
                first + last + 2
            );
            return Err(Error::invalid(OP, message));
        }
        if early_stop_threshold.is_nan() || early_stop_threshold <= 1.0 {
            let message =
                format!("`early_stop_threshold` is {early_stop_threshold}; it must be above 1");
            return Err(Error::invalid(OP, message));
        }
        Ok(())
    }

    /// The rate of the step with this index, from 0.
    fn rate(&self, step: u64) -> f64 {
        let part = step as f64 / (self.num_training_steps - 1) as f64;
        self.min_lr * (self.max_lr / self.min_lr).powf(part)
    }
}

/// Result of a [range test](Trainer::lr_find).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RangeTest {
    /// Learning rates of the steps, and the smoothed losses at them.
    pub points: Vec<(f64, f64)>,
    /// The rate at which half of the longest descent of the loss is done; `None` if it never falls.
    pub suggestion: Option<f64>,
}

impl RangeTest {
    fn of(points: Vec<(f64, f64)>) -> Self {
        RangeTest {
            suggestion: half_descended(&points),
            points,
        }
    }

    /// Writes a plot of the losses by the rate as SVG.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn plot(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let svg = render_range(&self.points, self.suggestion)?;
        files::replace(path, svg.as_bytes())
            .map_err(|error| files::failed(OP, "write", path, &error))
    }
}

impl fmt::Display for RangeTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates = |index: usize| self.points.get(index).map_or(f64::NAN, |point| point.0);
        let (first, last) = (rates(0), rates(self.points.len().saturating_sub(1)));
        let steps = self.points.len();
        write!(
            f,
            "{steps} steps with learning rates from {first:.2e} to {last:.2e}: "
        )?;
        match self.suggestion {
            Some(rate) => write!(f, "at {rate:.2e} half of the descent is done"),
            None => f.write_str("the loss does not fall"),
        }
    }
}

/// The rate at which half of the longest descent of the losses is done. A descent may have points in it
/// that do not belong to it, so that noise does not end it, as `valley` of fast.ai; its middle by
/// rates, which fast.ai suggests, is often on the plateau before the fall.
fn half_descended(points: &[(f64, f64)]) -> Option<f64> {
    let [first, last] = SKIPPED;
    let points = points.get(first..points.len().saturating_sub(last))?;
    // The number of points of the longest descent that ends at each.
    let mut descents: Vec<usize> = Vec::new();
    for (index, (_, loss)) in points.iter().enumerate() {
        let before = points[..index].iter().zip(&descents);
        let above = before.filter(|((_, before), _)| loss < before);
        let longest = above.map(|(_, descent)| *descent).max();
        descents.push(longest.unwrap_or(0) + 1);
    }
    let longest = *descents.iter().max()?;
    let end = descents.iter().position(|descent| *descent == longest)?;
    let start = end.saturating_sub(longest);
    let half = (points[start].1 + points[end].1) / 2.0;
    let below = points[start..=end].iter().find(|(_, loss)| *loss <= half);
    below.filter(|_| longest > 2).map(|(rate, _)| *rate)
}

/// Raises the rate after each step, and records the losses.
struct Sweep {
    finder: LearningRateFinder,
    /// Rate of the optimizer.
    base: f64,
    mean: f64,
    least: f64,
    points: Arc<Mutex<Vec<(f64, f64)>>>,
}

impl Sweep {
    fn set_rate(&self, run: &mut Run) -> Result<()> {
        let factor = self.finder.rate(run.step()) / self.base;
        run.set_learning_rate_factor(factor)
    }
}

impl Callback for Sweep {
    fn changes_learning_rate(&self) -> bool {
        true
    }

    fn on_fit_start(&mut self, run: &mut Run) -> Result<()> {
        self.set_rate(run)
    }

    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        self.set_rate(run)
    }

    fn on_train_metrics(&mut self, run: &mut Run, window: &MetricsWindow) -> Result<()> {
        let (step, loss) = (window.row.step, window.row.get(LOSS));
        let Some(loss) = loss.filter(|_| step > 0 && !run.stop_requested) else {
            return Ok(());
        };
        self.mean = SMOOTHING * self.mean + (1.0 - SMOOTHING) * loss;
        let smoothed = self.mean / (1.0 - SMOOTHING.powf(step as f64));
        let mut points = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        points.push((self.finder.rate(step - 1), smoothed));
        let first = points[0].1;
        if step > 1 && smoothed > grown(self.finder.early_stop_threshold, first, self.least) {
            run.stop();
        }
        self.least = self.least.min(smoothed);
        Ok(())
    }
}

impl Trainer {
    /// Learning-rate range test (Smith 2015): trains a new model for a few steps while the learning
    /// rate grows exponentially, and suggests the one at which half of the longest descent of the
    /// loss is done. Lightning's `Tuner.lr_find`, and fast.ai's `lr_find`.
    ///
    /// The optimizer has a constant rate, which the test replaces; groups of parameters with other
    /// rates keep their ratio to the first. Options of a directory, of lengths and of validation,
    /// callbacks and loggers are those of a run, and the test has none of them.
    ///
    /// # Errors
    /// If the rate of the optimizer is not constant, the settings of `finder` cannot work, or the
    /// run is stopped; those of [`fit`](Self::fit). A loss that is not finite ends the test.
    #[track_caller]
    pub fn lr_find<K: Task, O: Optimizer>(
        &self,
        task: K,
        model: ModelParams<K>,
        optimizer: O,
        train: impl Dataset + 'static,
        finder: LearningRateFinder,
    ) -> Result<RangeTest> {
        let start = Start {
            model,
            values: None,
        };
        self.range_test(Location::caller(), task, start, optimizer, train, finder)
    }

    /// As [`lr_find`](Self::lr_find), from the parameters `values` instead of initialized ones, as of a
    /// published model that is trained further: rates that suit a new model are often too large.
    ///
    /// # Errors
    /// As [`lr_find`](Self::lr_find); if `values` do not have the structure and types of `model`.
    #[track_caller]
    pub fn lr_find_from<K: Task, O: Optimizer>(
        &self,
        task: K,
        model: ModelParams<K>,
        values: ModelArrays<K>,
        optimizer: O,
        train: impl Dataset + 'static,
        finder: LearningRateFinder,
    ) -> Result<RangeTest> {
        let start = Start::from(model, values)?;
        self.range_test(Location::caller(), task, start, optimizer, train, finder)
    }

    fn range_test<K: Task, O: Optimizer>(
        &self,
        line: &'static Location<'static>,
        task: K,
        start: Start<K>,
        optimizer: O,
        train: impl Dataset + 'static,
        finder: LearningRateFinder,
    ) -> Result<RangeTest> {
        finder.check()?;
        let points = Arc::new(Mutex::new(Vec::new()));
        let sweep = Sweep {
            finder,
            base: constant_rate(&optimizer, finder.num_training_steps)?,
            mean: 0.0,
            least: f64::INFINITY,
            points: points.clone(),
        };
        let trainer = Trainer {
            options: of_test(&self.options, finder.num_training_steps),
            average: None,
            has_rate_factor: true,
            callbacks: vec![Shared(Arc::new(Mutex::new(sweep)))],
            loggers: Vec::new(),
            ..self.clone()
        };
        let fit = trainer.run(line, task, start, optimizer, train, ())?;
        let stopped_by = match fit.expecting_growth().fit() {
            Ok(fitted) => fitted.stopped_by,
            Err(error) if error.kind() == ErrorKind::Diverged => None,
            Err(error) => return Err(error),
        };
        let points = std::mem::take(&mut *points.lock().unwrap_or_else(PoisonError::into_inner));
        if stopped_by.is_some_and(|reason| reason != StopReason::Callback) {
            let message = format!("stopped after {} steps", points.len());
            return Err(Error::new(ErrorKind::Cancelled, OP, message));
        }
        Ok(RangeTest::of(points))
    }
}

/// The options of a test with `steps` steps.
fn of_test(options: &TrainerOptions, steps: u64) -> TrainerOptions {
    TrainerOptions {
        max_epochs: None,
        max_steps: Some(steps),
        max_time: None,
        fast_dev_run: None,
        val_check_interval: None,
        num_sanity_val_steps: 0,
        steps_per_execution: 1,
        log_every_n_steps: 1,
        on_not_finite: OnNotFinite::Stop,
        out: None,
        resume: false,
        resume_from: None,
        allow_changes: Vec::new(),
        checkpoint: ModelCheckpoint::default(),
        observing: ObservingOptions::default(),
        ..options.clone()
    }
}

/// The first learning rate of an optimizer, which has to be constant.
fn constant_rate(optimizer: &impl Optimizer, steps: u64) -> Result<f64> {
    let schedules = optimizer.schedules();
    let changing = schedules.iter().find_map(|(name, schedule)| {
        let first = schedule.value(0);
        let changed = (1..steps).find(|step| schedule.value(*step) != first)?;
        Some((name, first, changed, schedule.value(changed)))
    });
    if let Some((name, first, step, other)) = changing {
        let message = format!(
            "the rate `{name}` of the optimizer is {first} at first and {other} after {step} steps; \
             give a constant one, which the test replaces"
        );
        return Err(Error::invalid(OP, message));
    }
    match schedules.first().map(|(_, schedule)| schedule.value(0)) {
        Some(rate) if rate > 0.0 => Ok(rate),
        Some(rate) => {
            let message = format!("the rate of the optimizer is {rate}; give a positive one");
            Err(Error::invalid(OP, message))
        }
        None => {
            let message = "the optimizer names no learning rate (`Optimizer::schedules`)";
            Err(Error::invalid(OP, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Losses at rates of 1, 2, 4, .. after and before those that are skipped.
    fn suggested(losses: &[f64]) -> Option<f64> {
        let [first, last] = SKIPPED.map(|count| vec![losses[0]; count]);
        let losses = [first, losses.to_vec(), last].concat();
        let rates = (0..).map(|index| f64::powi(2.0, index - SKIPPED[0] as i32));
        RangeTest::of(rates.zip(losses).collect()).suggestion
    }

    #[test]
    fn suggestion_is_where_half_of_the_descent_is_done() {
        let falling = [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0];
        assert_eq!(suggested(&falling), Some(16.0));
        // Points above the descent do not end it.
        let noisy = [9.0, 9.0, 9.0, 9.5, 8.0, 7.0, 9.0, 6.0, 5.0, 9.0, 9.0];
        assert_eq!(suggested(&noisy), Some(32.0));
        assert_eq!(suggested(&[1.0, 2.0, 3.0, 4.0, 5.0]), None);
        assert_eq!(RangeTest::of(vec![(1.0, 1.0); 3]).suggestion, None);
    }

    #[test]
    fn settings_that_cannot_work_are_named() {
        let check = |change: fn(&mut LearningRateFinder), expected: &str| {
            let mut finder = LearningRateFinder::default();
            change(&mut finder);
            let error = finder.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(|finder| finder.min_lr = 0.0, "the rates are from 0 to 1");
        check(
            |finder| finder.max_lr = 1e-9,
            "the first must be above 0 and below the last",
        );
        check(
            |finder| finder.num_training_steps = 16,
            "it must be at least 17",
        );
        check(
            |finder| finder.early_stop_threshold = 1.0,
            "it must be above 1",
        );
        check(
            |finder| finder.early_stop_threshold = f64::NAN,
            "it must be above 1",
        );
    }
}
