use super::{
    Decay, Gradient, Momentum, Named, Optimizer,
    settings::{Range, settings},
};
use crate::{Param, Schedule, Tensor};

/// LARS (You et al. 2017), like `optax.lars`. The step of each layer is scaled by the norm of its
/// parameters over that of its gradients, or not where one of them is 0:
///
/// ```text
/// g = grad + weight_decay * param
/// u = rate * trust_coefficient * |param| / |g| * g
/// v = momentum * v + u
/// param -= u + momentum * v  if nesterov,  else v
/// ```
///
/// By default `trust_coefficient = 0.001`, `momentum = 0.9`, and there is no weight decay. Biases and
/// normalization scales usually take [`Sgd`](super::Sgd): see [`Optimizer::partition`].
#[derive(Clone, Debug)]
pub struct Lars {
    learning_rate: Schedule,
    trust_coefficient: f64,
    momentum: f64,
    nesterov: bool,
    weight_decay: f64,
    decay: Decay,
}

impl Lars {
    /// Creates the optimizer with this learning rate: a number or a [`Schedule`].
    pub fn new(learning_rate: impl Into<Schedule>) -> Self {
        Lars {
            learning_rate: learning_rate.into(),
            trust_coefficient: 0.001,
            momentum: 0.9,
            nesterov: false,
            weight_decay: 0.0,
            decay: Decay::default(),
        }
    }

    /// Sets the factor of the ratio of norms: 0.001 by default.
    pub fn trust_coefficient(mut self, coefficient: f64) -> Self {
        self.trust_coefficient = coefficient;
        self
    }

    /// Sets the momentum: 0.9 by default.
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }

    /// Enables Nesterov momentum.
    pub fn nesterov(mut self) -> Self {
        self.nesterov = true;
        self
    }
}

settings!(
    Lars,
    /// Adds `weight_decay * param` to the gradients of the parameters that [`decay`](Self::decay)
    /// selects.
);

impl Optimizer for Lars {
    type Slot = Momentum<()>;

    fn slot(&self, named: Named<'_>) -> Momentum<Param> {
        Momentum::of(named.param)
    }

    fn direction<'t>(
        &self,
        gradient: Gradient<'t, '_>,
        slot: Momentum<Tensor<'t>>,
    ) -> (Tensor<'t>, Momentum<Tensor<'t>>) {
        let of = gradient.decayed(self.weight_decay, &self.decay);
        let coefficient = of.number("trust_coefficient", self.trust_coefficient);
        let ratio = of.trust_ratio(of.grad, coefficient);
        let step = of.grad * (ratio * of.rate(&self.learning_rate));
        let factor = of.number("momentum", self.momentum);
        let momentum = slot.momentum * factor + step;
        let direction = if self.nesterov {
            step + momentum * factor
        } else {
            momentum
        };
        (direction, Momentum { momentum })
    }

    fn schedules(&self) -> Vec<(String, &Schedule)> {
        vec![("learning_rate".into(), &self.learning_rate)]
    }

    fn numbers(&self) -> Vec<(&'static str, f64, Range)> {
        vec![
            (
                "trust_coefficient",
                self.trust_coefficient,
                Range::NotNegative,
            ),
            ("momentum", self.momentum, Range::NotNegative),
            ("weight_decay", self.weight_decay, Range::NotNegative),
        ]
    }
}
