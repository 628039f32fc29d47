use halite_core::{Error, Result};

use super::{
    Decay, Gradient, Momentum, Named, Optimizer, check_numbers,
    settings::{Range, settings},
};
use crate::{Param, Schedule, Tensor};

/// Coefficients of the Newton-Schulz iteration, chosen for a large slope at 0.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.775, 2.0315];

/// Muon (Jordan et al. 2024), like `torch.optim.Muon`: the momentum of each matrix is
/// orthogonalized by five iterations of Newton and Schulz.
///
/// ```text
/// m = momentum * m + (1 - momentum) * grad
/// u = orthogonalized((1 - momentum) * grad + momentum * m)        m itself without nesterov
/// param -= rate * sqrt(max(1, columns / rows)) * u + rate * weight_decay * param
/// ```
///
/// By default `momentum = 0.95`, with Nesterov, `weight_decay = 0.1`. It updates matrices
/// `[rows, columns]` only, which are inputs by outputs of a layer; the other parameters need another
/// optimizer:
///
/// ```
/// use halite_nn::{AdamW, Muon, Optimizer};
///
/// let optimizer = AdamW::new(3e-4).partition("blocks.**.weight", Muon::new(0.02))?;
/// # let _ = optimizer;
/// # Ok::<(), halite_core::Error>(())
/// ```
///
/// It computes in `f32`, or in `f64` for a parameter in `f64`, where PyTorch rounds the iterations
/// to `bf16`.
#[derive(Clone, Debug)]
pub struct Muon {
    learning_rate: Schedule,
    momentum: f64,
    nesterov: bool,
    match_rms_adamw: bool,
    weight_decay: f64,
    decay: Decay,
}

impl Muon {
    /// Creates the optimizer with this learning rate: a number or a [`Schedule`].
    pub fn new(learning_rate: impl Into<Schedule>) -> Self {
        Muon {
            learning_rate: learning_rate.into(),
            momentum: 0.95,
            nesterov: true,
            match_rms_adamw: false,
            weight_decay: 0.1,
            decay: Decay::default(),
        }
    }

    /// Sets the momentum: 0.95 by default.
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }

    /// Enables or disables Nesterov momentum.
    pub fn nesterov(mut self, nesterov: bool) -> Self {
        self.nesterov = nesterov;
        self
    }

    /// Scales steps by `0.2 * sqrt(max(rows, columns))`, so that learning rates and weight decays of
    /// AdamW serve (Liu et al. 2025).
    pub fn match_rms_adamw(mut self) -> Self {
        self.match_rms_adamw = true;
        self
    }
}

settings!(
    Muon,
    /// Shrinks the parameters that [`decay`](Self::decay) selects by `rate * weight_decay` at each
    /// update.
);

impl Optimizer for Muon {
    type Slot = Momentum<()>;

    fn slot(&self, named: Named<'_>) -> Momentum<Param> {
        Momentum::of(named.param)
    }

    fn direction<'t>(
        &self,
        of: Gradient<'t, '_>,
        slot: Momentum<Tensor<'t>>,
    ) -> (Tensor<'t>, Momentum<Tensor<'t>>) {
        let [rows, columns] = of.layer().dims()[..] else {
            // A mistake of `check`.
            return (of.grad, slot);
        };
        let (keep, rest) = (
            of.number("momentum", self.momentum),
            of.number("1 - momentum", 1.0 - self.momentum),
        );
        let momentum = slot.momentum * keep + of.grad * rest;
        let mixed = if self.nesterov {
            of.grad * rest + momentum * keep
        } else {
            momentum
        };
        let rate = of.rate(&self.learning_rate);
        let scale = if self.match_rms_adamw {
            0.2 * (rows.max(columns) as f64).sqrt()
        } else {
            (columns as f64 / rows as f64).max(1.0).sqrt()
        };
        let direction = orthogonalized(of, mixed) * (rate * scale);
        let direction = of.decoupled(direction, rate, (self.weight_decay, &self.decay));
        (direction, Momentum { momentum })
    }

    fn schedules(&self) -> Vec<(String, &Schedule)> {
        vec![("learning_rate".into(), &self.learning_rate)]
    }

    fn numbers(&self) -> Vec<(&'static str, f64, Range)> {
        vec![
            ("momentum", self.momentum, Range::Decay),
            ("weight_decay", self.weight_decay, Range::NotNegative),
        ]
    }

    fn check(&self, params: &[Named<'_>]) -> Result<()> {
        check_numbers(self)?;
        let other = params.iter().find(|named| {
            let dims = named.param.layer_type();
            dims.rank() != 2 || dims.dims().contains(&0)
        });
        let Some(Named { path, param }) = other else {
            return Ok(());
        };
        let message = format!(
            "Muon updates matrices, and `{path}` is {}; give it another optimizer, as in \
             `AdamW::new(3e-4).partition(\"**.weight\", Muon::new(0.02))?`",
            param.layer_type()
        );
        Err(Error::invalid("optimizer", message))
    }
}

/// The orthogonal matrix near each matrix of `x`, approximately: singular values from about 0.7 to
/// 1.2.
fn orthogonalized<'t>(of: Gradient<'t, '_>, x: Tensor<'t>) -> Tensor<'t> {
    let [a, b, c] = COEFFICIENTS;
    let dims = of.layer();
    let (rows, columns) = (dims.dims()[0], dims.dims()[1]);
    let (first, second) = (x.rank() - 2, x.rank() - 1);
    let turned = |x: Tensor<'t>| x.swap_dims(first, second);
    // The smaller of the two products.
    let is_tall = rows > columns;
    let [root, scale] = of.scaled_norm(x);
    let to_scale = 1.0 / scale;
    let mut x = x * to_scale / root.maximum(to_scale * 1e-7);
    if is_tall {
        x = turned(x);
    }
    for _ in 0..5 {
        let gram = x.matmul(turned(x));
        x = x * a + (gram * b + gram.matmul(gram) * c).matmul(x);
    }
    if is_tall { turned(x) } else { x }
}
