use std::fmt;

use halite_core::Tree;

use super::{Decay, Gradient, Named, Optimizer, Range, zeros};
use crate::{Param, Schedule, Tensor};

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
#[derive(Clone)]
pub struct Adam(Rule);

/// Adam with decoupled weight decay (Loshchilov and Hutter 2017), like `torch.optim.AdamW`:
/// [`Adam`]'s update with `g = grad`, and `param -= rate * weight_decay * param`.
///
/// By default `weight_decay = 0.01`, for every parameter, biases included; the rest like [`Adam`].
/// `.decay(Decay::Matrices)` exempts biases and normalization scales.
#[derive(Clone)]
pub struct AdamW(Rule);

/// LAMB (You et al. 2019), like `optax.lamb`: the step of [`AdamW`] for a rate of 1, scaled in each
/// layer by the norm of the parameters over that of the step, or not where one of them is 0.
///
/// ```text
/// u = m / (1 - b1^t) / (sqrt(v) / sqrt(1 - b2^t) + eps) + weight_decay * param
/// param -= rate * |param| / |u| * u
/// ```
///
/// By default `b1 = 0.9`, `b2 = 0.999`, `eps = 1e-6`, and no weight decay.
#[derive(Clone)]
pub struct Lamb(Rule);

#[derive(Clone)]
struct Rule {
    learning_rate: Schedule,
    b1: f64,
    b2: f64,
    eps: f64,
    weight_decay: f64,
    decay: Decay,
}

/// Optimizer state of [`Adam`], [`AdamW`] and [`Lamb`] for a parameter.
#[derive(Clone, Debug, Tree)]
pub struct Moments<L> {
    /// Exponential moving average of the gradients.
    pub first: L,
    /// Exponential moving average of their squares.
    pub second: L,
}

macro_rules! adam {
    ($Adam:ident, $eps:expr, $weight_decay:expr, $direction:ident, $elementwise:expr, $(#[$doc:meta])*) => {
        impl $Adam {
            /// Creates the optimizer with this learning rate: a number or a [`Schedule`].
            pub fn new(learning_rate: impl Into<Schedule>) -> Self {
                $Adam(Rule {
                    learning_rate: learning_rate.into(),
                    b1: 0.9,
                    b2: 0.999,
                    eps: $eps,
                    weight_decay: $weight_decay,
                    decay: Decay::default(),
                })
            }

            /// Sets the learning rate: a number or a [`Schedule`].
            pub fn learning_rate(mut self, learning_rate: impl Into<Schedule>) -> Self {
                self.0.learning_rate = learning_rate.into();
                self
            }

            /// Sets the decay rates of the moving averages: 0.9 and 0.999 by default.
            pub fn betas(mut self, b1: f64, b2: f64) -> Self {
                (self.0.b1, self.0.b2) = (b1, b2);
                self
            }

            /// Sets the constant that is added to the root of the second moment.
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

        impl Optimizer for $Adam {
            type Slot = Moments<()>;

            fn slot(&self, named: Named<'_>) -> Moments<Param> {
                Moments {
                    first: zeros(named.param),
                    second: zeros(named.param),
                }
            }

            fn direction<'t>(
                &self,
                gradient: Gradient<'t, '_>,
                slot: Moments<Tensor<'t>>,
            ) -> (Tensor<'t>, Moments<Tensor<'t>>) {
                self.0.$direction(gradient, slot)
            }

            fn is_elementwise(&self, _: Named<'_>) -> bool {
                $elementwise
            }

            fn schedules(&self) -> Vec<(String, &Schedule)> {
                vec![("learning_rate".into(), &self.0.learning_rate)]
            }

            fn numbers(&self) -> Vec<(&'static str, f64, Range)> {
                vec![
                    ("b1", self.0.b1, Range::Decay),
                    ("b2", self.0.b2, Range::Decay),
                    ("eps", self.0.eps, Range::NotNegative),
                    ("weight_decay", self.0.weight_decay, Range::NotNegative),
                ]
            }
        }

        impl fmt::Debug for $Adam {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(stringify!($Adam), f)
            }
        }
    };
}
adam!(Adam, 1e-8, 0.0, adam, true, /** Adds `weight_decay * param` to the gradients of the parameters that [`decay`](Self::decay) selects. */);
adam!(AdamW, 1e-8, 0.01, adamw, true, /** Shrinks the parameters that [`decay`](Self::decay) selects by `rate * weight_decay` at each update. */);
// LAMB has norms of layers.
adam!(Lamb, 1e-6, 0.0, lamb, false, /** Adds `weight_decay * param` to the step of the parameters that [`decay`](Self::decay) selects. */);

/// Step of a parameter, and its next slot.
type Updated<'t> = (Tensor<'t>, Moments<Tensor<'t>>);

impl Rule {
    fn adam<'t>(&self, of: Gradient<'t, '_>, slot: Moments<Tensor<'t>>) -> Updated<'t> {
        let rate = of.rate(&self.learning_rate);
        self.scaled(of.decayed(self.weight_decay, &self.decay), rate, slot)
    }

    fn adamw<'t>(&self, of: Gradient<'t, '_>, slot: Moments<Tensor<'t>>) -> Updated<'t> {
        let rate = of.rate(&self.learning_rate);
        let (direction, slot) = self.scaled(of, rate, slot);
        let direction = of.decoupled(direction, rate, (self.weight_decay, &self.decay));
        (direction, slot)
    }

    fn lamb<'t>(&self, of: Gradient<'t, '_>, slot: Moments<Tensor<'t>>) -> Updated<'t> {
        let rate = of.rate(&self.learning_rate);
        let one = of.cx().scalar(1.0, rate.dtype());
        let (direction, slot) = self.scaled(of, one, slot);
        let direction = of.decoupled(direction, one, (self.weight_decay, &self.decay));
        let ratio = of.trust_ratio(direction, one);
        (direction * (ratio * rate), slot)
    }

    /// Adam's step for this rate.
    fn scaled<'t>(
        &self,
        of: Gradient<'t, '_>,
        rate: Tensor<'t>,
        slot: Moments<Tensor<'t>>,
    ) -> Updated<'t> {
        let first =
            slot.first * of.number("b1", self.b1) + of.grad * of.number("1 - b1", 1.0 - self.b1);
        let second = slot.second * of.number("b2", self.b2)
            + of.grad.square() * of.number("1 - b2", 1.0 - self.b2);
        // The corrections are scalars, the same for every parameter: the compiler computes them
        // once a step.
        let scale = rate / correction(of, "log b1", self.b1);
        let unbias = correction(of, "log b2", self.b2).rsqrt();
        let root = second.sqrt() * unbias + of.number("eps", self.eps);
        (first * scale / root, Moments { first, second })
    }

    fn fmt(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("learning_rate", &self.learning_rate)
            .field("b1", &self.b1)
            .field("b2", &self.b2)
            .field("eps", &self.eps)
            .field("weight_decay", &self.weight_decay)
            .field("decay", &self.decay)
            .finish()
    }
}

/// `1 - beta^t`, without the cancellation that loses it for a `beta` near 1 in `f32`. `name` is that
/// of the logarithm.
fn correction<'t>(of: Gradient<'t, '_>, name: &str, beta: f64) -> Tensor<'t> {
    match beta {
        0.0 => of.cx().scalar(1.0, of.grad.dtype()),
        beta => -(of.count() * of.number(name, beta.ln())).exp_m1(),
    }
}
