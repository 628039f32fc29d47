//! Slices whose starts are in range. XLA's partitioner adds the offset of a shard of the result to the
//! start of a dynamic slice before the start is clamped, and XLA's simplifier the start of a slice to that
//! of the slice that it is a part of.

use std::{
    collections::{HashMap, HashSet},
    panic::Location,
};

use halite_core::TensorType;

use crate::{
    GatherAttributes, Graph, Literal, Node, Op, Value,
    passes::{Rewriter, faults::rewritten, map_regions},
};

/// All dynamic slices.
pub(super) fn without(graph: Graph) -> Graph {
    rewritten(graph, &|graph, node| {
        clamp_starts(graph, node);
        None
    })
}

/// Those that are slices of dynamic slices, and these. A gather of one index is one, too.
pub(super) fn without_nested(graph: Graph) -> Graph {
    let nested = nested(&graph);
    let (mut rewriter, nodes, outputs) = Rewriter::of(graph);
    for mut node in nodes {
        map_regions(&mut node.op, without_nested);
        rewriter.map_operands(&mut node);
        if node.results.iter().any(|result| nested.contains(result)) {
            match node.op {
                Op::Gather(ref gather) => {
                    let gather = gather.clone();
                    clamp_index(&mut rewriter.new, &mut node, &gather);
                }
                _ => clamp_starts(&mut rewriter.new, &mut node),
            }
        }
        rewriter.keep(node);
    }
    rewriter.finish(outputs)
}

/// The results of slices that are slices of others, and of these.
fn nested(graph: &Graph) -> HashSet<Value> {
    let mut nested = HashSet::new();
    // By value: the slice that it has the elements of.
    let mut slices: HashMap<Value, Value> = HashMap::new();
    for node in graph.nodes() {
        let (Some(&operand), [result]) = (node.operands.first(), &node.results[..]) else {
            continue;
        };
        let inner = slices.get(&operand).copied();
        match &node.op {
            Op::DynamicSlice { .. } | Op::Gather(_) if is_slice(graph, node) => {
                nested.extend(inner.into_iter().flat_map(|inner| [inner, *result]));
                slices.insert(*result, *result);
            }
            Op::Reshape { .. } | Op::Transpose { .. } | Op::Convert(_) | Op::Slice { .. } => {
                slices.extend(inner.map(|inner| (*result, inner)));
            }
            _ => {}
        }
    }
    nested
}

/// Whether the node is a dynamic slice, or a gather of one.
fn is_slice(graph: &Graph, node: &Node) -> bool {
    let Op::Gather(gather) = &node.op else {
        return true;
    };
    let dims = graph.ty(node.operands[1]).dims().iter().enumerate();
    let mut indices = dims.filter(|&(dim, _)| dim != gather.index_vector_dim);
    indices.all(|(_, &size)| size == 1)
}

fn clamp_starts(graph: &mut Graph, node: &mut Node) {
    let dims = |graph: &Graph, at: usize| graph.ty(node.operands[at]).dims().to_vec();
    let (first, part) = match &node.op {
        Op::DynamicSlice { sizes } => (1, sizes.clone()),
        Op::DynamicUpdateSlice => (2, dims(graph, 1)),
        _ => return,
    };
    let whole = dims(graph, 0);
    for (dim, start) in node.operands[first..].iter_mut().enumerate() {
        *start = clamped(graph, *start, &[whole[dim] - part[dim]], node.origin);
    }
}

/// Moves the index of a gather into range.
fn clamp_index(graph: &mut Graph, node: &mut Node, gather: &GatherAttributes) {
    let whole = graph.ty(node.operands[0]).dims().to_vec();
    let most = (gather.start_index_map.iter()).map(|&dim| whole[dim] - gather.slice_sizes[dim]);
    let most: Vec<usize> = most.collect();
    node.operands[1] = clamped(graph, node.operands[1], &most, node.origin);
}

/// An index between 0 and `most`, with a number for each of its components.
fn clamped(
    graph: &mut Graph,
    start: Value,
    most: &[usize],
    origin: Option<&'static Location<'static>>,
) -> Value {
    let ty = graph.ty(start).clone();
    let mut limit = |literal: Literal| {
        graph.push_typed(Op::Constant(literal), vec![], vec![ty.clone()], origin)[0]
    };
    let operands = vec![limit(Literal::zero(&ty)), start, limit(integers(most, &ty))];
    graph.push_typed(Op::Clamp, operands, vec![ty], origin)[0]
}

/// These numbers, or the largest one of the type in place of a larger one.
fn integers(values: &[usize], ty: &TensorType) -> Literal {
    let (size, is_signed) = (ty.dtype().size(), ty.dtype().is_signed_integer());
    let largest = u64::MAX >> (64 - 8 * size + usize::from(is_signed));
    let bytes = values.iter().flat_map(|&value| {
        let bytes = (value as u64).min(largest).to_le_bytes();
        bytes.into_iter().take(size)
    });
    let bytes: Vec<u8> = bytes.collect();
    Literal::from_bytes(&bytes, ty.clone()).expect("as many numbers as elements")
}
