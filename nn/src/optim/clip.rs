//! Limits on gradients. Nothing is read back: the limit is applied on the device.

use std::panic::Location;

use halite_core::{DType, TensorType, Tree, tree::Of};

use crate::{Tensor, Trace};

/// The gradients scaled down so that all of them together have at most the norm `max_norm`, and the
/// norm before that, as [`global_norm`] gives it. As `torch.nn.utils.clip_grad_norm_`: the factor is `min(1, max_norm / (norm + 1e-6))`.
///
/// A norm that is not finite makes the gradients so too; it is not hidden.
#[track_caller]
pub fn clip_global_norm<'t, G>(cx: &'t Trace, grads: G, max_norm: f64) -> (Of<G, Tensor<'t>>, Tensor<'t>)
where
    G: Tree<Leaf = Tensor<'t>>,
{
    let _site = cx.called_from(Location::caller());
    let norm = global_norm(cx, &grads);
    let max_norm = cx.hyperparameter("max_norm", max_norm, norm.dtype());
    let factor = (max_norm / (norm + 1e-6)).minimum(1.0);
    (grads.map(|_, grad| grad * factor.convert(grad.dtype())), norm)
}

/// Square root of the sum of the squares of all elements: a scalar of `f64` if a gradient is `f64`,
/// otherwise of `f32`. Sums are in that type.
#[track_caller]
pub fn global_norm<'t, G: Tree<Leaf = Tensor<'t>>>(cx: &'t Trace, grads: &G) -> Tensor<'t> {
    let _site = cx.called_from(Location::caller());
    let grads = grads.leaves();
    let dtype = if grads.iter().any(|grad| grad.dtype() == DType::F64) { DType::F64 } else { DType::F32 };
    let squares = grads.into_iter().map(|grad| grad.convert(dtype).square().sum_all());
    squares.reduce(|sum, square| sum + square).unwrap_or_else(|| cx.full(0.0, &TensorType::scalar(dtype))).sqrt()
}

/// The gradients with every element in `[-max, max]`.
#[track_caller]
pub fn clip_value<'t, G: Tree<Leaf = Tensor<'t>>>(cx: &'t Trace, grads: G, max: f64) -> Of<G, Tensor<'t>> {
    let _site = cx.called_from(Location::caller());
    grads.map(|_, grad| {
        if !grad.dtype().is_float() {
            return grad;
        }
        let max = cx.hyperparameter("clip_value", max, grad.dtype());
        grad.clamp(-max, max)
    })
}
