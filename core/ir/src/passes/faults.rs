//! Programs that avoid faults of compilers, one module for each fault. Decision 0051 describes them,
//! and the suite `plugin_faults` tests whether a plugin still has them.

mod negative_padding;
mod split_windows;

use halite_core::Faults;

use crate::Graph;

/// Returns the graph of a program for this number of devices, in a form that a compiler with these
/// faults compiles correctly.
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn around_faults(mut graph: Graph, faults: &Faults, devices: usize) -> Graph {
    if faults.negative_padding {
        graph = negative_padding::without(graph);
    }
    if faults.split_windows && devices > 1 {
        graph = split_windows::without(graph);
    }
    graph
}
