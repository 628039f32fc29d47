use halite_core::Tree;

use super::{
    Decay, Gradient, Named, Optimizer,
    settings::{Range, settings},
    zeros,
};
use crate::{Param, Schedule, Tensor};

/// Lion (Chen et al. 2023), like `optax.lion`. Every element moves by the rate, so that rates are
/// three to ten times smaller than those of [`AdamW`](super::AdamW), and weight decays as many times
/// larger.
///
/// ```text
/// param -= rate * (sign(b1 * m + (1 - b1) * grad) + weight_decay * param)
/// m = b2 * m + (1 - b2) * grad
/// ```
///
/// By default `b1 = 0.9`, `b2 = 0.99`, `weight_decay = 1e-3`.
#[derive(Clone, Debug)]
pub struct Lion {
    learning_rate: Schedule,
    b1: f64,
    b2: f64,
    weight_decay: f64,
    decay: Decay,
}

/// Optimizer state of [`Lion`], [`Lars`](super::Lars) and [`Muon`](super::Muon) for a parameter.
#[derive(Clone, Debug, Tree)]
pub struct Momentum<L> {
    /// Moving average of the gradients, or decaying sum of the steps.
    pub momentum: L,
}

impl Momentum<Param> {
    /// Zeros, like `param`.
    pub(super) fn of(param: &Param) -> Self {
        Momentum {
            momentum: zeros(param),
        }
    }
}

impl Lion {
    /// Creates the optimizer with this learning rate: a number or a [`Schedule`].
    pub fn new(learning_rate: impl Into<Schedule>) -> Self {
        Lion {
            learning_rate: learning_rate.into(),
            b1: 0.9,
            b2: 0.99,
            weight_decay: 1e-3,
            decay: Decay::default(),
        }
    }

    /// Sets the weights of the momentum, in the step and in its own update: 0.9 and 0.99 by
    /// default.
    pub fn betas(mut self, b1: f64, b2: f64) -> Self {
        (self.b1, self.b2) = (b1, b2);
        self
    }
}

settings!(
    Lion,
    /// Shrinks the parameters that [`decay`](Self::decay) selects by `rate * weight_decay` at each
    /// update.
);

impl Optimizer for Lion {
    type Slot = Momentum<()>;

    fn slot(&self, named: Named<'_>) -> Momentum<Param> {
        Momentum::of(named.param)
    }

    fn direction<'t>(
        &self,
        of: Gradient<'t, '_>,
        slot: Momentum<Tensor<'t>>,
    ) -> (Tensor<'t>, Momentum<Tensor<'t>>) {
        let rate = of.rate(&self.learning_rate);
        let mixed =
            slot.momentum * of.number("b1", self.b1) + of.grad * of.number("1 - b1", 1.0 - self.b1);
        let momentum =
            slot.momentum * of.number("b2", self.b2) + of.grad * of.number("1 - b2", 1.0 - self.b2);
        let direction = mixed.sign() * rate;
        let direction = of.decoupled(direction, rate, (self.weight_decay, &self.decay));
        (direction, Momentum { momentum })
    }

    fn is_elementwise(&self, _: Named<'_>) -> bool {
        true
    }

    fn schedules(&self) -> Vec<(String, &Schedule)> {
        vec![("learning_rate".into(), &self.learning_rate)]
    }

    fn numbers(&self) -> Vec<(&'static str, f64, Range)> {
        vec![
            ("b1", self.b1, Range::Decay),
            ("b2", self.b2, Range::Decay),
            ("weight_decay", self.weight_decay, Range::NotNegative),
        ]
    }
}
