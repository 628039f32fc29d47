//! Gradients that do not exist: zeros that stand for "no gradient" of a leaf that nothing uses.

use std::{cell::RefCell, collections::HashMap, panic::Location};

use halite_ir::{Linearity, Op};

use crate::{
    Tensor, Trace,
    trace::{Id, Recorded},
};

/// The zeros of a trace that stand for "no gradient", with the lines that took the gradients.
#[derive(Default)]
struct NoGradient(RefCell<HashMap<Id, &'static Location<'static>>>);

/// Zeros that stand for "no gradient" of `leaf`, with the line that took the gradient.
pub(super) fn no_gradient<'t>(leaf: Tensor<'t>, line: &'static Location<'static>) -> Tensor<'t> {
    // A separate tensor: other code may use the same zero.
    let none = leaf.zeros_like().stop_gradient();
    let known = &leaf.trace.state::<NoGradient>().0;
    known.borrow_mut().insert(none.id, line);
    none
}

/// The tensors that mean "no gradient" among `gradients` and those that they are computed from,
/// with the lines that took the gradients: zeros that [`grad`](crate::grad()) returned for unused
/// leaves, and results of scaling, converting, rearranging or adding up nothing but those.
pub(crate) fn without_gradient(
    cx: &Trace,
    gradients: &[Tensor<'_>],
) -> HashMap<Id, &'static Location<'static>> {
    let mut none = cx.state::<NoGradient>().0.borrow().clone();
    let Some(&least) = none.keys().min() else {
        return none;
    };
    let ids = gradients.iter().map(|gradient| gradient.id);
    let nodes = cx.recording.borrow().computing(ids, least);
    for node in nodes {
        if let Op::OptimizationBarrier = node.op {
            for (&operand, &result) in node.operands.iter().zip(&node.results) {
                none.get(&operand)
                    .copied()
                    .map(|line| none.insert(result, line));
            }
        } else if let (Some(line), &[result]) = (propagated(&node, &none), &node.results[..]) {
            none.insert(result, line);
        }
    }
    none
}

/// The line of "no gradient", if the result of `node` has none.
fn propagated(
    node: &Recorded,
    none: &HashMap<Id, &'static Location<'static>>,
) -> Option<&'static Location<'static>> {
    let operand = |index: usize| none.get(node.operands.get(index)?).copied();
    match node.op.rules().linearity {
        Linearity::None => None,
        Linearity::First => operand(0),
        Linearity::Each => operand(0).or(operand(1)),
        Linearity::Together => operand(0).and(operand(1)),
        Linearity::Second => operand(1),
        Linearity::Chosen => operand(1).and(operand(2)),
    }
}
