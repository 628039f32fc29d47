//! Programs that avoid faults of compilers, one module for each fault. Decisions 0051 and 0054 describe
//! them, and the suite `plugin_faults` tests whether a plugin still has them.

mod clamped_starts;
mod elementwise;
mod equal_indices;
mod integer_convolutions;
mod negative_padding;
mod reversed_kernels;
mod split_products;
mod split_windows;
mod swapped_operands;

use std::panic::Location;

use halite_core::{Faults, MeshShape, TensorType};

use super::{Rewriter, map_regions};
use crate::{Graph, Literal, Node, Op, Value};

/// Returns the graph of a program for a mesh of this shape, in a form that a compiler with these faults
/// compiles correctly.
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn around_faults(mut graph: Graph, faults: &Faults, mesh: &MeshShape) -> Graph {
    if faults.integer_convolutions {
        graph = integer_convolutions::without(graph);
    }
    if faults.reversed_kernels {
        graph = reversed_kernels::without(graph);
    }
    if faults.equal_indices {
        graph = equal_indices::without(graph);
    }
    if faults.negative_padding {
        graph = negative_padding::without(graph);
    }
    if faults.swapped_operands {
        graph = swapped_operands::without(graph);
    }
    if faults.arc_tangent {
        graph = elementwise::without_arc_tangent(graph);
    }
    if faults.integer_power {
        graph = elementwise::without_integer_power(graph);
    }
    if faults.nested_slices {
        graph = clamped_starts::without_nested(graph);
    }
    if faults.split_windows && mesh.size() > 1 {
        graph = clamped_starts::without(split_windows::without(graph, mesh));
    }
    if faults.split_products {
        graph = split_products::without(graph, mesh);
    }
    graph
}

/// Applies `change` to each node; a value that it returns takes the place of the only result.
fn rewritten(graph: Graph, change: &dyn Fn(&mut Graph, &mut Node) -> Option<Value>) -> Graph {
    let (mut rewriter, nodes, outputs) = Rewriter::of(graph);
    for mut node in nodes {
        map_regions(&mut node.op, |body| rewritten(body, change));
        rewriter.map_operands(&mut node);
        match change(&mut rewriter.new, &mut node) {
            Some(value) => rewriter.replace(node.results[0], value),
            None => rewriter.keep(node),
        }
    }
    rewriter.finish(outputs)
}

/// Appends operations that a node is lowered to.
struct Append<'g> {
    graph: &'g mut Graph,
    origin: Option<&'static Location<'static>>,
}

impl Append<'_> {
    fn push(&mut self, op: Op, operands: &[Value]) -> Value {
        let results = self.graph.push(op, operands, self.origin);
        results.expect("operands of types that the operation takes")[0]
    }

    fn ty(&self, value: Value) -> TensorType {
        self.graph.ty(value).clone()
    }

    /// A constant whose elements are all this integer.
    fn integer(&mut self, value: i64, ty: &TensorType) -> Value {
        let element = &value.to_le_bytes()[..ty.dtype().size()];
        let literal = Literal::from_element(element, ty.clone()).expect("the bytes of one element");
        self.push(Op::Constant(literal), &[])
    }

    fn reshape(&mut self, value: Value, dims: Vec<usize>) -> Value {
        match self.graph.ty(value).dims() == dims {
            true => value,
            false => self.push(Op::Reshape { dims }, &[value]),
        }
    }

    fn transpose(&mut self, value: Value, permutation: Vec<usize>) -> Value {
        match permutation.is_sorted() {
            true => value,
            false => self.push(Op::Transpose { permutation }, &[value]),
        }
    }
}
