//! Long chains of elementwise operations, cut for XLA's CPU compiler. It fuses a whole chain into
//! one function, and the time to compile that grows with the square of its length.

use std::collections::HashMap;

use super::{Rewriter, map_regions};
use crate::{Graph, Op, Value};

/// Most operations of a chain in one fusion: far more than those between the products of a network,
/// and few enough that a chain of 6,000 compiles in a tenth of the time.
const LONGEST: usize = 500;

/// The graph with an optimization barrier after each `LONGEST` elementwise operations that follow
/// each other.
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn without_long_chains(graph: Graph) -> Graph {
    let (mut rewriter, nodes, outputs) = Rewriter::of(graph);
    // By value of the old graph: the elementwise operations in a row that end there.
    let mut lengths: HashMap<Value, usize> = HashMap::new();
    for mut node in nodes {
        map_regions(&mut node.op, without_long_chains);
        let before = node.operands.iter().filter_map(|value| lengths.get(value));
        let before = before.max().copied().unwrap_or(0);
        let length = match node.op {
            Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Select
            | Op::Clamp
            | Op::Convert(_) => before + 1,
            Op::Broadcast { .. } | Op::Reshape { .. } => before,
            _ => 0,
        };
        rewriter.map_operands(&mut node);
        let (result, origin) = (node.results.first().copied(), node.origin);
        rewriter.keep(node);
        let Some(old) = result.filter(|_| length > 0) else {
            continue;
        };
        if length < LONGEST {
            lengths.insert(old, length);
            continue;
        }
        let value = rewriter.value(old);
        let types = vec![rewriter.new.ty(value).clone()];
        let op = Op::OptimizationBarrier;
        let cut = rewriter.new.push_typed(op, vec![value], types, origin)[0];
        rewriter.replace(old, cut);
    }
    rewriter.finish(outputs)
}

#[cfg(test)]
mod tests {
    use halite_core::{DType, TensorType};

    use super::*;
    use crate::UnaryOp;

    fn barriers(length: usize) -> usize {
        let mut graph = Graph::new();
        let mut x = graph.input(TensorType::new(DType::F32, [2]));
        for _ in 0..length {
            x = graph.push(Op::Unary(UnaryOp::Tanh), &[x], None).unwrap()[0];
        }
        graph.set_outputs(vec![x]);
        let graph = without_long_chains(graph);
        crate::verify(&graph).unwrap();
        let is_barrier = |node: &&crate::Node| matches!(node.op, Op::OptimizationBarrier);
        graph.nodes().iter().filter(is_barrier).count()
    }

    #[test]
    fn long_chains_are_cut() {
        assert_eq!([499, 500, 1700, 6000].map(barriers), [0, 1, 3, 12]);
    }
}
