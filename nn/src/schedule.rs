//! Schedules: numbers that change over training, such as a learning rate.

mod evaluate;
mod mode;
mod number;
mod plateau;
mod spec;
mod text;

use std::{panic::Location, sync::Arc};

use halite_core::{Error, Result, TensorType};

use self::evaluate::Restarts;
pub use self::{
    mode::Mode,
    number::Number,
    plateau::{Plateau, PlateauState},
    spec::{RunLength, ScheduleSpec},
};
use crate::{Tensor, special::wide};

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
/// Its `Debug` text is the code that makes it, such as `warmup(0.1, 10).then(cosine(0.1, 90))`. A
/// flag or a configuration file names one by a [`ScheduleSpec`].
#[derive(Clone, PartialEq)]
pub struct Schedule(Kind);

#[derive(Clone, PartialEq)]
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
    /// Linear warmup to `rate` at step `warmup - 1`, then `rate * sqrt(warmup / (step + 1))`.
    InverseSqrt {
        rate: f64,
        warmup: u64,
    },
    WarmRestarts(Restarts),
    /// `schedule`, evaluated at the number of the epoch. An epoch has `steps` steps.
    PerEpoch {
        schedule: Box<Schedule>,
        steps: u64,
    },
    /// A linear warmup to the first value of `schedule`, then the rest of it.
    WithWarmup {
        schedule: Box<Schedule>,
        steps: u64,
    },
    /// `first` before step `at`, then `next`, which counts from there.
    Then {
        first: Box<Schedule>,
        at: u64,
        next: Box<Schedule>,
    },
    Custom(Custom),
}

/// The function of a custom schedule.
#[derive(Clone)]
struct Custom {
    name: String,
    function: Arc<dyn for<'t> Fn(Number<'t>) -> Number<'t> + Send + Sync>,
}

/// By name, as a checkpoint compares them.
impl PartialEq for Custom {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
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

    /// Step decay: `initial`, multiplied by `factor` after every `every` steps. For epochs, as
    /// PyTorch's `StepLR` is usually used, append [`per_epoch`](Self::per_epoch).
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

    /// Inverse square root decay with linear warmup (Vaswani et al. 2017): `rate` at step
    /// `warmup - 1`, then `rate * sqrt(warmup / (step + 1))`.
    pub fn inverse_sqrt(rate: f64, warmup: u64) -> Self {
        Schedule(Kind::InverseSqrt { rate, warmup })
    }

    /// Cosine decay with warm restarts (SGDR, Loshchilov and Hutter 2016), like PyTorch's
    /// `CosineAnnealingWarmRestarts`: from `from` to `to` in `first` steps, then again from `from`,
    /// each decay `multiplier` times as long as the one before.
    pub fn warm_restarts(from: f64, to: f64, first: u64, multiplier: u64) -> Self {
        Schedule(Kind::WarmRestarts(Restarts {
            from,
            to,
            first: first.max(1),
            multiplier: multiplier.max(1),
        }))
    }

