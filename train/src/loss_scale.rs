//! Dynamic loss scaling: keeps `f16` gradients from underflow and overflow. The device adapts the
//! scale; nothing is read back.

use halite_core::{DType, LossScale, TensorType, Tree};
use halite_ir::Reduction;
use halite_nn::{Mean, Tensor, Trace};

/// Name of the metric that reports the scale.
pub(crate) const LOSS_SCALE: &str = "loss_scale";

/// Largest scale: scaled losses stay finite in `f32`.
const MOST: f64 = (1u64 << 32) as f64;

/// Loss scale, as part of the training state.
#[derive(Clone, Debug, Tree)]
pub struct Scaling<L> {
    /// Factor of the loss: an `f32` scalar, a power of two.
    pub factor: L,
    /// Steps since it changed, all with finite gradients: a `u32` scalar.
    pub good_steps: L,
    /// Steps that changed nothing but the scale: a `u32` scalar.
    pub skipped: L,
    /// How the factor changes.
    pub rule: LossScale,
}

impl Scaling<TensorType> {
    /// The types of all.
    pub(crate) fn types(rule: LossScale) -> Self {
        Scaling {
            factor: TensorType::scalar(DType::F32),
            good_steps: TensorType::scalar(DType::U32),
            skipped: TensorType::scalar(DType::U32),
            rule,
        }
    }
}

impl<'t> Scaling<Tensor<'t>> {
    /// The scale before the first step.
    pub(crate) fn first(cx: &'t Trace, rule: LossScale) -> Self {
        let factor = cx.scalar(f64::from(rule.first).exp2(), DType::F32);
        Scaling {
            factor,
            good_steps: cx.scalar(0.0, DType::U32),
            skipped: cx.scalar(0.0, DType::U32),
            rule,
        }
    }

    /// Scales the loss.
    pub(crate) fn scale(&self, loss: Tensor<'t>) -> Tensor<'t> {
        loss.trace().scales_loss();
        loss * self.factor.convert(loss.dtype())
    }

    /// Divides a gradient of the scaled loss by the scale.
    pub(crate) fn unscale(&self, gradient: Tensor<'t>) -> Tensor<'t> {
        gradient / self.factor.convert(gradient.dtype())
    }

    /// Returns true if the step may update the state. At a scale of 1 it may even with gradients
    /// that are not finite: the scale is not the cause then, and the divergence must be reported.
    pub(crate) fn accepts(&self, finite: Tensor<'t>) -> Tensor<'t> {
        finite.or(self.factor.le(1.0))
    }

    /// The scale after a step; `is_done` if the step updated the state.
    pub(crate) fn next(&self, finite: Tensor<'t>, is_done: Tensor<'t>) -> Self {
        let good_steps = self.good_steps + 1;
        let grows = good_steps.ge(f64::from(self.rule.growth_interval));
        let larger = grows.select((self.factor * 2.0).minimum(MOST), self.factor);
        let smaller = (self.factor * 0.5).maximum(1.0);
        let zero = good_steps.zeros_like();
        Scaling {
            factor: finite.select(larger, smaller),
            good_steps: finite.and(!grows).select(good_steps, zero),
            skipped: is_done.select(self.skipped, self.skipped + 1),
            rule: self.rule,
        }
    }

    /// The scale as a metric.
    pub(crate) fn metric(&self) -> Mean<'t> {
        Mean::of(self.factor)
    }
}

/// Computes a `bool` scalar: true if all elements of all tensors are finite.
pub(crate) fn all_finite<'t>(cx: &'t Trace, tensors: &[Tensor<'t>]) -> Tensor<'t> {
    let of_one = |tensor: &Tensor<'t>| {
        tensor
            .is_finite()
            .reduce(Reduction::And, (0..tensor.rank()).collect::<Vec<_>>())
    };
    let all = tensors.iter().map(of_one).reduce(|all, one| all.and(one));
    all.unwrap_or_else(|| cx.scalar(1.0, DType::F32).is_finite())
}
