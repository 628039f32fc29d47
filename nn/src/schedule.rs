//! Schedules: numbers that change over training, such as a learning rate.

mod number;

use std::panic::Location;

use halite_core::TensorType;

use crate::{Tensor, special::wide};
use number::Number;

/// A value for each update, counted from 0, such as a learning rate.
///
/// It is computed on the device from the step ([`at`](Self::at)), so a changing rate needs no upload
/// and no recompile. Its peak, end and length are
/// [hyperparameters](crate::Trace::hyperparameter), so changing them needs no recompile either.
/// [`value`](Self::value) computes the same on the host, for logs. After its last step a schedule
/// keeps its last value, unless another follows ([`then`](Self::then)).
///
/// ```
/// use halite_nn::Schedule;
///
/// let rate = Schedule::warmup(0.1, 10).then(Schedule::cosine(0.1, 90));
/// assert!((rate.value(0) - 0.01).abs() < 1e-9); // the first update has a rate above 0
/// assert_eq!(rate.value(9), 0.1);
/// assert!((rate.value(55) - 0.05).abs() < 1e-9);
/// assert!(rate.value(100) < 1e-9 && rate.value(1000) < 1e-9);
/// assert_eq!(Schedule::from(1e-3).value(7), 1e-3);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule(Kind);

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Constant(f64),
    /// `rate * (step + 1) / steps`
    Warmup {
        rate: f64,
        steps: u64,
    },
    /// `to + (from - to) * (1 - progress)^power`
    Polynomial {
        from: f64,
        to: f64,
        power: f64,
        steps: u64,
    },
    /// `to + (from - to) * (1 + cos(pi * progress)) / 2`
    Cosine {
        from: f64,
        to: f64,
        steps: u64,
    },
    /// Half a cosine up to `peak` at `0.3 * steps - 1`, and half a cosine down at `steps - 1`.
    OneCycle {
        peak: f64,
        steps: u64,
    },
    /// `initial * factor^(step / every)`
    Exponential {
        initial: f64,
        factor: f64,
        every: u64,
    },
    /// `initial * factor^floor(step / every)`
    Decay {
        initial: f64,
        factor: f64,
        every: u64,
    },
    /// `first`, and another value from each of these steps on.
    Piecewise {
        first: f64,
        later: Vec<(u64, f64)>,
    },
    /// `first` before step `at`, then `next`, which counts from there.
    Then {
        first: Box<Schedule>,
        at: u64,
        next: Box<Schedule>,
    },
}

impl Schedule {
    /// The constant `value`, as `From<f64>` makes it.
    pub fn constant(value: f64) -> Self {
        Schedule(Kind::Constant(value))
    }

    /// Linear warmup to `rate` in `steps` steps: `rate / steps` at step 0, `rate` at step `steps - 1`.
    pub fn warmup(rate: f64, steps: u64) -> Self {
        Schedule(Kind::Warmup { rate, steps })
    }

    /// Linear interpolation from `from` to `to`, reached at step `steps`.
    pub fn linear(from: f64, to: f64, steps: u64) -> Self {
        Schedule::polynomial(from, to, 1.0, steps)
    }

    /// Polynomial decay, `to + (from - to) (1 - step / steps)^power`: `to` at step `steps`.
    pub fn polynomial(from: f64, to: f64, power: f64, steps: u64) -> Self {
        Schedule(Kind::Polynomial {
            from,
            to,
            power,
            steps,
        })
    }

    /// Cosine decay from `rate` to 0, reached at step `steps` (Loshchilov and Hutter 2016, without
    /// restarts).
    pub fn cosine(rate: f64, steps: u64) -> Self {
        Schedule::cosine_to(rate, 0.0, steps)
    }

    /// Half a cosine from `from` to `to`, reached at step `steps`; up or down.
    pub fn cosine_to(from: f64, to: f64, steps: u64) -> Self {
        Schedule(Kind::Cosine { from, to, steps })
    }

    /// Exponential decay, `initial * factor^(step / every)`, smooth.
    pub fn exponential(initial: f64, factor: f64, every: u64) -> Self {
        Schedule(Kind::Exponential {
            initial,
            factor,
            every: every.max(1),
        })
    }

    /// Step decay: `initial`, multiplied by `factor` after every `every` steps.
    pub fn step_decay(initial: f64, factor: f64, every: u64) -> Self {
        Schedule(Kind::Decay {
            initial,
            factor,
            every: every.max(1),
        })
    }

    /// `first`, and another value from each of these steps on. Steps should ascend; if two do not, the
    /// later in the list wins.
    pub fn piecewise(first: f64, later: impl IntoIterator<Item = (u64, f64)>) -> Self {
        Schedule(Kind::Piecewise {
            first,
            later: later.into_iter().collect(),
        })
    }

    /// One-cycle policy (Smith and Topin 2017) with PyTorch's defaults: a cosine from `peak / 25` to
    /// `peak` in the first 30 % of `steps`, then a cosine to `peak / 250,000` at the last step. The
    /// peak is at `0.3 * steps - 1`, which need not be a whole number.
    pub fn one_cycle(peak: f64, steps: u64) -> Self {
        Schedule(Kind::OneCycle { peak, steps })
    }

