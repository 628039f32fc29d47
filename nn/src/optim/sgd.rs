use halite_core::Tree;

use super::{
    Decay, Gradient, Named, Optimizer,
    settings::{Range, settings},
    zeros,
};
use crate::{Param, Schedule, Tensor};

/// Stochastic gradient descent, with momentum (Polyak 1964) or Nesterov's (Sutskever et al. 2013),
/// like `torch.optim.SGD`:
///
/// ```text
/// g = grad + weight_decay * param
/// v = g at the first update, then momentum * v + (1 - dampening) * g
/// param -= rate * (g + momentum * v  if nesterov,  else v)
/// ```
///
/// Without momentum there is no state, and `v` is `g`.
#[derive(Clone, Debug)]
pub struct Sgd {
    learning_rate: Schedule,
    momentum: f64,
    dampening: f64,
    nesterov: bool,
    weight_decay: f64,
    decay: Decay,
}

/// Optimizer state of [`Sgd`] for a parameter: with momentum, its velocity.
#[derive(Clone, Debug, Tree)]
pub struct Velocity<L> {
    /// Exponentially decaying sum of the gradients.
    pub velocity: Option<L>,
}

impl Sgd {
    /// Creates plain gradient descent with this learning rate: a number or a [`Schedule`].
    pub fn new(learning_rate: impl Into<Schedule>) -> Self {
        Sgd {
            learning_rate: learning_rate.into(),
            momentum: 0.0,
            dampening: 0.0,
            nesterov: false,
            weight_decay: 0.0,
            decay: Decay::default(),
        }
    }

    /// Sets the momentum, such as 0.9; 0 by default.
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }

    /// Enables Nesterov momentum. It has no effect without momentum.
    pub fn nesterov(mut self) -> Self {
        self.nesterov = true;
        self
    }

    /// Sets the dampening of the momentum; 0 by default.
    pub fn dampening(mut self, dampening: f64) -> Self {
        self.dampening = dampening;
        self
    }
}

settings!(
    Sgd,
    /// Adds `weight_decay * param` to the gradients of the parameters that [`decay`](Self::decay)
    /// selects.
);

impl Optimizer for Sgd {
    type Slot = Velocity<()>;

    fn slot(&self, named: Named<'_>) -> Velocity<Param> {
        Velocity {
            velocity: (self.momentum != 0.0).then(|| zeros(named.param)),
        }
    }

    fn direction<'t>(
        &self,
        gradient: Gradient<'t, '_>,
        slot: Velocity<Tensor<'t>>,
    ) -> (Tensor<'t>, Velocity<Tensor<'t>>) {
        let of = gradient.decayed(self.weight_decay, &self.decay);
        let mut direction = of.grad;
        let velocity = slot.velocity.map(|velocity| {
            let fresh = match self.dampening {
                0.0 => of.grad,
                // The first gradient is not dampened.
                dampening => {
                    let one = of.cx().scalar(1.0, of.grad.dtype());
                    let rest = of.number("1 - dampening", 1.0 - dampening);
                    of.grad * of.count().eq(1.0).select(one, rest)
                }
            };
            let momentum = of.number("momentum", self.momentum);
            let velocity = velocity * momentum + fresh;
            direction = if self.nesterov {
                of.grad + velocity * momentum
            } else {
                velocity
            };
            velocity
        });
        (
            direction * of.rate(&self.learning_rate),
            Velocity { velocity },
        )
    }

    fn is_elementwise(&self, _: Named<'_>) -> bool {
        true
    }

    fn schedules(&self) -> Vec<(String, &Schedule)> {
        vec![("learning_rate".into(), &self.learning_rate)]
    }

    fn numbers(&self) -> Vec<(&'static str, f64, Range)> {
        vec![
            ("momentum", self.momentum, Range::NotNegative),
            ("dampening", self.dampening, Range::Any),
            ("weight_decay", self.weight_decay, Range::NotNegative),
        ]
    }
}
