//! One step of an optimizer over a model: gradients in, new parameters and slots out.

use std::panic::Location;

use halite_core::{Family, Tree, tree::Of};

use super::{
    Named, Optimizer, SlotsOf,
    gradient::{Gradient, StepOf},
    part::Part,
    slots::Slots,
    unfreeze::is_active,
};
use crate::{Param, Tensor, Trace, grad, special::wide};

/// Computes the new parameters and slots of a model, or of a part of it.
///
/// `step` is the number of updates made before, an integer scalar, or a [`StepOf`]; `model` is the
/// description of the model, or a [`Part`] of it. `grads` has a leaf for every leaf of the model;
/// leaves that are not trained ignore theirs and do not change.
///
/// A parameter that the loss does not depend on has no gradient ([`grad`](crate::grad())). It and
/// its slots do not change, also under weight decay and momentum, as in PyTorch; a
/// [warning](Trace::warnings) names all of them. It is a mistake if no trained parameter has a
/// gradient.
///
/// # Panics
/// If `params`, `grads` or `slots` are not trees of the structure of `model`.
#[track_caller]
pub fn update<'t, 'm, M: Tree<Leaf = Param> + 'm, O: Optimizer>(
    optimizer: &O,
    cx: &'t Trace,
    step: impl Into<StepOf<'t>>,
    model: impl Into<Part<'m, M>>,
    params: Of<M, Tensor<'t>>,
    grads: Of<M, Tensor<'t>>,
    slots: SlotsOf<O, Tensor<'t>>,
) -> (Of<M, Tensor<'t>>, SlotsOf<O, Tensor<'t>>) {
    let _site = cx.called_from(Location::caller());
    let (step, part) = (step.into(), model.into());
    let model = part.model;
    check(optimizer, cx, model);
    let (mut params, mut grads) = (params.into_leaves(), grads.into_leaves());
    let trained = with_gradient(cx, &part, &grads);
    wait_for_gradients(cx, &trained, &mut params, &mut grads);
    let mut leaves = params.into_iter().zip(grads).zip(trained);
    let mut slots = slots.into_list().into_iter();
    let mut next_params = Vec::new();
    let next_slots = Slots::of(model, |path, description| {
        let matching = "parameters, gradients and slots have the leaves of the model";
        let ((param, grad), is_trained) = leaves.next().expect(matching);
        let slot = slots.next().expect(matching);
        if description.trainable && !param.dtype().is_float() {
            let message = format!(
                "`{path}` is {}, which has no gradient and cannot be trained; make it \
                 `Param::state`, or `frozen`",
                param.ty()
            );
            cx.fail("optimizer", message, None);
        }
        let (param, slot) = match slot {
            Some(slot) if is_trained => {
                let named = Named {
                    path: &path.to_string(),
                    param: description,
                };
                let (param, slot) = stepped(optimizer, step, named, [param, grad], slot);
                (param, Some(slot))
            }
            slot => (param, slot),
        };
        next_params.push(param);
        slot
    });
    (model.rebuild(next_params), next_slots)
}

/// The parameter less its step, and the new slot.
#[track_caller]
fn stepped<'t, O: Optimizer>(
    optimizer: &O,
    step: StepOf<'t>,
    named: Named<'_>,
    leaf: [Tensor<'t>; 2],
    slot: <O::Slot as Family>::Of<Tensor<'t>>,
) -> (Tensor<'t>, <O::Slot as Family>::Of<Tensor<'t>>) {
    let [param, grad] = leaf;
    let dtype = wide(param.dtype());
    let cx = param.trace();
    let (first, frozen) = (optimizer.first_update(named), slot_leaves::<O>(&slot));
    let gradient = Gradient {
        grad: grad.convert(dtype),
        param: param.convert(dtype),
        at: step.convert(dtype),
        named,
        first: (first > 0).then(|| cx.scalar(first as f64, dtype)),
    };
    let (direction, slot) = optimizer.direction(gradient, slot);
    if direction.ty() != gradient.param.ty() && !direction.is_error() {
        let message = format!(
            "the step of `{}` is {}, and the parameter {}; the step of an optimizer has the type \
             of `Gradient::grad`",
            named.path,
            direction.ty(),
            gradient.param.ty()
        );
        param.trace().fail("optimizer", message, None);
        return (param, slot);
    }
    let next = (gradient.param - direction).convert(param.dtype());
    if first == 0 {
        return (next, slot);
    }
    let active = is_active(step.count, first);
    let mut frozen = frozen.into_iter();
    let slot = slot.map_leaves(|_, leaf| {
        let before = frozen
            .next()
            .expect("the next slot has the leaves of the slot");
        active.select(leaf, before)
    });
    (active.select(next, param), slot)
}