    /// Appends `next` after the last step of this schedule, with its steps counted from there. A
    /// schedule without a last step (constant, exponential, step decay, piecewise) is returned
    /// unchanged; use [`then_at`](Self::then_at).
    pub fn then(self, next: impl Into<Schedule>) -> Self {
        match self.steps() {
            Some(at) => self.then_at(at, next),
            None => self,
        }
    }

    /// Switches to `next` at step `at`, with its steps counted from there.
    pub fn then_at(self, at: u64, next: impl Into<Schedule>) -> Self {
        Schedule(Kind::Then {
            first: Box::new(self),
            at,
            next: Box::new(next.into()),
        })
    }

    /// Number of steps until the value stays constant; `None` if the schedule has no last step.
    pub fn steps(&self) -> Option<u64> {
        match &self.0 {
            Kind::Constant(_)
            | Kind::Exponential { .. }
            | Kind::Decay { .. }
            | Kind::Piecewise { .. } => None,
            Kind::Warmup { steps, .. }
            | Kind::Polynomial { steps, .. }
            | Kind::Cosine { steps, .. } => Some(*steps),
            Kind::OneCycle { steps, .. } => Some(steps.saturating_sub(1)),
            Kind::Then { at, next, .. } => Some(at + next.steps()?),
        }
    }

    /// Computes the value for update `step` on the host.
    pub fn value(&self, step: u64) -> f64 {
        self.evaluate(step as f64, &mut |number| number)
    }

    /// Computes the value for update `step`, an integer or float scalar of the trace: an `f64` scalar
    /// if the step is `f64`, otherwise `f32`.
    #[track_caller]
    pub fn at<'t>(&self, step: Tensor<'t>) -> Tensor<'t> {
        let _site = step.trace().called_from(Location::caller());
        let dtype = wide(step.dtype());
        let counts = step.dtype().is_integer() || step.dtype() == dtype;
        if step.rank() != 0 || !counts {
            let like = TensorType::scalar(dtype);
            if step.is_error() {
                return step.trace().error_like(Some(like));
            }
            return step.trace().fail(
                "schedule",
                format!("step is {}; expected an integer scalar", step.ty()),
                Some(like),
            );
        }
        // Numbered by position, so that the program does not depend on which values are equal.
        let mut names = (0..).map(|position| format!("schedule.{position}"));
        let mut number = |value| {
            step.trace()
                .hyperparameter(&names.next().expect("there is no end"), value, dtype)
        };
        self.evaluate(step.convert(dtype), &mut number)
    }

    /// Evaluates on host or device by one definition, so that they agree. `number` is called for each
    /// number of the schedule, always in the same order.
    fn evaluate<N: Number>(&self, step: N, number: &mut dyn FnMut(f64) -> N) -> N {
        match &self.0 {
            Kind::Constant(value) => number(*value),
            Kind::Warmup { rate, steps } => progress(step + 1.0, *steps, number) * number(*rate),
            Kind::Polynomial {
                from,
                to,
                power,
                steps,
            } => {
                let left = progress(step, *steps, number) * -1.0 + 1.0;
                let left = if *power == 1.0 {
                    left
                } else {
                    left.power(number(*power))
                };
                left * number(from - to) + number(*to)
            }
            Kind::Cosine { from, to, steps } => {
                let progress = progress(step, *steps, number);
                half_cosine(progress, [*from, *to], number)
            }
            Kind::OneCycle { peak, steps } => one_cycle(step, *peak, *steps, number),
            Kind::Exponential {
                initial,
                factor,
                every,
            } => number(*factor).power(step * number(1.0 / *every as f64)) * number(*initial),
            Kind::Decay {
                initial,
                factor,
                every,
            } => {
                // Half a step is added because a compiler may divide by multiplying with the
                // reciprocal, and 49 * (1 / 49) is less than 1.
                let decays = ((step + 0.5) / number(*every as f64)).floored();
                number(*factor).power(decays) * number(*initial)
            }
            Kind::Piecewise { first, later } => {
                later.iter().fold(number(*first), |value, &(from, next)| {
                    let from = number(from as f64);
                    step.before(from, value, number(next))
                })
            }
            Kind::Then { first, at, next } => {
                let at = number(*at as f64);
                // `next` must not be evaluated at negative steps.
                let after = step.at_least(at) - at;
                step.before(
                    at,
                    first.evaluate(step, number),
                    next.evaluate(after, number),
                )
            }
        }
    }
}

impl From<f64> for Schedule {
    fn from(value: f64) -> Self {
        Schedule::constant(value)
    }
}

fn one_cycle<N: Number>(step: N, peak: f64, steps: u64, number: &mut dyn FnMut(f64) -> N) -> N {
    let end = steps.saturating_sub(1) as f64;
    let up = 0.3 * steps as f64 - 1.0;
    let [first, last] = [peak / 25.0, peak / 25.0 / 1e4];
    // The peak is before step 0 if there are few steps.
    let rising = step.at_most(number(up)) / number(up);
    let falling = (step.at_most(number(end)) - number(up)) / number(end - up);
    let rising = half_cosine(rising, [first, peak], number);
    let falling = half_cosine(falling, [peak, last], number);
    step.before(number(up), rising, falling)
}

