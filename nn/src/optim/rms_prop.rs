use halite_core::Tree;

use super::{
    Decay, Gradient, Named, Optimizer,
    settings::{Range, settings},
    zeros,
};
use crate::{Param, Schedule, Tensor};

/// RMSprop (Hinton 2012), like `torch.optim.RMSprop`:
///
/// ```text
/// g = grad + weight_decay * param
/// v = alpha * v + (1 - alpha) * g²
/// a = alpha * a + (1 - alpha) * g            if centered, else 0
/// u = g / (sqrt(v - a²) + eps)
/// b = momentum * b + u                       with momentum, else b = u
/// param -= rate * b
/// ```
///
/// By default `alpha = 0.99`, `eps = 1e-8`, not centered, without momentum and weight decay.
#[derive(Clone, Debug)]
pub struct RmsProp {
    learning_rate: Schedule,
    alpha: f64,
    eps: f64,
    momentum: f64,
    centered: bool,
    weight_decay: f64,
    decay: Decay,
}

/// Optimizer state of [`RmsProp`] for a parameter.
#[derive(Clone, Debug, Tree)]
pub struct MeanSquare<L> {
    /// Exponential moving average of the squares of the gradients.
    pub square: L,
    /// That of the gradients, if centered.
    pub mean: Option<L>,
    /// With momentum, the exponentially decaying sum of the steps.
    pub momentum: Option<L>,
}

impl RmsProp {
    /// Creates the optimizer with this learning rate, 0.01 in PyTorch: a number or a [`Schedule`].
    pub fn new(learning_rate: impl Into<Schedule>) -> Self {
        RmsProp {
            learning_rate: learning_rate.into(),
            alpha: 0.99,
            eps: 1e-8,
            momentum: 0.0,
            centered: false,
            weight_decay: 0.0,
            decay: Decay::default(),
        }
    }

    /// Sets the decay rate of the moving averages: 0.99 by default.
    pub fn alpha(mut self, alpha: f64) -> Self {
        self.alpha = alpha;
        self
    }

    /// Sets the constant that is added to the root: 1e-8 by default.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// Sets the momentum; 0 by default.
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }

    /// Divides by an estimate of the standard deviation in place of the root mean square.
    pub fn centered(mut self) -> Self {
        self.centered = true;
        self
    }
}

settings!(
    RmsProp,
    /// Adds `weight_decay * param` to the gradients of the parameters that [`decay`](Self::decay)
    /// selects.
);

impl Optimizer for RmsProp {
    type Slot = MeanSquare<()>;

    fn slot(&self, named: Named<'_>) -> MeanSquare<Param> {
        MeanSquare {
            square: zeros(named.param),
            mean: self.centered.then(|| zeros(named.param)),
            momentum: (self.momentum != 0.0).then(|| zeros(named.param)),
        }
    }

    fn direction<'t>(
        &self,
        gradient: Gradient<'t, '_>,
        slot: MeanSquare<Tensor<'t>>,
    ) -> (Tensor<'t>, MeanSquare<Tensor<'t>>) {
        let of = gradient.decayed(self.weight_decay, &self.decay);
        let average = |average: Tensor<'t>, value: Tensor<'t>| {
            average * of.number("alpha", self.alpha)
                + value * of.number("1 - alpha", 1.0 - self.alpha)
        };
        let square = average(slot.square, of.grad.square());
        let mean = slot.mean.map(|mean| average(mean, of.grad));
        // Rounding makes the difference negative where all gradients are equal. Where the square is
        // beyond its type, so is that of the mean.
        let variance = mean.map_or(square, |mean| {
            let variance = (square - mean.square()).maximum(0.0);
            square.is_finite().select(variance, square)
        });
        let step = of.grad / (variance.sqrt() + of.number("eps", self.eps));
        let momentum =
            (slot.momentum).map(|momentum| momentum * of.number("momentum", self.momentum) + step);
        let direction = momentum.unwrap_or(step) * of.rate(&self.learning_rate);
        let slot = MeanSquare {
            square,
            mean,
            momentum,
        };
        (direction, slot)
    }

    fn is_elementwise(&self, _: Named<'_>) -> bool {
        true
    }

    fn schedules(&self) -> Vec<(String, &Schedule)> {
        vec![("learning_rate".into(), &self.learning_rate)]
    }

    fn numbers(&self) -> Vec<(&'static str, f64, Range)> {
        vec![
            ("alpha", self.alpha, Range::Decay),
            ("eps", self.eps, Range::NotNegative),
            ("momentum", self.momentum, Range::NotNegative),
            ("weight_decay", self.weight_decay, Range::NotNegative),
        ]
    }
}
