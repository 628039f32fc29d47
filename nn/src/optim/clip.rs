//! Gradient clipping, on the device: nothing is read back.

use std::panic::Location;

use halite_core::{DType, TensorType, Tree, tree::Of};

use crate::{Param, Tensor, Trace, processes};

/// Scales the gradients down to a global norm of at most `max_norm`, above 0; returns them with the norm
/// before clipping ([`global_norm`]). As in `torch.nn.utils.clip_grad_norm_`, the factor is
/// `min(1, max_norm / (norm + 1e-6))`.
///
/// Only gradients of trained parameters count and are scaled. Those of leaves that `model` describes
/// as frozen or as state are returned unchanged.
///
/// A gradient that is not finite makes all of them NaN.
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
    let norm = GlobalNorm::of_trained(cx, model, &grads);
    (norm.clip(model, grads, max_norm), norm.value())
}

/// L2 norm of all elements together: a scalar of `f64` if a gradient is `f64`, otherwise of `f32`.
/// Sums are in that type, of squares relative to the largest element: they neither overflow nor
/// underflow.
#[track_caller]
pub fn global_norm<'t, G: Tree<Leaf = Tensor<'t>>>(cx: &'t Trace, grads: &G) -> Tensor<'t> {
    let _site = cx.called_from(Location::caller());
    let grads: Vec<Tensor<'t>> = grads.leaves().into_iter().copied().collect();
    GlobalNorm::of(cx, &grads).value()
}

/// The L2 norm of all elements of gradients together, for a metric and for clipping; of
/// [shards](crate::ProcessShards) over all processes.
#[derive(Clone, Copy, Debug)]
pub struct GlobalNorm<'t> {
    /// Sum of the squares of elements, each divided by `scale`.
    squares: Tensor<'t>,
    /// Its root.
    root: Tensor<'t>,
    /// A power of two.
    scale: Tensor<'t>,
}

impl<'t> GlobalNorm<'t> {
    /// That of the gradients of the trained parameters of `model`.
    ///
    /// # Panics
    /// If `grads` is not a tree of the structure of `model`.
    #[track_caller]
    pub fn of_trained<M: Tree<Leaf = Param>>(
        cx: &'t Trace,
        model: &M,
        grads: &Of<M, Tensor<'t>>,
    ) -> Self {
        let _site = cx.called_from(Location::caller());
        let (grads, descriptions) = (grads.leaves(), model.leaves());
        assert_eq!(
            grads.len(),
            descriptions.len(),
            "gradients have the leaves of the model"
        );
        let leaves = grads.into_iter().zip(descriptions);
        let trained = leaves.filter(|(_, description)| description.trainable);
        let trained: Vec<Tensor<'t>> = trained.map(|(grad, _)| *grad).collect();
        GlobalNorm::of(cx, &trained)
    }