/// Half a cosine between two values.
fn half_cosine<N: Number>(
    progress: N,
    [from, to]: [f64; 2],
    number: &mut dyn FnMut(f64) -> N,
) -> N {
    let wave = (progress * std::f64::consts::PI).cosine();
    (wave + 1.0) * number((from - to) / 2.0) + number(to)
}

/// Fraction of `steps` that has passed, from 0 to 1.
fn progress<N: Number>(step: N, steps: u64, number: &mut dyn FnMut(f64) -> N) -> N {
    if steps == 0 {
        return number(1.0);
    }
    let steps = number(steps as f64);
    step.at_most(steps) / steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_the_definitions() {
        let cases: [(Schedule, &[(u64, f64)]); 9] = [
            (Schedule::constant(0.5), &[(0, 0.5), (1_000_000, 0.5)]),
            (
                Schedule::warmup(1.0, 4),
                &[(0, 0.25), (1, 0.5), (3, 1.0), (9, 1.0)],
            ),
            (Schedule::warmup(1.0, 1).then(0.5), &[(0, 1.0), (1, 0.5)]),
            (
                Schedule::linear(1.0, 0.0, 4),
                &[(0, 1.0), (1, 0.75), (4, 0.0), (5, 0.0)],
            ),
            (
                Schedule::polynomial(1.0, 0.5, 2.0, 2),
                &[(0, 1.0), (1, 0.625), (2, 0.5)],
            ),
            (
                Schedule::cosine_to(1.0, 0.1, 10),
                &[(0, 1.0), (5, 0.55), (10, 0.1), (11, 0.1)],
            ),
            (
                Schedule::exponential(1.0, 0.25, 2),
                &[(0, 1.0), (1, 0.5), (2, 0.25)],
            ),
            (
                Schedule::step_decay(1.0, 0.1, 3),
                &[(0, 1.0), (2, 1.0), (3, 0.1), (5, 0.1), (6, 0.01)],
            ),
            (
                Schedule::piecewise(1.0, [(2, 0.5), (4, 0.25)]),
                &[(1, 1.0), (2, 0.5), (3, 0.5), (4, 0.25)],
            ),
        ];
        for (schedule, values) in cases {
            for &(step, expected) in values {
                let value = schedule.value(step);
                assert!(
                    (value - expected).abs() < 1e-12,
                    "{schedule:?} at {step}: {value}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn one_cycle_has_the_values_of_pytorch() {
        // `OneCycleLR(optimizer, 0.3, total_steps=steps)`: the formula of its documentation.
        let pytorch = |steps: f64, step: f64| {
            let (low, peak, last) = (0.3 / 25.0, 0.3, 0.3 / 25.0 / 1e4);
            let (up, end) = (0.3 * steps - 1.0, steps - 1.0);
            let cosine = |from: f64, to: f64, part: f64| {
                to + (from - to) / 2.0 * (1.0 + (std::f64::consts::PI * part).cos())
            };
            if step <= up {
                cosine(low, peak, step / up)
            } else {
                cosine(peak, last, (step - up) / (end - up))
            }
        };
        for steps in [2, 3, 4, 7, 25, 26, 40, 1001] {
            for step in 0..steps {
                let (value, expected) = (
                    Schedule::one_cycle(0.3, steps).value(step),
                    pytorch(steps as f64, step as f64),
                );
                assert!(
                    (value - expected).abs() < 1e-12,
                    "{step} of {steps}: {value}, {expected}"
                );
            }
        }
        let third = Schedule::one_cycle(1.0, 25).value(2);
        assert!((third - 0.2473).abs() < 5e-5, "{third}");
        assert_eq!(Schedule::one_cycle(1.0, 25).steps(), Some(24));
    }

    #[test]
    fn then_starts_at_the_last_step() {
        let schedule = Schedule::warmup(1.0, 2)
            .then(Schedule::linear(1.0, 0.0, 2))
            .then(Schedule::constant(7.0));
        let values: Vec<f64> = (0..6).map(|step| schedule.value(step)).collect();
        assert_eq!(values, [0.5, 1.0, 1.0, 0.5, 7.0, 7.0]);
        assert_eq!(schedule.steps(), None);
        assert_eq!(Schedule::constant(1.0).then(2.0).value(1_000), 1.0);
        assert_eq!(Schedule::constant(1.0).then_at(5, 2.0).value(5), 2.0);
    }

    #[test]
    fn zero_steps_yield_the_last_value() {
        for schedule in [
            Schedule::cosine_to(1.0, 0.5, 0),
            Schedule::linear(1.0, 0.5, 0),
        ] {
            assert_eq!(schedule.value(0), 0.5);
        }
        assert_eq!(Schedule::warmup(0.5, 0).value(0), 0.5);
        assert_eq!(Schedule::warmup(1.0, 0).then(0.25).value(0), 0.25);
        assert!(Schedule::one_cycle(1.0, 0).value(3).is_finite());
    }
}
