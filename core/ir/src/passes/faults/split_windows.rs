//! Windows along dimensions that are whole on every device. XLA's partitioner computes some wrong
//! along a dimension that is sharded, and aborts the process on others.

use std::panic::Location;

use crate::{
    Graph, Node, Op, Value, Window,
    passes::{Rewriter, kernels::is_manual, map_regions},
};

/// Constrains operands and results of operations with windows, so that no dimension along which a
/// window moves is sharded. Other dimensions, such as a batch, are sharded as before.
pub(super) fn without(graph: Graph) -> Graph {
    let (mut rewriter, nodes, outputs) = Rewriter::of(graph);
    for mut node in nodes {
        if !is_manual(&node.op) {
            map_regions(&mut node.op, without);
        }
        rewriter.map_operands(&mut node);
        let windows = Windows::of(&rewriter.new, &node);
        for (operand, dims) in node.operands.iter_mut().zip(windows.operands) {
            *operand = unsharded(&mut rewriter.new, *operand, dims, node.origin);
        }
        let (results, origin) = (node.results.clone(), node.origin);
        rewriter.keep(node);
        if !windows.result.is_empty() {
            let result = rewriter.value(results[0]);
            let whole = unsharded(&mut rewriter.new, result, windows.result, origin);
            rewriter.replace(results[0], whole);
        }
    }
    rewriter.finish(outputs)
}

fn unsharded(
    graph: &mut Graph,
    value: Value,
    dims: Vec<usize>,
    origin: Option<&'static Location<'static>>,
) -> Value {
    if dims.is_empty() {
        return value;
    }
    let ty = graph.ty(value).clone();
    graph.push_typed(Op::Unsharded { dims }, vec![value], vec![ty], origin)[0]
}

/// The dimensions along which the windows of an operation move.
#[derive(Default)]
struct Windows {
    /// Of each operand, the first ones.
    operands: Vec<Vec<usize>>,
    /// Of the result.
    result: Vec<usize>,
}

impl Windows {
    /// Those of an operation of `graph`; none of an operation without windows.
    fn of(graph: &Graph, node: &Node) -> Self {
        let rank = |operand: usize| graph.ty(node.operands[operand]).rank();
        let alike = |operands: usize, moves: &dyn Fn(usize) -> bool| {
            let dims: Vec<usize> = (0..rank(0)).filter(|&dim| moves(dim)).collect();
            Windows {
                operands: vec![dims.clone(); operands],
                result: dims,
            }
        };
        match &node.op {
            Op::Pad {
                low,
                high,
                interior,
            } => alike(1, &|dim| (low[dim], high[dim], interior[dim]) != (0, 0, 0)),
            Op::ReduceWindow { window, .. } => alike(1, &|dim| window.moves(dim)),
            Op::SelectAndScatter { window, .. } => alike(2, &|dim| window.moves(dim)),
            Op::Convolution(conv) => {
                let sorted = |dims: &[usize]| {
                    let mut dims = dims.to_vec();
                    dims.sort_unstable();
                    dims
                };
                Windows {
                    operands: vec![sorted(&conv.input.spatial), sorted(&conv.kernel.spatial)],
                    result: sorted(&conv.output.spatial),
                }
            }
            _ => Windows::default(),
        }
    }
}

impl Window {
    /// Whether it does more along a dimension than to take each element.
    fn moves(&self, dim: usize) -> bool {
        let steps = [
            self.sizes[dim],
            self.strides[dim],
            self.base_dilations[dim],
            self.window_dilations[dim],
        ];
        steps != [1; 4] || self.padding[dim] != (0, 0)
    }
}
