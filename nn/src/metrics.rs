//! Metrics that a step reports beside the loss.

use std::panic::Location;

use halite_core::{DType, TensorType};

use crate::{
    Mean, Tensor,
    losses::{class_index, classified, is_class},
};

/// Fraction of samples whose largest logit is the target's. `logits: [.., classes]`, `target: [..]`
/// of integers.
///
/// Every sample counts; with padded batches `batch.mean(correct(logits, target))`.
#[track_caller]
pub fn accuracy<'t>(logits: Tensor<'t>, target: Tensor<'t>) -> Mean<'t> {
    Mean::of(correct(logits, target))
}

/// Fraction of samples whose target is among the `k` largest logits. `logits: [.., classes]`,
/// `target: [..]` of integers.
#[track_caller]
pub fn top_k_accuracy<'t>(logits: Tensor<'t>, target: Tensor<'t>, k: usize) -> Mean<'t> {
    Mean::of(correct_top_k(logits, target, k))
}

/// 1 for each sample whose largest logit is the target's, else 0, as `f32[..]`: `batch.mean(correct(
/// logits, target))` is the accuracy. `logits: [.., classes]`, `target: [..]` of integers.
///
/// The first class with the largest logit is the prediction, and one with NaN before all. A target
/// that is out of range, or whose logit is NaN, counts as wrong.
#[track_caller]
pub fn correct<'t>(logits: Tensor<'t>, target: Tensor<'t>) -> Tensor<'t> {
    correct_top_k(logits, target, 1)
}

/// As [`correct`], with a 1 for each sample whose target is among the `k` largest logits.
#[track_caller]
pub fn correct_top_k<'t>(logits: Tensor<'t>, target: Tensor<'t>, k: usize) -> Tensor<'t> {
    let cx = logits.trace();
    let _site = cx.called_from(Location::caller());
    if let Err(error) = classified("accuracy", logits, target) {
        return cx.error_like(Some(target.ty().with_dtype(error.dtype())));
    }
    let last = logits.rank() - 1;
    let dims = logits.dims();
    let target = class_index(target, None);
    let hit = is_class(target, dims[last]);
    let own = hit.select(logits, 0.0).sum([last]);
    let (own_everywhere, target_everywhere) = (
        own.unsqueeze(last).broadcast_to(&dims),
        target.unsqueeze(last).broadcast_to(&dims),
    );
    let class = cx.iota(&TensorType::new(DType::S32, &dims), last);
    // Counting the classes that rank before the target needs no sorting.
    // A NaN ranks before all, as in `argmax`.
    let before =
        (!logits.le(own_everywhere)).or(logits.eq(own_everywhere).and(class.lt(target_everywhere)));
    let place = before.convert(DType::S32).sum([last]);
    let known = target
        .ge(0.0)
        .and(target.lt(dims[last] as f64))
        .and(own.eq(own));
    place
        .lt(k.min(dims[last]) as f64)
        .and(known)
        .convert(DType::F32)
}
