//! Schedules as text: as they are written in code.

use std::fmt;

use super::{Kind, Schedule, evaluate::Restarts};

/// As it is written in code: `warmup(0.1, 10).then(cosine(0.1, 90))`. It is on one line, also in a
/// pretty `Debug` of an optimizer.
impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Constant(value) => write!(f, "{value:?}"),
            Kind::Warmup { rate, steps } => write!(f, "warmup({rate:?}, {steps})"),
            Kind::Polynomial {
                from,
                to,
                power,
                steps,
            } => {
                if *power == 1.0 {
                    write!(f, "linear({from:?}, {to:?}, {steps})")
                } else {
                    write!(f, "polynomial({from:?}, {to:?}, {power:?}, {steps})")
                }
            }
            Kind::Cosine { from, to, steps } => {
                if *to == 0.0 {
                    write!(f, "cosine({from:?}, {steps})")
                } else {
                    write!(f, "cosine_to({from:?}, {to:?}, {steps})")
                }
            }
            Kind::OneCycle { peak, steps } => write!(f, "one_cycle({peak:?}, {steps})"),
            Kind::Exponential {
                initial,
                factor,
                every,
            } => write!(f, "exponential({initial:?}, {factor:?}, {every})"),
            Kind::Decay {
                initial,
                factor,
                every,
            } => write!(f, "step_decay({initial:?}, {factor:?}, {every})"),
            Kind::Piecewise { first, later } => write!(f, "piecewise({first:?}, {later:?})"),
            Kind::InverseSqrt { rate, warmup } => write!(f, "inverse_sqrt({rate:?}, {warmup})"),
            Kind::WarmRestarts(Restarts {
                from,
                to,
                first,
                multiplier,
            }) => write!(f, "warm_restarts({from:?}, {to:?}, {first}, {multiplier})"),
            Kind::PerEpoch { schedule, steps } => write!(f, "{schedule:?}.per_epoch({steps})"),
            Kind::WithWarmup { schedule, steps } => {
                write!(f, "{schedule:?}.with_warmup({steps})")
            }
            Kind::Then { first, at, next } => {
                if first.steps() == Some(*at) {
                    write!(f, "{first:?}.then({next:?})")
                } else {
                    write!(f, "{first:?}.then_at({at}, {next:?})")
                }
            }
            Kind::Custom(custom) => write!(f, "custom({:?})", custom.name),
        }
    }
}
