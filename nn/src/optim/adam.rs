use halite_core::Tree;

use super::{Decay, Named, Optimizer, zeros};
use crate::{Param, Schedule, Tensor, Trace, special::wide};

/// Adam (Kingma and Ba 2014), like `torch.optim.Adam`. For update `t`, counted from 1:
///
/// ```text
/// g = grad + weight_decay * param
/// m = b1 * m + (1 - b1) * g
/// v = b2 * v + (1 - b2) * g²
/// param -= rate / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
/// ```
///
/// By default `b1 = 0.9`, `b2 = 0.999`, `eps = 1e-8`, and no weight decay.
///
/// In `f32` the square of a gradient from about 1.8e19 on is infinite, and its parameter does not
/// change any more, as in PyTorch. [Clipping](super::clip_global_norm) prevents it, and the trainer
/// refuses to save a slot that is infinite.
#[derive(Clone, Debug)]
pub struct Adam(Rule);

/// Adam with decoupled weight decay (Loshchilov and Hutter 2017), like `torch.optim.AdamW`: first
/// `param -= rate * weight_decay * param`, then [`Adam`]'s update with `g = grad`.
///
/// By default `weight_decay = 0.01`, for every parameter, biases included; the rest like [`Adam`].
/// `.decay(Decay::Matrices)` exempts biases and normalization scales.
#[derive(Clone, Debug)]
pub struct AdamW(Rule);

#[derive(Clone, Debug)]
struct Rule {
    rate: Schedule,
    b1: f64,
    b2: f64,
    eps: f64,
    weight_decay: f64,
    decay: Decay,
}

/// Optimizer state of [`Adam`] for a parameter.
#[derive(Clone, Debug, Tree)]
pub struct Moments<L> {
    /// Exponential moving average of the gradients.
    pub first: L,
    /// Exponential moving average of their squares.
    pub second: L,
}

macro_rules! builders {
    ($Adam:ident, $weight_decay:expr, $(#[$doc:meta])*) => {
        impl $Adam {
            /// Creates the optimizer with this learning rate: a number or a [`Schedule`].
            pub fn new(rate: impl Into<Schedule>) -> Self {
                let (rate, weight_decay, decay) = (rate.into(), $weight_decay, Decay::default());
                $Adam(Rule { rate, b1: 0.9, b2: 0.999, eps: 1e-8, weight_decay, decay })
            }

            /// Sets the decay rates of the moving averages: 0.9 and 0.999 by default.
            pub fn betas(mut self, b1: f64, b2: f64) -> Self {
                (self.0.b1, self.0.b2) = (b1, b2);
                self
            }

            /// Sets the constant that is added to the root of the second moment: 1e-8 by default.
            pub fn eps(mut self, eps: f64) -> Self {
                self.0.eps = eps;
                self
            }

            $(#[$doc])*
            pub fn weight_decay(mut self, weight_decay: f64) -> Self {
                self.0.weight_decay = weight_decay;
                self
            }

            /// Selects the parameters that decay; by default all.
            pub fn decay(mut self, decay: Decay) -> Self {
                self.0.decay = decay;
                self
            }
        }
    };
}
builders!(Adam, 0.0, /** Adds `weight_decay * param` to the gradients of the parameters that [`decay`](Self::decay) selects. */);
builders!(AdamW, 0.01, /** Shrinks the parameters that [`decay`](Self::decay) selects by `rate * weight_decay` at each update. */);

macro_rules! optimizer {
    ($Adam:ident, $decayed:ident) => {
        impl Optimizer for $Adam {
            type Slot = Moments<()>;

            fn slot(&self, param: &Param) -> Moments<Param> {
                Moments {
                    first: zeros(param),
                    second: zeros(param),
                }
            }

            fn update<'t>(
                &self,
                cx: &'t Trace,
                step: Tensor<'t>,
                param: Tensor<'t>,
                grad: Tensor<'t>,
                slot: Moments<Tensor<'t>>,
                named: Named<'_>,
            ) -> (Tensor<'t>, Moments<Tensor<'t>>) {
                let (ty, rate) = (param.ty(), self.0.rate.at(step));
                let wide = wide(ty.dtype());
                let (mut value, mut grad) = (param.convert(wide), grad.convert(wide));
                if self.0.decays(named) {
                    (value, grad) = self.0.$decayed(cx, rate, value, grad);
                }
                let (value, slot) = self.0.apply(cx, [step, rate], value, grad, slot);
                (value.convert(ty.dtype()), slot)
            }
        }
    };
}
optimizer!(Adam, decay_in_gradient);
optimizer!(AdamW, decay_in_value);

impl Rule {
    fn decays(&self, named: Named<'_>) -> bool {
        self.weight_decay != 0.0 && self.decay.applies(named)
    }

    fn decay_in_gradient<'t>(
        &self,
        cx: &'t Trace,
        _rate: Tensor<'t>,
        value: Tensor<'t>,
        grad: Tensor<'t>,
    ) -> (Tensor<'t>, Tensor<'t>) {
        (
            value,
            grad + value * cx.hyperparameter("weight_decay", self.weight_decay, value.dtype()),
        )
    }

    fn decay_in_value<'t>(
        &self,
        cx: &'t Trace,
        rate: Tensor<'t>,
        value: Tensor<'t>,
        grad: Tensor<'t>,
    ) -> (Tensor<'t>, Tensor<'t>) {
        let weight_decay = cx.hyperparameter("weight_decay", self.weight_decay, rate.dtype());
        (
            value * (rate * -weight_decay + 1.0).convert(value.dtype()),
            grad,
        )
    }

    fn apply<'t>(
        &self,
        cx: &'t Trace,
        [step, rate]: [Tensor<'t>; 2],
        value: Tensor<'t>,
        grad: Tensor<'t>,
        slot: Moments<Tensor<'t>>,
    ) -> (Tensor<'t>, Moments<Tensor<'t>>) {
        let number = |name, value_of| cx.hyperparameter(name, value_of, value.dtype());
        let first = slot.first * number("b1", self.b1) + grad * number("1 - b1", 1.0 - self.b1);
        let second =
            slot.second * number("b2", self.b2) + grad.square() * number("1 - b2", 1.0 - self.b2);
        // The corrections are scalars, the same for every parameter: the compiler computes them
        // once a step.
        let scale = rate / correction(step, "log b1", self.b1);
        let unbias = correction(step, "log b2", self.b2).rsqrt();
        let root = second.sqrt() * unbias.convert(value.dtype()) + number("eps", self.eps);
        (
            value - first * scale.convert(value.dtype()) / root,
            Moments { first, second },
        )
    }
}

/// `1 - beta^(step + 1)`, without the cancellation that loses it for a `beta` near 1 in `f32`.
/// `name` is that of the logarithm. The result has the element type of `step`.
fn correction<'t>(step: Tensor<'t>, name: &str, beta: f64) -> Tensor<'t> {
    let cx = step.trace();
    match beta {
        0.0 => cx.scalar(1.0, step.dtype()),
        beta => -((step + 1.0) * cx.hyperparameter(name, beta.ln(), step.dtype())).exp_m1(),
    }
}
