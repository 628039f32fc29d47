use halite_core::Tree;

use super::{Decay, Named, Optimizer, zeros};
use crate::{Param, Schedule, Tensor, Trace, special::wide};

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
    rate: Schedule,
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
    pub fn new(rate: impl Into<Schedule>) -> Self {
        Sgd {
            rate: rate.into(),
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

    /// Adds `weight_decay * param` to the gradients of the parameters that [`decay`](Self::decay)
    /// selects.
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.weight_decay = weight_decay;
        self
    }

    /// Selects the parameters that decay; by default all.
    pub fn decay(mut self, decay: Decay) -> Self {
        self.decay = decay;
        self
    }
}

impl Optimizer for Sgd {
    type Slot = Velocity<()>;

    fn slot(&self, param: &Param) -> Velocity<Param> {
        Velocity {
            velocity: (self.momentum != 0.0).then(|| zeros(param)),
        }
    }

    fn update<'t>(
        &self,
        cx: &'t Trace,
        step: Tensor<'t>,
        param: Tensor<'t>,
        grad: Tensor<'t>,
        slot: Velocity<Tensor<'t>>,
        named: Named<'_>,
    ) -> (Tensor<'t>, Velocity<Tensor<'t>>) {
        let ty = param.ty();
        let wide = wide(ty.dtype());
        let rate = self.rate.at(step).convert(wide);
        let value = param.convert(wide);
        let mut grad = grad.convert(wide);
        if self.weight_decay != 0.0 && self.decay.applies(named) {
            grad = grad + value * cx.hyperparameter("weight_decay", self.weight_decay, wide);
        }
        let mut direction = grad;
        let velocity = slot.velocity.map(|velocity| {
            let fresh = if self.dampening == 0.0 {
                grad
            } else {
                // The first gradient is not dampened.
                let [one, rest] = [
                    cx.scalar(1.0, wide),
                    cx.hyperparameter("1 - dampening", 1.0 - self.dampening, wide),
                ];
                grad * step.eq(0.0).select(one, rest)
            };
            let momentum = cx.hyperparameter("momentum", self.momentum, wide);
            let velocity = velocity * momentum + fresh;
            direction = if self.nesterov {
                grad + velocity * momentum
            } else {
                velocity
            };
            velocity
        });
        (
            (value - direction * rate).convert(ty.dtype()),
            Velocity { velocity },
        )
    }
}
