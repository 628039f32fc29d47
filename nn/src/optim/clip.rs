//! Limits on gradients. Nothing is read back: the limit is applied on the device.

use std::panic::Location;

use halite_core::{DType, TensorType, Tree, tree::Of};

use crate::{Tensor, Trace};

/// The gradients scaled down so that all of them together have at most the norm `max_norm`, and the norm before that, an
/// `f32` scalar. As `torch.nn.utils.clip_grad_norm_`: the factor is `min(1, max_norm / (norm + 1e-6))`.
///
/// A norm that is not finite makes the gradients so too; it is not hidden.
#[track_caller]
pub fn clip_global_norm<'t, G>(cx: &'t Trace, grads: G, max_norm: f64) -> (Of<G, Tensor<'t>>, Tensor<'t>)
where
    G: Tree<Leaf = Tensor<'t>>,
{
    let _site = cx.called_from(Location::caller());
    let norm = global_norm(cx, &grads);
    let max_norm = cx.hyperparameter("max_norm", max_norm, DType::F32);
    let factor = (max_norm / (norm + 1e-6)).minimum(1.0);
    (grads.map(|_, grad| grad * factor.convert(grad.dtype())), norm)
}

/// The root of the sum of the squares of all elements, an `f32` scalar. Sums are in `f32`.
#[track_caller]
pub fn global_norm<'t, G: Tree<Leaf = Tensor<'t>>>(cx: &'t Trace, grads: &G) -> Tensor<'t> {
    let _site = cx.called_from(Location::caller());
    let squares = grads.leaves().into_iter().map(|grad| grad.convert(DType::F32).square().sum_all());
    squares.reduce(|sum, square| sum + square).unwrap_or_else(|| cx.full(0.0, &TensorType::scalar(DType::F32))).sqrt()
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
