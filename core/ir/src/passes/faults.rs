//! Programs that avoid faults of compilers, one module for each fault. Decision 0051 describes them,
//! and the suite `faults` tests whether a plugin still has them.

mod negative_padding;

use halite_core::Faults;

use crate::Graph;

/// Returns the graph in a form that a compiler with these faults compiles correctly.
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn around_faults(mut graph: Graph, faults: &Faults) -> Graph {
    if faults.negative_padding {
        graph = negative_padding::without(graph);
    }
    graph
}
