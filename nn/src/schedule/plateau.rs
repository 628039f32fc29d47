//! Reduction of the learning rate when a metric stops improving. It is computed on the host, from
//! values that are there already.

use halite_core::{Error, Result};

use super::Mode;

/// Rule that reduces the learning rate when a metric has stopped improving, like PyTorch's
/// `ReduceLROnPlateau`: after more than `patience` values in a row that are not better than the best
/// by `threshold`, the rate is multiplied by `factor`.
///
/// The rule multiplies a factor of the learning rate, so that it combines with any
/// [`Schedule`](super::Schedule).
///
/// ```
/// use halite_nn::schedule::{Plateau, PlateauState};
///
/// let plateau = Plateau { factor: 0.5, patience: 1, ..Plateau::new("loss") };
/// let mut state = PlateauState::new();
/// for loss in [1.0, 0.9, 0.91, 0.92] {
///     state = plateau.next(&state, loss);
/// }
/// assert_eq!(state.factor, 0.5);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Plateau {
    /// Name of the metric of the validation.
    pub monitor: String,
    /// Whether a smaller or a larger value is better. Default `None`: by the name of the metric, if
    /// [`Mode::of`] knows it.
    pub mode: Option<Mode>,
    /// What the rate is multiplied by. Default 0.1.
    pub factor: f64,
    /// Number of values without improvement that are tolerated. Default 10.
    pub patience: u64,
    /// Least improvement that counts, relative to the size of the best value. Default 1e-4.
    pub threshold: f64,
    /// Number of values after a reduction that are not counted. Default 0.
    pub cooldown: u64,
    /// Least factor of the learning rate, PyTorch's `min_lr` divided by the rate. Default 0.
    pub min_factor: f64,
}

/// What a [`Plateau`] has seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlateauState {
    /// Best value so far; `None` before the first.
    pub best: Option<f64>,
    /// Values in a row that were not better.
    pub bad: u64,
    /// Values that are still not counted.
    pub cooldown: u64,
    /// Factor of the learning rate.
    pub factor: f64,
}

impl Plateau {
    /// The rule with its defaults for this metric.
    pub fn new(monitor: impl Into<String>) -> Self {
        Plateau {
            monitor: monitor.into(),
            mode: None,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            cooldown: 0,
            min_factor: 0.0,
        }
    }

    /// Whether a smaller or a larger value is better; smaller if it is not known, which
    /// [`check`](Self::check) refuses.
    pub fn mode(&self) -> Mode {
        self.mode.or(Mode::of(&self.monitor)).unwrap_or(Mode::Min)
    }

    /// Checks the direction and the numbers.
    ///
    /// # Errors
    /// If the direction is neither given nor known from the name of the metric; if `factor` is not between 0 and 1, or `threshold` or `min_factor` are negative or not
    /// finite.
    pub fn check(&self) -> Result<()> {
        let refused = |message: String| Err(Error::invalid("plateau", message));
        Mode::given_or_of(self.mode, &self.monitor, "`Plateau::mode`")?;
        if !(0.0..1.0).contains(&self.factor) {
            return refused(format!(
                "factor is {}; expected a number from 0 to below 1, such as 0.1",
                self.factor
            ));
        }
        for (name, value) in [
            ("threshold", self.threshold),
            ("min_factor", self.min_factor),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return refused(format!(
                    "{name} is {value}; expected 0 or a positive number"
                ));
            }
        }
        Ok(())
    }

    /// The state after another value of the metric. A NaN is never better.
    #[must_use]
    pub fn next(&self, state: &PlateauState, value: f64) -> PlateauState {
        let mut next = *state;
        if self.is_better(value, state.best) {
            (next.best, next.bad) = (Some(value), 0);
        } else {
            next.bad += 1;
        }
        if next.cooldown > 0 {
            (next.cooldown, next.bad) = (next.cooldown - 1, 0);
        }
        if next.bad > self.patience {
            (next.cooldown, next.bad) = (self.cooldown, 0);
            next.factor = (next.factor * self.factor)
                .max(self.min_factor)
                .min(next.factor);
        }
        next
    }

    fn is_better(&self, value: f64, best: Option<f64>) -> bool {
        let Some(best) = best else {
            return !value.is_nan();
        };
        let mode = self.mode();
        // Of the size, so that it is an improvement also of a best value below 0.
        let change = best.abs() * self.threshold;
        let least = match mode {
            Mode::Min => best - change,
            Mode::Max => best + change,
        };
        mode.is_better(value, least)
    }
}

impl PlateauState {
    /// The state before the first value: a factor of 1.
    pub fn new() -> Self {
        PlateauState {
            best: None,
            bad: 0,
            cooldown: 0,
            factor: 1.0,
        }
    }
}

impl Default for PlateauState {
    fn default() -> Self {
        PlateauState::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_any_sign_have_a_plateau() {
        for (mode, first) in [
            (Mode::Min, 1.0_f64),
            (Mode::Min, -1.0),
            (Mode::Max, -1.0),
            (Mode::Min, 0.0),
        ] {
            let rule = Plateau {
                mode: Some(mode),
                patience: 2,
                ..Plateau::new("gain")
            };
            let worse = match mode {
                Mode::Min => 5e-5,
                Mode::Max => -5e-5,
            };
            // Changes below the threshold in either direction, and none.
            for change in [0.0, worse, -worse * first.abs()] {
                let values = (0..4).map(|index| first + change * f64::from(u8::from(index > 0)));
                let start = PlateauState::new();
                let last = values.fold(start, |state, value| rule.next(&state, value));
                assert_eq!(
                    (last.factor, last.best),
                    (0.1, Some(first)),
                    "{mode} {first} {change}"
                );
            }
            // Improvements.
            let better = match mode {
                Mode::Min => -1.0,
                Mode::Max => 1.0,
            };
            let values = (0..6).map(|index| first + better * f64::from(index));
            let last = values.fold(PlateauState::new(), |state, value| rule.next(&state, value));
            assert_eq!(last.factor, 1.0, "{mode} {first}");
        }
    }
}
