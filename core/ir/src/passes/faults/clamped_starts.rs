//! Dynamic slices whose starts are in range. XLA's partitioner adds the offset of a shard of the result
//! to a start before the start is clamped.

use std::panic::Location;

use halite_core::TensorType;

use crate::{Graph, Literal, Op, Value, passes::faults::rewritten};

/// Clamps the starts of dynamic slices and updates, as the operations do.
pub(super) fn without(graph: Graph) -> Graph {
    rewritten(graph, &|graph, node| {
        let dims = |graph: &Graph, at: usize| graph.ty(node.operands[at]).dims().to_vec();
        let (first, part) = match &node.op {
            Op::DynamicSlice { sizes } => (1, sizes.clone()),
            Op::DynamicUpdateSlice => (2, dims(graph, 1)),
            _ => return None,
        };
        let whole = dims(graph, 0);
        for (dim, start) in node.operands[first..].iter_mut().enumerate() {
            *start = clamped(graph, *start, whole[dim] - part[dim], node.origin);
        }
        None
    })
}

/// An integer that is at least 0 and at most `most`.
fn clamped(
    graph: &mut Graph,
    start: Value,
    most: usize,
    origin: Option<&'static Location<'static>>,
) -> Value {
    let ty = graph.ty(start).clone();
    let mut limit = |value: usize| {
        let op = Op::Constant(integer(value, &ty));
        graph.push_typed(op, vec![], vec![ty.clone()], origin)[0]
    };
    let operands = vec![limit(0), start, limit(most)];
    graph.push_typed(Op::Clamp, operands, vec![ty], origin)[0]
}

/// A number, or the largest of the type if that is smaller.
fn integer(value: usize, ty: &TensorType) -> Literal {
    let (size, is_signed) = (ty.dtype().size(), ty.dtype().is_signed_integer());
    let largest = u64::MAX >> (64 - 8 * size + usize::from(is_signed));
    let bytes = (value as u64).min(largest).to_le_bytes();
    Literal::from_element(&bytes[..size], ty.clone()).expect("the bytes of one element")
}