/// The leaves of a slot.
fn slot_leaves<'t, O: Optimizer>(slot: &<O::Slot as Family>::Of<Tensor<'t>>) -> Vec<Tensor<'t>> {
    slot.leaves().into_iter().copied().collect()
}

/// Records what the optimizer finds wrong with its settings.
#[track_caller]
pub(super) fn check<M: Tree<Leaf = Param>, O: Optimizer>(optimizer: &O, cx: &Trace, model: &M) {
    let named = model.named();
    let trained = named.iter().filter(|(_, param)| param.trainable);
    let trained: Vec<Named<'_>> = trained.map(|(path, param)| Named { path, param }).collect();
    if let Err(error) = optimizer.check(&trained) {
        cx.fail("optimizer", error.message(), None);
    }
}

/// Makes trained parameters and their gradients depend on all gradients. Otherwise the compiler may
/// schedule an update before a gradient that still needs the old parameter, and copy the parameter
/// first: such copies took 8 % of the CPU time of an MLP's step.
#[track_caller]
fn wait_for_gradients<'t>(
    cx: &'t Trace,
    trained: &[bool],
    params: &mut [Tensor<'t>],
    grads: &mut [Tensor<'t>],
) {
    let indices: Vec<usize> = (0..trained.len()).filter(|&leaf| trained[leaf]).collect();
    let before = indices.iter().map(|&leaf| params[leaf]);
    let before: Vec<Tensor<'t>> = before
        .chain(indices.iter().map(|&leaf| grads[leaf]))
        .collect();
    let after = cx.optimization_barrier(&before);
    let (after_params, after_grads) = after.split_at(indices.len());
    for (&leaf, (&param, &grad)) in indices.iter().zip(after_params.iter().zip(after_grads)) {
        (params[leaf], grads[leaf]) = (param, grad);
    }
}

/// Determines for each leaf of a model whether it is trained here and has a gradient. A warning names
/// those without one; it is a mistake if none has one.
fn with_gradient<M: Tree<Leaf = Param>>(
    cx: &Trace,
    part: &Part<'_, M>,
    grads: &[Tensor<'_>],
) -> Vec<bool> {
    let none = grad::without_gradient(cx, grads);
    let mut unused = Vec::new();
    let mut trained = 0;
    let leaves = part.model.named().into_iter().zip(grads);
    let with_gradient = leaves.map(|((path, description), grad)| {
        if !part.trains(&path, description) {
            return false;
        }
        trained += 1;
        match none.get(&grad.id) {
            None => true,
            Some(line) => {
                unused.push((path, *line));
                false
            }
        }
    });
    let with_gradient: Vec<bool> = with_gradient.collect();
    if let Some((_, line)) = unused.first() {
        let paths: Vec<String> = unused.iter().map(|(path, _)| format!("`{path}`")).collect();
        if paths.len() == trained {
            let message = format!(
                "none of the {trained} parameters has a gradient: the loss depends on no parameter that is trained ({})",
                paths.join(", ")
            );
            cx.fail_at(line, "optimizer", message, None);
            return with_gradient;
        }
        let message = format!(
            "{} of {trained} parameters have no gradient, as the loss does not depend on them: {}. They stay as they \
             are. Use them in the loss, leave them out of the model, or describe them as `frozen`",
            paths.len(),
            paths.join(", ")
        );
        cx.warn_at(line, "optimizer", message);
    }
    with_gradient
}
