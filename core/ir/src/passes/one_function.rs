//! Small programs with a loop, prepared for XLA's CPU compiler to make one function of each.
//!
//! XLA's CPU plugin runs a program as a list of functions, libraries' among them, and each has a
//! price of half a microsecond: most of the time where tensors have a few thousand elements.

use std::panic::Location;

use halite_core::{DType, TensorType};

use super::{Rewriter, map_regions};
use crate::{DotAttributes, Family, Graph, Node, Op, Value, op::marker_op};

/// Returns the graph as it is printed with [`Interface::one_function`]; `None` where that does not
/// pay, or the compiler cannot compile one of its operations in a function.
///
/// It pays in loops over small tensors. Programs without a loop are taken only `without_loop`. Only
/// for programs of one device, on [`Capabilities::one_function`].
///
/// Dots are between transposed operands, so that they contract the last dimension of the first with
/// the first dimension of the second: the compiler has no fast code for others inside a function.
///
/// [`Interface::one_function`]: crate::Interface::one_function
/// [`Capabilities::one_function`]: halite_core::Capabilities::one_function
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn one_function(graph: &Graph, without_loop: bool) -> Option<Graph> {
    let mut nodes = 0;
    let pays = (without_loop || has_loop(graph))
        && !graph.outputs().is_empty()
        && !graph.nodes().is_empty()
        && is_small(graph, &mut nodes)
        && nodes <= MOST_NODES;
    pays.then(|| canonical_dots(graph.clone()))
}

/// Most nodes of a program, loops included, an estimate: the time to compile a function grows
/// faster than its length.
const MOST_NODES: usize = 1000;

/// Most elements of a value that an operation reads or writes, an estimate: larger ones are worth
/// several threads.
const MOST_ELEMENTS: usize = 1 << 14;

/// Most multiplications of a dot, as measured: libraries are faster at larger ones.
const MOST_MULTIPLICATIONS: usize = 1 << 16;

/// Most elements of a dimension that is contracted: the compiler has no fast code for more.
const LONGEST_CONTRACTION: usize = 128;

/// Returns whether there is a loop.
fn has_loop(graph: &Graph) -> bool {
    graph.nodes().iter().any(|node| match &node.op {
        Op::While { .. } | Op::Scan { .. } => true,
        op => op.regions().into_iter().any(has_loop),
    })
}

/// Returns whether all operations can be in one function and are small; adds their number to
/// `nodes`.
///
/// XLA's compiler aborts the process on some operations in a function, so only those are taken that
/// the tests compile: no branches, nothing that calls a library.
fn is_small(graph: &Graph, nodes: &mut usize) -> bool {
    *nodes += graph.nodes().len();
    let is_small_value = |&value: &Value| graph.ty(value).elements() <= MOST_ELEMENTS;
    graph.nodes().iter().all(|node| match &node.op {
        // Results of loops are stacked in place, and may be large.
        Op::While { .. } | Op::Scan { .. } | Op::Checkpoint { .. } => {
            (node.op.regions().into_iter()).all(|region| is_small(region, nodes))
        }
        Op::Dot(dot, ..) => is_small_dot(graph, node, dot),
        Op::Scatter(..)
        | Op::Convolution(..)
        | Op::ReduceWindow { .. }
        | Op::SelectAndScatter { .. }
        | Op::Sort { .. }
        | Op::Cholesky { .. }
        | Op::TriangularSolve(_) => false,
        Op::Slice { .. } | Op::DynamicSlice { .. } | Op::Gather(_) => {
            node.results.iter().all(is_small_value)
        }
        marker_op!() => true,
        op if op.family() == Family::Local => {
            let mut values = node.operands.iter().chain(&node.results);
            values.all(is_small_value)
        }
        _ => false,
    })
}

/// Returns whether the dot is one of small matrices of `f32`.
fn is_small_dot(graph: &Graph, node: &Node, dot: &DotAttributes) -> bool {
    let types = [0, 1].map(|operand| graph.ty(node.operands[operand]));
    let result = graph.ty(node.results[0]);
    let depth = (dot.lhs_contracting.iter())
        .map(|&dim| types[0].dims()[dim])
        .product();
    let is_f32 = [types[0], types[1], result].map(TensorType::dtype) == [DType::F32; 3];
    let is_matrix = dot.lhs_batching.is_empty() && types.iter().all(|ty| ty.rank() == 2);
    let multiplications = result.elements().saturating_mul(depth);
    is_f32 && is_matrix && depth <= LONGEST_CONTRACTION && multiplications <= MOST_MULTIPLICATIONS
}

/// Makes each dot of matrices contract the last dimension of the first with the first dimension of
/// the second.
fn canonical_dots(graph: Graph) -> Graph {
    let (mut rewriter, nodes, outputs) = Rewriter::of(graph);
    for mut node in nodes {
        map_regions(&mut node.op, canonical_dots);
        rewriter.map_operands(&mut node);
        if let Op::Dot(dot, ..) = &mut node.op {
            for (operand, contract, canonical) in [
                (0, &mut dot.lhs_contracting, 1),
                (1, &mut dot.rhs_contracting, 0),
            ] {
                if **contract != [canonical] {
                    *contract = vec![canonical];
                    let value = node.operands[operand];
                    node.operands[operand] = transposed(&mut rewriter.new, value, node.origin);
                }
            }
        }
        rewriter.keep(node);
    }
    rewriter.finish(outputs)
}

fn transposed(
    graph: &mut Graph,
    matrix: Value,
    origin: Option<&'static Location<'static>>,
) -> Value {
    let ty = graph.ty(matrix);
    let ty = ty.with_dims([ty.dims()[1], ty.dims()[0]]);
    let op = Op::Transpose {
        permutation: vec![1, 0],
    };
    graph.push_typed(op, vec![matrix], vec![ty], origin)[0]
}
