//! Programs that avoid faults of compilers, one module for each fault. Decision 0051 describes them,
//! and the suite `plugin_faults` tests whether a plugin still has them.

mod clamped_starts;
mod elementwise;
mod negative_padding;
mod split_products;
mod split_windows;
mod swapped_operands;

use halite_core::{Faults, MeshShape};

use super::{Rewriter, map_regions};
use crate::{Graph, Node, Value};

/// Returns the graph of a program for a mesh of this shape, in a form that a compiler with these faults
/// compiles correctly.
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn around_faults(mut graph: Graph, faults: &Faults, mesh: &MeshShape) -> Graph {
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