    fn of(cx: &'t Trace, grads: &[Tensor<'t>]) -> Self {
        let dtype = if grads.iter().any(|grad| grad.dtype() == DType::F64) {
            DType::F64
        } else {
            DType::F32
        };
        let zero = cx.full(0.0, &TensorType::scalar(dtype));
        let grads: Vec<_> = (grads.iter()).map(|grad| grad.convert(dtype)).collect();
        let largest = (grads.iter()).filter(|grad| !grad.dims().contains(&0));
        let largest = largest.map(|grad| grad.abs().max((0..grad.rank()).collect::<Vec<_>>()));
        let scale = power_of_two(largest.fold(zero, |a, b| a.maximum(b)));
        let to_scale = 1.0 / scale;
        let squares = (grads.iter()).map(|&grad| (grad * to_scale).square().sum_all());
        GlobalNorm::new(squares.fold(zero, |sum, square| sum + square), scale)
    }

    /// That of the gradients of which each process has shards.
    #[track_caller]
    pub fn over_processes(self) -> Self {
        let cx = self.scale.trace();
        let both = [self.squares, self.scale].map(|scalar| scalar.reshape([1]));
        let all = processes::gather(cx, "norm of the gradients", cx.concat(&both, 0));
        let (squares, scales) = (all.index(1, 0), all.index(1, 1));
        let scale = scales.max([0]);
        GlobalNorm::new((squares * (scales / scale).square()).sum([0]), scale)
    }

    fn new(squares: Tensor<'t>, scale: Tensor<'t>) -> Self {
        GlobalNorm {
            squares,
            root: squares.sqrt(),
            scale,
        }
    }

    /// The norm: a scalar.
    #[track_caller]
    pub fn value(&self) -> Tensor<'t> {
        self.root * self.scale
    }

    /// The gradients of trained parameters scaled down to a norm of at most `max_norm`, as
    /// [`clip_global_norm`] does it, and the other leaves of `grads`.
    ///
    /// # Panics
    /// If `grads` is not a tree of the structure of `model`.
    #[track_caller]
    pub fn clip<M: Tree<Leaf = Param>>(
        &self,
        model: &M,
        grads: Of<M, Tensor<'t>>,
        max_norm: f64,
    ) -> Of<M, Tensor<'t>> {
        let cx = self.scale.trace();
        let _site = cx.called_from(Location::caller());
        if is_refused(cx, "max_norm", max_norm) {
            return grads;
        }
        let (root, norm) = (self.root, self.value());
        let max_norm = cx.hyperparameter("max_norm", max_norm, norm.dtype());
        let (one, to_scale) = (norm.ones_like(), 1.0 / self.scale);
        let clips = (norm + 1e-6).gt(max_norm);
        // Two factors, since their product may be too small for its type.
        let to_scale_or_one = clips.select(to_scale, one);
        let factor = clips.select(max_norm / (root + to_scale * 1e-6), one);
        // Not 0 where an element is infinite, which would be silent. The norm alone may be beyond its
        // type.
        let factor = root.is_finite().select(factor, f64::NAN);
        let leaves = grads.into_leaves().into_iter().zip(model.leaves());
        let scaled = leaves.map(|(grad, description)| {
            if description.trainable {
                let wide = grad.convert(norm.dtype());
                (wide * to_scale_or_one * factor).convert(grad.dtype())
            } else {
                grad
            }
        });
        model.rebuild(scaled.collect::<Vec<_>>())
    }
}

/// A power of two near `x`, which is not negative, whose reciprocal is a normal number. Products
/// with it are exact, so that norms without overflow do not change.
pub(super) fn power_of_two(x: Tensor<'_>) -> Tensor<'_> {
    let (exponent, most) = match x.dtype() {
        DType::F64 => (11, 1000.0),
        _ => (8, 120.0),
    };
    let bound = f64::exp2(most);
    x.clamp(bound.recip(), bound).reduce_precision(exponent, 0)
}

/// Records a mistake for a limit that turns gradients around or makes all of them 0.
#[track_caller]
fn is_refused(cx: &Trace, name: &str, limit: f64) -> bool {
    let is_refused = limit.is_nan() || limit <= 0.0;
    if is_refused {
        let message = format!("`{name}` is {limit}; expected a number above 0, such as 1");
        cx.fail("clip", message, None);
    }
    is_refused
}

/// Clamps every element of the gradients to `[-max, max]`, `max` above 0.
#[track_caller]
pub fn clip_value<'t, G: Tree<Leaf = Tensor<'t>>>(
    cx: &'t Trace,
    grads: G,
    max: f64,
) -> Of<G, Tensor<'t>> {
    let _site = cx.called_from(Location::caller());
    if is_refused(cx, "max", max) {
        return grads.map_leaves(|_, grad| grad);
    }
    grads.map_leaves(|_, grad| {
        if !grad.dtype().is_float() {
            return grad;
        }
        let max = cx.hyperparameter("clip_value", max, grad.dtype());
        grad.clamp(-max, max)
    })
}
