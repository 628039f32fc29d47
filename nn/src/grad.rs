//! Reverse-mode differentiation: [`grad()`] appends the gradient of a loss to the trace that
//! computed it.
//!
//! There is one vector-Jacobian product per operation, written in tensor operators, so the gradient
//! is an ordinary part of the program and has a gradient itself. Operations with bodies are
//! [linearized](linearize) first. Reaching an operation without a derivative is a mistake, never a
//! silent zero; only derivatives that are zero almost everywhere, such as that of `floor`, are
//! zero.
//!
//! Nothing here touches an operation that is not between the leaves and the loss.

mod absent;
mod accumulate;
mod across;
mod backward;
mod custom;
mod elementwise;
mod index;
mod left_out;
mod linalg;
mod linearize;
mod optional;
mod product;
mod reduce;
mod regions;
mod residuals;
mod scan;
mod shape;
mod shard_map;
#[cfg(test)]
mod tests;

use std::panic::Location;

use halite_core::tree::Tree;

use crate::{Tensor, Trace, context};
use absent::no_gradient;
pub(crate) use absent::without_gradient;
use backward::{Back, Step, Tape, pull_back};
pub use custom::CustomVjp;
pub(crate) use custom::GradientRule;
pub(crate) use left_out::leave_out;

/// The gradient of `loss`, a float scalar, by every leaf of `wrt`; all leaves are floats. It is
/// zero for a leaf that the loss does not depend on, and [`optim::update`](crate::optim::update)
/// leaves such a parameter alone, as PyTorch does.
///
/// A loss that depends on no leaf at all, because of `stop_gradient`, `argmax` or a conversion to
/// integers in between, is a mistake, and so is a leaf of integers. Use [`vjp`] where zeros are
/// intended.
///
/// In a program of many devices with explicit collectives it is the gradient of the sum of all
/// devices' losses.
///
/// ```
/// use halite_core::{DType, TensorType, tree::Leaf};
/// use halite_nn::{Trace, grad};
///
/// let cx = &Trace::new();
/// let x = cx.input(TensorType::new(DType::F32, [3]), "x");
/// let loss = (x * x).sum_all();
/// let Leaf(slope) = grad(loss, &Leaf(x)); // 2 x
/// assert_eq!(slope.ty().to_string(), "f32[3]");
/// let Leaf(curvature) = grad(slope.sum_all(), &Leaf(x)); // 2
/// assert_eq!(curvature.ty().to_string(), "f32[3]");
/// assert!(cx.mistakes().is_empty());
/// ```
#[track_caller]
pub fn grad<'t, M: Tree<Leaf = Tensor<'t>>>(loss: Tensor<'t>, wrt: &M) -> M {
    let leaves: Vec<Tensor<'t>> = wrt.leaves().into_iter().copied().collect();
    let described = || {
        let paths = wrt.named().into_iter().map(|(path, _)| path);
        paths.zip(&leaves).map(described).collect()
    };
    match checked_grad(loss, &leaves, described) {
        Ok(gradients) => wrt.with_leaves(gradients),
        Err(_) => wrt.with_leaves(errors_like(loss.trace, &leaves)),
    }
}

/// The gradients, or an error tensor after a mistake, whose message uses the `described` leaves.
#[track_caller]
fn checked_grad<'t>(
    loss: Tensor<'t>,
    leaves: &[Tensor<'t>],
    described: impl Fn() -> Vec<String>,
) -> Result<Vec<Tensor<'t>>, Tensor<'t>> {
    let (cx, location) = (loss.trace, Location::caller());
    context::took_gradient(cx);
    let ty = loss.ty();
    if ty.rank() != 0 || !ty.dtype().is_float() {
        let advice = if ty.dtype().is_float() {
            "reduce it first, as by `mean_all`"
        } else {
            "integers have no gradient"
        };
        return Err(loss.mistake("grad", || {
            format!("the loss is {ty}; it must be a scalar of floats: {advice}")
        }));
    }
    let is_integer = |leaf: &Tensor<'t>| !leaf.dtype().is_float();
    if leaves.iter().any(is_integer) && leaves.iter().all(|leaf| !leaf.is_error()) {
        let named = described().into_iter().zip(leaves);
        let integers = named.filter(|(_, leaf)| is_integer(leaf));
        let message = format!(
            "{}: only floats have a gradient; leave it out, or convert it to floats before the \
             loss uses it. `vjp` returns zeros for it",
            listed(integers.map(|(name, _)| name).collect())
        );
        return Err(cx.fail("grad", message, None));
    }
    let gradients = checked_pull_back(cx, &[loss], &[loss.ones_like()], leaves, location)?;
    let is_used = used(cx, &[loss], leaves, &gradients);
    if !leaves.is_empty() && !is_used.contains(&true) {
        let made = loss
            .origin()
            .map_or(String::new(), |line| format!(", computed at {line},"));
        let message = format!(
            "the loss{made} depends on none of {}: every path is cut, as by `stop_gradient`, \
             `argmax`, a comparison or a conversion to integers; nothing would be learned",
            listed(described())
        );
        return Err(cx.fail("grad", message, None));
    }
    Ok(or_zeros(cx, leaves, gradients, &is_used, location))
}

