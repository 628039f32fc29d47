//! Groups of elementwise nodes and reductions, which run as one pass.
//!
//! The *level* of a node is one more than those of the nodes whose results it reads from memory;
//! operands that can stay in registers do not raise it. Nodes of one level and shape form a group.
//! Every path that leaves a group through memory ends at a higher level, so that
//! levels are an order of evaluation.

mod writer;

use halite_kernels::Program;

use self::writer::Writer;
use super::{
    graph::Graph,
    place::{Base, Place},
    shape::{Shape, Shapes},
};

/// The levels of all nodes.
pub(super) fn levels(graph: &Graph, shapes: &Shapes) -> Vec<usize> {
    let mut levels = vec![0; graph.nodes.len()];
    for (number, node) in graph.nodes.iter().enumerate() {
        let level = |place: &Place| {
            let source = graph.bases[place.base].node?;
            Some(levels[source] + usize::from(!shapes.shares_registers(graph, node, place)))
        };
        levels[number] = node.operands.iter().filter_map(level).max().unwrap_or(0);
    }
    delay(graph, shapes, &mut levels);
    levels
}

/// Moves nodes of groups to the first level that uses them, if all users can be in their group:
/// their results are never written to memory then.
fn delay(graph: &Graph, shapes: &Shapes, levels: &mut [usize]) {
    /// The lowest level of the users seen so far; `None` if one reads from memory.
    type Users = Option<usize>;
    let mut users: Vec<Users> = vec![Some(usize::MAX); graph.bases.len()];
    graph.outputs.iter().for_each(|&base| users[base] = None);
    for (number, node) in graph.nodes.iter().enumerate().rev() {
        if let (Some(_), &[result]) = (shapes.of(graph, node), &node.results[..])
            && let Some(first) = users[result]
            && first != usize::MAX
        {
            levels[number] = first;
        }
        for place in &node.operands {
            users[place.base] = match users[place.base] {
                Some(first) if shapes.shares_registers(graph, node, place) => {
                    Some(first.min(levels[number]))
                }
                _ => None,
            };
        }
    }
}

/// A group as a program, with the buffers that it reads and writes.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) program: Program,
    pub(super) sources: Vec<Base>,
    pub(super) targets: Vec<Base>,
    /// For each target the sources whose memory it can have: of as many words, each loaded in order
    /// before the target is stored.
    pub(super) in_place: Vec<Vec<usize>>,
    /// Whether all targets are zeros, such as the results of a loop before its first iteration.
    pub(super) is_zero: bool,
}

/// The program of nodes of one level and shape. `is_stored` are the results that something reads
/// from memory.
pub(super) fn group(
    graph: &Graph,
    shapes: &Shapes,
    shape: Shape,
    nodes: &[usize],
    is_stored: &[bool],
) -> Group {
    let mut writer = Writer::new(graph, shapes, is_stored);
    nodes
        .iter()
        .for_each(|&number| writer.write(&graph.nodes[number]));
    writer.assign(shape)
}
