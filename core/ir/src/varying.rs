//! Dataflow analysis of device variance: the mesh axes along which devices compute different values.

use std::{collections::BTreeSet, panic::Location, sync::Arc};

use crate::{
    Axes, Graph, Groups, Op, ShardMap,
    op::{device_index_op, local_op, marker_op},
};

/// Result of [`varying`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Varying {
    /// For each result, the manual axes along which devices may compute different values. Along all
    /// others they compute the same for any operands.
    pub outputs: Vec<BTreeSet<Arc<str>>>,
    /// A collective that not all of its members may reach.
    pub stuck: Option<Stuck>,
}

/// A collective in a loop or branch whose condition may differ between its members: those that
/// reach it would wait forever for the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Stuck {
    /// Name of the collective.
    pub collective: &'static str,
    /// The line that recorded it.
    pub origin: Option<&'static Location<'static>>,
    /// Name of the loop or branch.
    pub inside: &'static str,
    /// An axis of the collective along which the condition may differ.
    pub axis: Arc<str>,
}

/// Finds the manual axes of a `shard_map` along which devices may compute different values.
pub fn varying(map: &ShardMap) -> Varying {
    let axes: Axes = map
        .manual_axes()
        .into_iter()
        .filter(|&(_, size)| size > 1)
        .collect();
    let inputs = map.inputs.iter().map(|spec| {
        mask_of(
            &axes,
            axes.iter()
                .filter(|(axis, _)| spec.all_axes().any(|used| used == axis)),
        )
    });
    let mut walk = Walk {
        axes: &axes,
        stuck: None,
    };
    let outputs = walk.masks(&map.body, inputs.collect());
    let outputs = outputs
        .into_iter()
        .map(|mask| walk.named(mask).collect())
        .collect();
    Varying {
        outputs,
        stuck: walk.stuck,
    }
}

/// Set of axes: the lattice of the analysis, with a bit for each axis.
type Mask = u64;

fn bit(axis: usize) -> Mask {
    // Meshes have fewer than 64 axes of two or more devices; further axes conservatively share a
    // bit.
    1 << axis.min(63)
}

fn mask_of<'a>(all: &Axes, some: impl Iterator<Item = &'a (Arc<str>, usize)>) -> Mask {
    some.filter_map(|(axis, _)| all.iter().position(|(other, _)| other == axis))
        .map(bit)
        .fold(0, |mask, bit| mask | bit)
}

struct Walk<'a> {
    axes: &'a Axes,
    /// The first one found.
    stuck: Option<Stuck>,
}

