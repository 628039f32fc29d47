//! Products whose results are sharded as their operands are. XLA's partitioner sums the parts of a
//! product over the devices that hold parts of a summed dimension, and leaves a slice of the sum on
//! each where the result is sharded over the same axes. It slices the part of the device, as if it
//! were the whole: the elements of a dimension that an operand has sharded over other axes are
//! reordered.

use halite_core::MeshShape;

use crate::{
    Graph, Node, Op,
    passes::{Rewriter, faults::split_windows::unsharded, kernels::is_manual, map_regions},
};

/// Keeps the shardings of what uses a product from its result, so that these are of its operands,
/// and the operands of a product of batches from summing over different axes.
pub(super) fn without(graph: Graph, mesh: &MeshShape) -> Graph {
    let axes = mesh.axes().filter(|&(_, size)| size > 1).count();
    // An axis that is summed over, and one of another dimension.
    if axes < 2 {
        graph
    } else {
        rewritten(graph, axes)
    }
}

fn rewritten(graph: Graph, axes: usize) -> Graph {
    let (mut rewriter, nodes, outputs) = Rewriter::of(graph);
    for mut node in nodes {
        if !is_manual(&node.op) {
            map_regions(&mut node.op, |body| rewritten(body, axes));
        }
        rewriter.map_operands(&mut node);
        if axes > 2 {
            sum_over_axes_of_left(&mut rewriter.new, &mut node);
        }
        let (results, origin) = (node.results.clone(), node.origin);
        let is_product = matches!(node.op, Op::Dot(..) | Op::Convolution(..));
        rewriter.keep(node);
        if is_product {
            let result = rewriter.value(results[0]);
            let types = vec![rewriter.new.ty(result).clone()];
            let op = Op::PropagationBarrier;
            let kept = rewriter.new.push_typed(op, vec![result], types, origin)[0];
            rewriter.replace(results[0], kept);
        }
    }
    rewriter.finish(outputs)
}

/// The partitioner may choose the summed axes of the left operand and the shardings of batches of
/// the right one, which have the same effect.
fn sum_over_axes_of_left(graph: &mut Graph, node: &mut Node) {
    if let Op::Dot(dot, ..) = &node.op
        && !dot.lhs_batching.is_empty()
    {
        let mut dims = dot.rhs_contracting.clone();
        dims.sort_unstable();
        node.operands[1] = unsharded(graph, node.operands[1], dims, node.origin);
    }
}
