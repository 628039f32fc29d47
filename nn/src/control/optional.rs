//! Bodies that run in some launches only.

use std::panic::Location;

use halite_core::{DType, TensorType, tree::Tree};

use crate::{Tensor, Trace, context};

/// Runs `body` if `predicate`, a `bool` scalar, is true, and returns its result; otherwise zeros of
/// the same types. The metrics that it reports count, and the states that it updates change, only
/// where it runs. [`report_if`](Trace::report_if) always runs its body.
#[track_caller]
pub(crate) fn run_if<'t, T: Tree<Leaf = Tensor<'t>>>(
    cx: &'t Trace,
    predicate: Tensor<'t>,
    body: impl FnOnce() -> T,
) -> T {
    let location = Location::caller();
    let _site = cx.called_from(location);
    let (run, (result, side, outputs)) = cx.region(&[], |_| {
        let (result, side) = context::with_side_outputs(cx, body);
        let outputs = super::usable(cx, "cond", &result, location);
        (result, side, outputs)
    });
    let mut outputs = match outputs {
        Ok(outputs) if !predicate.is_error() => outputs,
        _ => return super::errors_like(cx, &result),
    };
    debug_assert_eq!(predicate.ty(), TensorType::scalar(DType::Bool));
    let (given, metrics) = (outputs.len(), 2 * side.metrics.len());
    outputs.extend(side.leaves().map(|id| cx.tensor(id)));
    let states: Vec<Tensor<'t>> = side
        .updates
        .iter()
        .map(|&(state, _)| cx.tensor(state))
        .collect();
    let before: Vec<Tensor<'t>> = states.iter().map(|state| cx.updated(*state)).collect();
    let types: Vec<TensorType> = outputs.iter().map(|output| output.ty()).collect();
    let (skip, skipped) = cx.region(&[], |_| {
        let zeros = types[..given + metrics].iter().map(|ty| cx.full(0.0, ty));
        zeros.chain(before.iter().copied()).collect::<Vec<_>>()
    });
    if outputs.is_empty() {
        return result;
    }
    let regions = vec![skip.giving(&skipped), run.giving(&outputs)];
    let index = predicate.convert(DType::S32);
    let mut results = super::push_case(cx, index, &[], regions, location);
    let side = side.with(results.split_off(given), |name, total, weight| {
        (name, total, weight)
    });
    super::side_outputs::report(cx, side, states.into_iter());
    result.with_leaves(results)
}