    /// A function of the step, which counts from 0. It is evaluated on the host and, once, on the
    /// device, and has no conditions but [`Number::if_below`]. `name` stands for it in messages and
    /// in checkpoints: a run that resumes has a schedule of the same name.
    ///
    /// ```
    /// use halite_nn::Schedule;
    ///
    /// let sawtooth = Schedule::custom("sawtooth", |step| {
    ///     let cycles = step / 100.0;
    ///     (cycles - (cycles + 0.001).floor()) * 1e-3
    /// });
    /// assert_eq!(sawtooth.value(150), 0.5e-3);
    /// ```
    pub fn custom(
        name: impl Into<String>,
        function: impl for<'t> Fn(Number<'t>) -> Number<'t> + Send + Sync + 'static,
    ) -> Self {
        Schedule(Kind::Custom(Custom {
            name: name.into(),
            function: Arc::new(function),
        }))
    }

    /// This schedule with epochs of `steps` steps in place of its steps, so that the value changes
    /// only between epochs.
    ///
    /// ```
    /// use halite_nn::Schedule;
    ///
    /// let halved = Schedule::step_decay(1e-3, 0.5, 1).per_epoch(100);
    /// assert_eq!([0, 99, 100, 250].map(|step| halved.value(step)), [1e-3, 1e-3, 5e-4, 2.5e-4]);
    /// ```
    pub fn per_epoch(self, steps: u64) -> Self {
        Schedule(Kind::PerEpoch {
            schedule: Box::new(self),
            steps: steps.max(1),
        })
    }

    /// Precedes this schedule by a linear warmup of `steps` steps to its first value. A linear,
    /// polynomial or cosine schedule still ends at its last step; it must be longer than the warmup
    /// ([`check`](Self::check)). Others begin after the warmup.
    ///
    /// ```
    /// use halite_nn::Schedule;
    ///
    /// let rate = Schedule::cosine(1e-3, 1000).with_warmup(100);
    /// assert_eq!([0, 99, 100, 1000].map(|step| rate.value(step)), [1e-5, 1e-3, 1e-3, 0.0]);
    /// ```
    pub fn with_warmup(self, steps: u64) -> Self {
        if steps == 0 {
            return self;
        }
        Schedule(Kind::WithWarmup {
            schedule: Box::new(self),
            steps,
        })
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
            | Kind::InverseSqrt { .. }
            | Kind::WarmRestarts(_)
            | Kind::Custom(_)
            | Kind::Piecewise { .. } => None,
            Kind::Warmup { steps, .. }
            | Kind::Polynomial { steps, .. }
            | Kind::Cosine { steps, .. } => Some(*steps),
            Kind::OneCycle { steps, .. } => Some(steps.saturating_sub(1)),
            Kind::PerEpoch { schedule, steps } => Some(schedule.steps()?.saturating_mul(*steps)),
            Kind::WithWarmup { schedule, steps } => {
                if schedule.ends_with_warmup() {
                    schedule.steps()
                } else {
                    Some(schedule.steps()?.saturating_add(*steps))
                }
            }
            Kind::Then { at, next, .. } => Some(at.saturating_add(next.steps()?)),
        }
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// If a warmup is not shorter than its schedule, or a number is not finite. Optimizers check
    /// their schedules before the first step.
    pub fn check(&self) -> Result<()> {
        match &self.0 {
            Kind::Then { first, next, .. } => first.check().and_then(|()| next.check())?,
            Kind::PerEpoch { schedule, .. } => schedule.check()?,
            Kind::WithWarmup { schedule, steps } => {
                schedule.check()?;
                let length = schedule.steps().filter(|_| schedule.ends_with_warmup());
                if let Some(length) = length.filter(|length| length <= steps) {
                    let message = format!(
                        "the warmup has {steps} steps, and {schedule:?} ends at step {length}; a \
                         warmup is shorter than its schedule"
                    );
                    return Err(Error::invalid("schedule", message));
                }
            }
            _ => {}
        }
        let mut bad = None;
        self.evaluate(0.0.into(), &mut |number| {
            bad = bad.or((!number.is_finite()).then_some(number));
            number.into()
        });
        match bad {
            None => Ok(()),
            Some(number) => {
                let message = format!("{self:?}: {number} is not finite");
                Err(Error::invalid("schedule", message))
            }
        }
    }

    /// Whether its end stays where it is with a warmup.
    fn ends_with_warmup(&self) -> bool {
        matches!(self.0, Kind::Polynomial { .. } | Kind::Cosine { .. })
    }

    /// Computes the value for update `step` on the host.
    pub fn value(&self, step: u64) -> f64 {
        let value = self.evaluate((step as f64).into(), &mut Number::from);
        value.on_host().unwrap_or(f64::NAN)
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
        let mut number = |value| -> Number<'t> {
            let name = names.next().expect("there is no end");
            step.trace().hyperparameter(&name, value, dtype).into()
        };
        let step = step.convert(dtype);
        self.evaluate(step.into(), &mut number).beside(step)
    }
}

impl From<f64> for Schedule {
    fn from(value: f64) -> Self {
        Schedule::constant(value)
    }
}

#[cfg(test)]
mod tests;
