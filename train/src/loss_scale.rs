//! Scaling the loss, so that gradients of `f16` are neither 0 nor infinite. Nothing is read back:
//! the device decides.

use halite_core::{DType, LossScale, TensorType, Tree};
use halite_ir::Reduction;
use halite_nn::{Mean, Tensor, Trace};

/// The metric that shows the factor in the table of a run.
pub(crate) const LOSS_SCALE: &str = "loss_scale";

/// The factor never grows beyond this: scaled losses stay finite in `f32`.
const MOST: f64 = (1u64 << 32) as f64;

/// The factor on the loss, as part of a run's state.
#[derive(Clone, Debug, Tree)]
pub struct Scaling<L> {
    /// What the loss is multiplied by: an `f32` scalar, a power of two.
    pub factor: L,
    /// Steps since it changed, all with finite gradients: a `u32` scalar.
    pub good_steps: L,
}

impl<L> Scaling<L> {
    /// The types of both.
    pub(crate) fn types() -> Scaling<TensorType> {
        Scaling {
            factor: TensorType::scalar(DType::F32),
            good_steps: TensorType::scalar(DType::U32),
        }
    }
}

impl<'t> Scaling<Tensor<'t>> {
    /// Before the first step.
    pub(crate) fn first(cx: &'t Trace, rule: LossScale) -> Self {
        let factor = cx.scalar(f64::from(rule.first).exp2(), DType::F32);
        Scaling {
            factor,
            good_steps: cx.scalar(0.0, DType::U32),
        }
    }

    /// The loss to take gradients of.
    pub(crate) fn scale(&self, loss: Tensor<'t>) -> Tensor<'t> {
        loss * self.factor.convert(loss.dtype())
    }

    /// A gradient of the scaled loss as one of the loss.
    pub(crate) fn unscale(&self, gradient: Tensor<'t>) -> Tensor<'t> {
        gradient / self.factor.convert(gradient.dtype())
    }

    /// Whether a step with these gradients may change anything. When the factor is down to 1 it
    /// may, whatever they are: they are not infinite because of it, and a model that has diverged
    /// is to be told of.
    pub(crate) fn accepts(&self, finite: Tensor<'t>) -> Tensor<'t> {
        finite.or(self.factor.le(1.0))
    }

    /// After a step.
    pub(crate) fn next(&self, finite: Tensor<'t>, rule: LossScale) -> Self {
        let good_steps = self.good_steps + 1;
        let grows = good_steps.ge(f64::from(rule.growth_interval));
        let larger = grows.select((self.factor * 2.0).minimum(MOST), self.factor);
        let smaller = (self.factor * 0.5).maximum(1.0);
        let zero = good_steps.zeros_like();
        Scaling {
            factor: finite.select(larger, smaller),
            good_steps: finite.and(!grows).select(good_steps, zero),
        }
    }

    /// The factor as a metric.
    pub(crate) fn metric(&self) -> Mean<'t> {
        Mean::of(self.factor)
    }
}

/// Whether all elements of all of these are finite: a `bool` scalar.
pub(crate) fn all_finite<'t>(cx: &'t Trace, tensors: &[Tensor<'t>]) -> Tensor<'t> {
    let of_one = |tensor: &Tensor<'t>| {
        tensor
            .is_finite()
            .reduce(Reduction::And, (0..tensor.rank()).collect::<Vec<_>>())
    };
    let all = tensors.iter().map(of_one).reduce(|all, one| all.and(one));
    all.unwrap_or_else(|| cx.scalar(1.0, DType::F32).is_finite())
}