/// A leaf in messages: its name, or its path in the tree, with its type.
fn described(named: (String, &Tensor<'_>)) -> String {
    let (path, leaf) = named;
    let name = leaf.name().map_or(path, |name| name.to_string());
    if name.is_empty() {
        format!("a tensor {}", leaf.ty())
    } else {
        format!("`{name}` ({})", leaf.ty())
    }
}

fn errors_like<'t>(trace: &'t Trace, leaves: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
    leaves
        .iter()
        .map(|leaf| trace.error_like(Some(leaf.ty())))
        .collect()
}

/// The first few of many names.
fn listed(names: Vec<String>) -> String {
    const MOST: usize = 4;
    match names.len().saturating_sub(MOST) {
        0 => names.join(", "),
        more => format!("{}, and {more} more", names[..MOST].join(", ")),
    }
}

/// Whether the outputs depend on each leaf. A leaf that is used only through `floor` has a zero
/// gradient; an unused one has none.
fn used<'t>(
    trace: &'t Trace,
    outputs: &[Tensor<'t>],
    leaves: &[Tensor<'t>],
    gradients: &[Option<Tensor<'t>>],
) -> Vec<bool> {
    let mut used: Vec<bool> = gradients.iter().map(Option::is_some).collect();
    if used.contains(&false) {
        for output in outputs {
            let depends = trace.recording.borrow().depends_on(output.id, leaves);
            used.iter_mut()
                .zip(depends)
                .for_each(|(used, depends)| *used |= depends);
        }
    }
    used
}

/// The gradients, and zeros for leaves without one. Zeros of leaves that are not used are
/// remembered as such: see [`without_gradient`].
fn or_zeros<'t>(
    trace: &'t Trace,
    leaves: &[Tensor<'t>],
    gradients: Vec<Option<Tensor<'t>>>,
    is_used: &[bool],
    location: &'static Location<'static>,
) -> Vec<Tensor<'t>> {
    let _site = trace.called_from(location);
    let one =
        |((leaf, gradient), &is_used): ((&Tensor<'t>, Option<Tensor<'t>>), &bool)| match gradient {
            Some(gradient) => gradient,
            None if is_used => leaf.zeros_like(),
            None => no_gradient(*leaf, trace.origin(location)),
        };
    leaves.iter().zip(gradients).zip(is_used).map(one).collect()
}

/// The sum, over all `outputs`, of the gradient of `output * cotangent` by every leaf of `wrt`:
/// the vector-Jacobian product. Cotangents have the types of the outputs.
#[track_caller]
pub fn vjp<'t, M: Tree<Leaf = Tensor<'t>>>(
    outputs: &[Tensor<'t>],
    cotangents: &[Tensor<'t>],
    wrt: &M,
) -> M {
    let leaves: Vec<Tensor<'t>> = wrt.leaves().into_iter().copied().collect();
    let Some(trace) = outputs
        .first()
        .or(leaves.first())
        .map(|tensor| tensor.trace)
    else {
        return wrt.with_leaves(leaves);
    };
    let location = Location::caller();
    wrt.with_leaves(
        match checked_pull_back(trace, outputs, cotangents, &leaves, location) {
            Ok(gradients) => {
                let is_used = used(trace, outputs, &leaves, &gradients);
                or_zeros(trace, &leaves, gradients, &is_used, location)
            }
            Err(_) => errors_like(trace, &leaves),
        },
    )
}

/// The cotangents of `leaves`, after checks of the arguments. `None` is zero.
fn checked_pull_back<'t>(
    trace: &'t Trace,
    outputs: &[Tensor<'t>],
    cotangents: &[Tensor<'t>],
    leaves: &[Tensor<'t>],
    location: &'static Location<'static>,
) -> Result<Vec<Option<Tensor<'t>>>, Tensor<'t>> {
    check_given(trace, outputs, cotangents, leaves, location)?;
    let seeds: Vec<_> = outputs
        .iter()
        .copied()
        .zip(cotangents.iter().copied())
        .collect();
    Ok(pull_back(trace, &seeds, leaves))
}

fn check_given<'t>(
    trace: &'t Trace,
    outputs: &[Tensor<'t>],
    cotangents: &[Tensor<'t>],
    leaves: &[Tensor<'t>],
    location: &'static Location<'static>,
) -> Result<(), Tensor<'t>> {
    let fail = |message: String| Err(trace.fail_at(location, "grad", message, None));
    if outputs.len() != cotangents.len() {
        return fail(format!(
            "{} outputs and {} cotangents; there must be one for each",
            outputs.len(),
            cotangents.len()
        ));
    }
    for (output, cotangent) in outputs.iter().zip(cotangents) {
        if !output.is_error() && !cotangent.is_error() && output.ty() != cotangent.ty() {
            return fail(format!(
                "the output is {}, its cotangent {}; the types must be equal",
                output.ty(),
                cotangent.ty()
            ));
        }
    }
    if let Some(error) = outputs
        .iter()
        .chain(cotangents)
        .find(|tensor| tensor.is_error())
    {
        return Err(*error);
    }
    for tensor in outputs.iter().chain(cotangents).chain(leaves) {
        if !trace.can_use(*tensor) {
            return fail(format!("{} {}", tensor.ty(), crate::trace::STRAY));
        }
    }
    Ok(())
}