impl Walk<'_> {
    fn named(&self, mask: Mask) -> impl Iterator<Item = Arc<str>> {
        self.axes
            .iter()
            .enumerate()
            .filter(move |(i, _)| mask & bit(*i) != 0)
            .map(|(_, (axis, _))| axis.clone())
    }

    fn over(&self, groups: &Groups) -> Mask {
        match groups {
            Groups::Axes(over) => mask_of(self.axes, over.iter()),
            Groups::Lists(_) | Groups::All => mask_of(self.axes, self.axes.iter()),
        }
    }

    /// Checks a body whose execution depends on a condition that varies along these axes.
    fn conditional(&mut self, condition: Mask, inside: &'static str, graph: &Graph) {
        for node in graph.nodes() {
            if let Some(axis) = groups_of(&node.op)
                .and_then(|groups| self.named(condition & self.over(groups)).next())
            {
                let stuck = Stuck {
                    collective: node.op.name(),
                    origin: node.origin,
                    inside,
                    axis,
                };
                self.stuck.get_or_insert(stuck);
            }
            for region in node.op.regions() {
                self.conditional(condition, inside, region);
            }
        }
    }

    /// Masks of the outputs of `graph`, given those of its inputs.
    fn masks(&mut self, graph: &Graph, inputs: Vec<Mask>) -> Vec<Mask> {
        let axes = self.axes;
        let mut known: Vec<Mask> = vec![0; graph.value_count()];
        for (input, mask) in graph.inputs().iter().zip(inputs) {
            known[input.index()] = mask;
        }
        let all = mask_of(axes, axes.iter());
        for node in graph.nodes() {
            let operands: Vec<Mask> = node
                .operands
                .iter()
                .map(|operand| known[operand.index()])
                .collect();
            let any = operands.iter().fold(0, |mask, operand| mask | operand);
            let results: Vec<Mask> = match &node.op {
                // Members of a group get the same value; different groups get different ones.
                Op::AllReduce { groups, .. } | Op::AllGather { groups, .. } => match groups {
                    Groups::Axes(_) | Groups::All => vec![any & !self.over(groups)],
                    Groups::Lists(lists) if lists.len() == 1 => vec![0],
                    Groups::Lists(_) => vec![if any == 0 { 0 } else { all }],
                },
                Op::ReduceScatter { groups, .. }
                | Op::AllToAll { groups, .. }
                | Op::CollectivePermute { groups, .. } => {
                    vec![any | self.over(groups)]
                }
                Op::PartitionId => vec![all],
                Op::AxisIndex(over) => vec![mask_of(axes, over.iter())],
                Op::While {
                    carried,
                    condition,
                    body,
                } => {
                    // The fixed point over iterations.
                    let mut state = operands;
                    loop {
                        let stop = self.masks(condition, state.clone())[0];
                        let next = self.masks(body, state.clone());
                        let grown: Vec<Mask> = state
                            .iter()
                            .zip(next)
                            .map(|(old, new)| old | new | stop)
                            .collect();
                        if grown == state[..*carried] {
                            self.conditional(stop, "while", condition);
                            self.conditional(stop, "while", body);
                            break grown;
                        }
                        state.splice(..*carried, grown);
                    }
                }
                Op::Scan { carried, body, .. } => {
                    let mut state = operands;
                    loop {
                        let results = self.masks(body, state.clone());
                        let grown: Vec<Mask> = state
                            .iter()
                            .zip(&results)
                            .take(*carried)
                            .map(|(old, new)| old | new)
                            .collect();
                        if grown == state[..*carried] {
                            break grown
                                .into_iter()
                                .chain(results.into_iter().skip(*carried))
                                .collect();
                        }
                        state.splice(..*carried, grown);
                    }
                }
                Op::Checkpoint { body, .. } => self.masks(body, operands),
                Op::Case { branches } => {
                    branches
                        .iter()
                        .for_each(|branch| self.conditional(operands[0], "case", branch));
                    let results = branches
                        .iter()
                        .map(|branch| self.masks(branch, operands[1..].to_vec()));
                    let either =
                        |a: Vec<Mask>, b: Vec<Mask>| a.iter().zip(b).map(|(a, b)| a | b).collect();
                    results
                        .reduce(either)
                        .unwrap_or_default()
                        .into_iter()
                        .map(|mask| mask | operands[0])
                        .collect()
                }
                local_op!() | Op::ReplicaId | Op::ShardMap(_) => vec![any; node.results.len()],
                marker_op!() => operands,
                // A custom call is conservatively treated as varying over all devices.
                Op::CustomCall(_) => vec![all; node.results.len()],
            };
            for (result, mask) in node.results.iter().zip(results) {
                known[result.index()] = mask;
            }
        }
        graph
            .outputs()
            .iter()
            .map(|output| known[output.index()])
            .collect()
    }
}

/// The groups of a collective.
fn groups_of(op: &Op) -> Option<&Groups> {
    match op {
        Op::AllReduce { groups, .. }
        | Op::AllGather { groups, .. }
        | Op::ReduceScatter { groups, .. }
        | Op::AllToAll { groups, .. }
        | Op::CollectivePermute { groups, .. } => Some(groups),
        local_op!()
        | marker_op!()
        | device_index_op!()
        | Op::While { .. }
        | Op::Scan { .. }
        | Op::Checkpoint { .. }
        | Op::Case { .. }
        | Op::ShardMap(_)
        | Op::CustomCall(_) => None,
    }
}
