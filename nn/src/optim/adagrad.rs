use halite_core::Tree;

use super::{
    Decay, Gradient, Named, Optimizer,
    settings::{Range, settings},
    zeros,
};
use crate::{Init, Param, Schedule, Tensor};

/// Adagrad (Duchi et al. 2011), like `torch.optim.Adagrad`:
///
/// ```text
/// g = grad + weight_decay * param
/// s = s + g²
/// param -= rate * g / (sqrt(s) + eps)
/// ```
///
/// By default `s` starts at 0, `eps = 1e-10`, and there is no weight decay. PyTorch's `lr_decay` is
/// a schedule.
#[derive(Clone, Debug)]
pub struct Adagrad {
    learning_rate: Schedule,
    initial: f64,
    eps: f64,
    weight_decay: f64,
    decay: Decay,
}

/// Optimizer state of [`Adagrad`] for a parameter.
#[derive(Clone, Debug, Tree)]
pub struct SquareSum<L> {
    /// Sum of the squares of all gradients.
    pub sum: L,
}

impl Adagrad {
    /// Creates the optimizer with this learning rate, 0.01 in PyTorch: a number or a [`Schedule`].
    pub fn new(learning_rate: impl Into<Schedule>) -> Self {
        Adagrad {
            learning_rate: learning_rate.into(),
            initial: 0.0,
            eps: 1e-10,
            weight_decay: 0.0,
            decay: Decay::default(),
        }
    }

    /// Sets the first value of the sum of squares: 0 by default.
    pub fn initial_accumulator(mut self, initial: f64) -> Self {
        self.initial = initial;
        self
    }

    /// Sets the constant that is added to the root: 1e-10 by default.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }
}

settings!(
    Adagrad,
    /// Adds `weight_decay * param` to the gradients of the parameters that [`decay`](Self::decay)
    /// selects.
);

impl Optimizer for Adagrad {
    type Slot = SquareSum<()>;

    fn slot(&self, named: Named<'_>) -> SquareSum<Param> {
        let sum = zeros(named.param);
        SquareSum {
            sum: match self.initial {
                0.0 => sum,
                initial => Param {
                    init: Init::Constant(initial),
                    ..sum
                },
            },
        }
    }

    fn direction<'t>(
        &self,
        gradient: Gradient<'t, '_>,
        slot: SquareSum<Tensor<'t>>,
    ) -> (Tensor<'t>, SquareSum<Tensor<'t>>) {
        let of = gradient.decayed(self.weight_decay, &self.decay);
        let sum = slot.sum + of.grad.square();
        let root = sum.sqrt() + of.number("eps", self.eps);
        let direction = of.grad * of.rate(&self.learning_rate) / root;
        (direction, SquareSum { sum })
    }

    fn is_elementwise(&self, _: Named<'_>) -> bool {
        true
    }

    fn schedules(&self) -> Vec<(String, &Schedule)> {
        vec![("learning_rate".into(), &self.learning_rate)]
    }

    fn numbers(&self) -> Vec<(&'static str, f64, Range)> {
        vec![
            ("initial_accumulator", self.initial, Range::NotNegative),
            ("eps", self.eps, Range::NotNegative),
            ("weight_decay", self.weight_decay, Range::NotNegative),
        ]
    }
}
