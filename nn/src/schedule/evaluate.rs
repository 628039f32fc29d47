//! Values of schedules: one definition for host and device, so that they agree.

use std::f64::consts::PI;

use super::{Kind, Number, Schedule};

/// Makes the numbers of a schedule: hyperparameters on the device.
type Numbers<'a, 't> = &'a mut dyn FnMut(f64) -> Number<'t>;

impl Schedule {
    /// The value at `step`. `number` is called for each number of the schedule, always in the same
    /// order.
    pub(super) fn evaluate<'t>(&self, step: Number<'t>, number: Numbers<'_, 't>) -> Number<'t> {
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
                    left.powf(number(*power))
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
            } => number(*factor).powf(step * number(1.0 / *every as f64)) * number(*initial),
            Kind::Decay {
                initial,
                factor,
                every,
            } => number(*factor).powf(passed(step, *every, number)) * number(*initial),
            Kind::Piecewise { first, later } => {
                later.iter().fold(number(*first), |value, &(from, next)| {
                    let from = number(from as f64);
                    step.if_below(from, value, number(next))
                })
            }
            Kind::InverseSqrt { rate, warmup } => {
                let warmup = number((*warmup).max(1) as f64);
                let step = step + 1.0;
                (step / warmup).min((warmup / step).sqrt()) * number(*rate)
            }
            Kind::WarmRestarts(restarts) => restarts.evaluate(step, number),
            Kind::PerEpoch { schedule, steps } => {
                let epoch = passed(step, *steps, number);
                schedule.evaluate(epoch, number)
            }
            Kind::WithWarmup { schedule, steps } => {
                let warmup = number(*steps as f64);
                let first = number(schedule.value(0));
                let rising = (step + 1.0).min(warmup) / number((*steps).max(1) as f64) * first;
                // The schedule must not be evaluated at negative steps.
                let after = step.max(warmup) - warmup;
                let after = schedule.shortened(*steps).evaluate(after, number);
                step.if_below(warmup, rising, after)
            }
            Kind::Then { first, at, next } => {
                let at = number(*at as f64);
                let after = step.max(at) - at;
                step.if_below(
                    at,
                    first.evaluate(step, number),
                    next.evaluate(after, number),
                )
            }
            Kind::Custom(custom) => (custom.function)(step),
        }
    }

    /// This schedule with a length that is `steps` less, if it has one of its own.
    fn shortened(&self, less: u64) -> Schedule {
        let mut schedule = self.clone();
        if let Kind::Polynomial { steps, .. } | Kind::Cosine { steps, .. } = &mut schedule.0 {
            *steps = steps.saturating_sub(less);
        }
        schedule
    }
}

/// Cosine decays, each as long as the one before or a multiple of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Restarts {
    pub(super) from: f64,
    pub(super) to: f64,
    /// Length of the first decay, in steps.
    pub(super) first: u64,
    pub(super) multiplier: u64,
}

impl Restarts {
    fn evaluate<'t>(&self, step: Number<'t>, number: Numbers<'_, 't>) -> Number<'t> {
        let first = number(self.first as f64);
        let (mut start, mut length) = (Number::from(0.0), first);
        if self.multiplier == 1 {
            start = passed(step, self.first, number) * first;
        }
        for (at, next) in self.later() {
            let at = number(at as f64);
            (start, length) = (
                step.if_below(at, start, at),
                step.if_below(at, length, number(next as f64)),
            );
        }
        half_cosine((step - start) / length, [self.from, self.to], number)
    }

    /// Starts and lengths of the decays after the first, up to the largest step that a `u32` counts.
    fn later(&self) -> Vec<(u64, u64)> {
        let (mut start, mut length) = (0, self.first);
        let mut later = Vec::new();
        while self.multiplier > 1 && start + length <= u64::from(u32::MAX) {
            start += length;
            length = length.saturating_mul(self.multiplier);
            later.push((start, length));
        }
        later
    }
}

fn one_cycle<'t>(step: Number<'t>, peak: f64, steps: u64, number: Numbers<'_, 't>) -> Number<'t> {
    let end = steps.saturating_sub(1) as f64;
    let up = 0.3 * steps as f64 - 1.0;
    let [first, last] = [peak / 25.0, peak / 25.0 / 1e4];
    // The peak is before step 0 if there are few steps.
    let rising = step.min(number(up)) / number(up);
    let falling = (step.min(number(end)) - number(up)) / number(end - up);
    let rising = half_cosine(rising, [first, peak], number);
    let falling = half_cosine(falling, [peak, last], number);
    step.if_below(number(up), rising, falling)
}

/// Half a cosine between two values.
fn half_cosine<'t>(progress: Number<'t>, ends: [f64; 2], number: Numbers<'_, 't>) -> Number<'t> {
    let [from, to] = ends;
    let wave = (progress * PI).cos();
    (wave + 1.0) * number((from - to) / 2.0) + number(to)
}

/// Fraction of `steps` that has passed, from 0 to 1.
fn progress<'t>(step: Number<'t>, steps: u64, number: Numbers<'_, 't>) -> Number<'t> {
    if steps == 0 {
        return number(1.0);
    }
    let steps = number(steps as f64);
    step.min(steps) / steps
}

/// How often `every` steps have passed: a whole number.
fn passed<'t>(step: Number<'t>, every: u64, number: Numbers<'_, 't>) -> Number<'t> {
    // Half a step is added because a compiler may divide by multiplying with the reciprocal, and
    // 49 * (1 / 49) is less than 1.
    ((step + 0.5) / number(every as f64)).floor()
}
