//! Gradient clipping, on the device: nothing is read back.

use std::panic::Location;

use halite_core::{DType, TensorType, Tree, tree::Of};

use crate::{Param, Tensor, Trace};

/// Scales the gradients down to a global norm of at most `max_norm`; returns them with the norm
/// before clipping ([`global_norm`]). As in `torch.nn.utils.clip_grad_norm_`, the factor is
/// `min(1, max_norm / (norm + 1e-6))`.
///
/// Only gradients of trained parameters count and are scaled. Those of leaves that `model` describes
/// as frozen or as state are returned unchanged.
///
/// A norm that is not finite makes all gradients not finite.
///
/// # Panics
/// If `grads` is not a tree of the structure of `model`.
#[track_caller]
pub fn clip_global_norm<'t, M: Tree<Leaf = Param>>(
    cx: &'t Trace,
    model: &M,
    grads: Of<M, Tensor<'t>>,
    max_norm: f64,
) -> (Of<M, Tensor<'t>>, Tensor<'t>) {
    let _site = cx.called_from(Location::caller());
    let grads = grads.into_leaves();
    let descriptions = model.leaves();
    assert_eq!(
        grads.len(),
        descriptions.len(),
        "gradients have the leaves of the model"
    );
    let trained = grads
        .iter()
        .zip(&descriptions)
        .filter(|(_, description)| description.trainable);
    let norm = global_norm(cx, &trained.map(|(grad, _)| *grad).collect::<Vec<_>>());
    let max_norm = cx.hyperparameter("max_norm", max_norm, norm.dtype());
    let factor = (max_norm / (norm + 1e-6)).minimum(1.0);
    let scaled = grads
        .into_iter()
        .zip(descriptions)
        .map(|(grad, description)| {
            if description.trainable {
                grad * factor.convert(grad.dtype())
            } else {
                grad
            }
        });
    (model.rebuild(scaled), norm)
}

/// L2 norm of all elements together: a scalar of `f64` if a gradient is `f64`, otherwise of `f32`.
/// Sums are in that type.
#[track_caller]
pub fn global_norm<'t, G: Tree<Leaf = Tensor<'t>>>(cx: &'t Trace, grads: &G) -> Tensor<'t> {
    let _site = cx.called_from(Location::caller());
    let grads = grads.leaves();
    let dtype = if grads.iter().any(|grad| grad.dtype() == DType::F64) {
        DType::F64
    } else {
        DType::F32
    };
    let squares = grads
        .into_iter()
        .map(|grad| grad.convert(dtype).square().sum_all());
    squares
        .reduce(|sum, square| sum + square)
        .unwrap_or_else(|| cx.full(0.0, &TensorType::scalar(dtype)))
        .sqrt()
}

/// Clamps every element of the gradients to `[-max, max]`.
#[track_caller]
pub fn clip_value<'t, G: Tree<Leaf = Tensor<'t>>>(
    cx: &'t Trace,
    grads: G,
    max: f64,
) -> Of<G, Tensor<'t>> {
    let _site = cx.called_from(Location::caller());
    grads.map_leaves(|_, grad| {
        if !grad.dtype().is_float() {
            return grad;
        }
        let max = cx.hyperparameter("clip_value", max, grad.dtype());
        grad.clamp(-max, max)
    })
}
