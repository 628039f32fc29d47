use halite_core::{DType, Tree};

use super::{
    Decay, Gradient, Named, Optimizer,
    settings::{Range, settings},
    zeros,
};
use crate::{Param, Schedule, Tensor};

/// Adafactor (Shazeer and Stern 2018), like `torch.optim.Adafactor`: of the squares of the gradients
/// it keeps the means of rows and of columns. For update `t`, counted from 1:
///
/// ```text
/// w = t^beta2_decay
/// r = (1 - w) * r + w * mean(grad², last)            for two dimensions or more
/// c = (1 - w) * c + w * mean(grad², last but one)
/// v = r c / max(mean(r, last), eps1)
/// v = (1 - w) * v + w * grad²                        otherwise
/// u = grad / sqrt(max(v, eps1²))
/// rho = min(rate, 1 / sqrt(t)) * max(eps2, rms(param))
/// param -= rho / max(1, rms(u) / d) * u + rate * weight_decay * param
/// ```
///
/// By default `beta2_decay = -0.8`, `eps1` is the spacing of numbers at 1 in the type of the
/// parameter, `eps2 = 1e-3`, `d = 1`, and there is no weight decay. Means and norms are those of one
/// layer. Rows and columns are the last two dimensions, as in PyTorch, whose kernels have them first.
#[derive(Clone, Debug)]
pub struct Adafactor {
    learning_rate: Schedule,
    beta2_decay: f64,
    eps1: Option<f64>,
    eps2: f64,
    d: f64,
    weight_decay: f64,
    decay: Decay,
}

/// Optimizer state of [`Adafactor`] for a parameter: of its squares, either the means of rows and
/// columns or all.
#[derive(Clone, Debug, Tree)]
pub struct Factored<L> {
    /// Moving average of the squares' mean over the last dimension.
    pub rows: Option<L>,
    /// Moving average of their mean over the last dimension but one.
    pub columns: Option<L>,
    /// Moving average of the squares, of a parameter with less than two dimensions.
    pub square: Option<L>,
}

impl Adafactor {
    /// Creates the optimizer with this learning rate, 0.01 in PyTorch: a number or a [`Schedule`].
    pub fn new(learning_rate: impl Into<Schedule>) -> Self {
        Adafactor {
            learning_rate: learning_rate.into(),
            beta2_decay: -0.8,
            eps1: None,
            eps2: 1e-3,
            d: 1.0,
            weight_decay: 0.0,
            decay: Decay::default(),
        }
    }

    /// Sets the exponent of the moving average's weight: -0.8 by default.
    pub fn beta2_decay(mut self, beta2_decay: f64) -> Self {
        self.beta2_decay = beta2_decay;
        self
    }

    /// Sets the lower bounds of the root mean square of gradients and of parameters.
    pub fn eps(mut self, eps1: f64, eps2: f64) -> Self {
        (self.eps1, self.eps2) = (Some(eps1), eps2);
        self
    }

    /// Sets the root mean square beyond which a step is scaled down: 1 by default.
    pub fn clipping_threshold(mut self, d: f64) -> Self {
        self.d = d;
        self
    }
}

settings!(
    Adafactor,
    /// Shrinks the parameters that [`decay`](Self::decay) selects by `rate * weight_decay` at each
    /// update.
);

impl Optimizer for Adafactor {
    type Slot = Factored<()>;

    fn slot(&self, named: Named<'_>) -> Factored<Param> {
        let whole = zeros(named.param);
        let rank = whole.ty.rank();
        if named.param.layer_type().rank() < 2 {
            return Factored {
                rows: None,
                columns: None,
                square: Some(whole),
            };
        }
        let without = |dim: usize| {
            let mut dims = whole.ty.dims().to_vec();
            dims.remove(dim);
            Param {
                ty: whole.ty.with_dims(dims),
                ..whole.clone()
            }
        };
        Factored {
            rows: Some(without(rank - 1)),
            columns: Some(without(rank - 2)),
            square: None,
        }
    }

    fn direction<'t>(
        &self,
        of: Gradient<'t, '_>,
        slot: Factored<Tensor<'t>>,
    ) -> (Tensor<'t>, Factored<Tensor<'t>>) {
        let rate = of.rate(&self.learning_rate);
        let eps1 = self.eps1.unwrap_or(match of.named.param.ty.dtype() {
            DType::F64 => f64::EPSILON,
            DType::F16 => 2f64.powi(-10),
            DType::Bf16 => 2f64.powi(-7),
            _ => f64::from(f32::EPSILON),
        });
        let (variance, slot) = self.variance(of, slot, of.number("eps1", eps1));
        let smallest = of.number("eps1²", eps1 * eps1);
        let step = variance.maximum(smallest).rsqrt() * of.grad;
        let too_large = (of.layer_rms(step) / of.number("d", self.d)).maximum(1.0);
        let rho = rate.minimum(of.count().rsqrt());
        let scale = of.layer_rms(of.param).maximum(of.number("eps2", self.eps2)) * rho / too_large;
        let direction = of.decoupled(step * scale, rate, (self.weight_decay, &self.decay));
        (direction, slot)
    }

    fn schedules(&self) -> Vec<(String, &Schedule)> {
        vec![("learning_rate".into(), &self.learning_rate)]
    }

    fn numbers(&self) -> Vec<(&'static str, f64, Range)> {
        let eps1 = self.eps1.unwrap_or_default();
        vec![
            ("eps1", eps1, Range::NotNegative),
            ("beta2_decay", self.beta2_decay, Range::NotPositive),
            ("eps2", self.eps2, Range::NotNegative),
            ("clipping_threshold", self.d, Range::AtLeastOne),
            ("weight_decay", self.weight_decay, Range::NotNegative),
        ]
    }
}

impl Adafactor {
    /// Estimate of the mean squares of the gradients, and the slot with this one.
    fn variance<'t>(
        &self,
        of: Gradient<'t, '_>,
        slot: Factored<Tensor<'t>>,
        eps1: Tensor<'t>,
    ) -> (Tensor<'t>, Factored<Tensor<'t>>) {
        let weight = of.count().pow(of.number("beta2_decay", self.beta2_decay));
        let average = |average: Tensor<'t>, value: Tensor<'t>| average + (value - average) * weight;
        let square = of.grad.square();
        let rank = square.rank();
        let (Some(rows), Some(columns)) = (slot.rows, slot.columns) else {
            let square = slot.square.map(|before| average(before, square));
            let estimate = square.unwrap_or_else(|| of.grad.square());
            return (estimate, Factored { square, ..slot });
        };
        let rows = average(rows, square.mean([rank - 1]));
        let columns = average(columns, square.mean([rank - 2]));
        let mean = rows.mean_keep([rank - 2]).maximum(eps1);
        let estimate = (rows / mean).unsqueeze(rank - 1) * columns.unsqueeze(rank - 2);
        let slot = Factored {
            rows: Some(rows),
            columns: Some(columns),
            ..slot
        };
        (estimate, slot)
    }
}
