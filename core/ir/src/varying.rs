//! Dataflow analysis of device variance: the mesh axes along which devices compute different
//! values.

use std::{collections::BTreeSet, panic::Location, sync::Arc};

use crate::{
    Axes, CustomCall, Graph, Groups, Op, ShardMap,
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
        let mut known: Vec<Mask> = vec![0; graph.value_count()];
        for (input, mask) in graph.inputs().iter().zip(inputs) {
            known[input.index()] = mask;
        }
        for node in graph.nodes() {
            let operands = node.operands.iter();
            let operands = operands.map(|operand| known[operand.index()]).collect();
            let results = self.results(&node.op, operands, node.results.len());
            for (result, mask) in node.results.iter().zip(results) {
                known[result.index()] = mask;
            }
        }
        let outputs = graph.outputs().iter();
        outputs.map(|output| known[output.index()]).collect()
    }

    /// Masks of the `count` results of an operation, given those of its operands.
    fn results(&mut self, op: &Op, operands: Vec<Mask>, count: usize) -> Vec<Mask> {
        let all = mask_of(self.axes, self.axes.iter());
        let any = operands.iter().fold(0, |mask, operand| mask | operand);
        match op {
            // Members of a group get the same value; different groups get different ones.
            Op::AllReduce { groups, .. } | Op::AllGather { groups, .. } => match groups {
                Groups::Axes(_) | Groups::All => vec![any & !self.over(groups)],
                Groups::Lists(lists) if lists.len() == 1 => vec![0],
                Groups::Lists(_) => vec![if any == 0 { 0 } else { all }],
            },
            Op::ReduceScatter { groups, .. }
            | Op::AllToAll { groups, .. }
            | Op::CollectivePermute { groups, .. } => vec![any | self.over(groups)],
            Op::PartitionId => vec![all],
            Op::AxisIndex(over) => vec![mask_of(self.axes, over.iter())],
            Op::While {
                carried,
                condition,
                body,
            } => self.while_loop(operands, *carried, condition, body),
            Op::Scan { carried, body, .. } => self.scan(operands, *carried, body),
            Op::Checkpoint { body, .. } => self.masks(body, operands),
            Op::Case { branches } => self.case(operands, branches),
            local_op!() | Op::ReplicaId | Op::ShardMap(_) => vec![any; count],
            marker_op!() => operands,
            Op::CustomCall(CustomCall {
                decomposition: Some(graph),
                ..
            }) => self.masks(graph, operands),
            // A custom call is conservatively treated as varying over all devices.
            Op::CustomCall(_) => vec![all; count],
        }
    }

    /// The fixed point over iterations of the carried values, which also vary with the condition.
    fn while_loop(
        &mut self,
        mut state: Vec<Mask>,
        carried: usize,
        condition: &Graph,
        body: &Graph,
    ) -> Vec<Mask> {
        loop {
            let stop = self.masks(condition, state.clone())[0];
            let next = self.masks(body, state.clone());
            let stopped: Vec<Mask> = next.iter().map(|mask| mask | stop).collect();
            if !grow(&mut state[..carried], &stopped) {
                self.conditional(stop, "while", condition);
                self.conditional(stop, "while", body);
                state.truncate(carried);
                return state;
            }
        }
    }

    /// The fixed point over iterations of the carried values; stacked results follow from it.
    fn scan(&mut self, mut state: Vec<Mask>, carried: usize, body: &Graph) -> Vec<Mask> {
        loop {
            let mut results = self.masks(body, state.clone());
            if !grow(&mut state[..carried], &results[..carried]) {
                results[..carried].copy_from_slice(&state[..carried]);
                return results;
            }
        }
    }

    /// The union over the branches; results also vary with the index.
    fn case(&mut self, operands: Vec<Mask>, branches: &[Graph]) -> Vec<Mask> {
        let (index, inputs) = (operands[0], &operands[1..]);
        for branch in branches {
            self.conditional(index, "case", branch);
        }
        let mut results: Vec<Mask> = Vec::new();
        for branch in branches {
            let branch = self.masks(branch, inputs.to_vec());
            results.resize(branch.len(), index);
            grow(&mut results, &branch);
        }
        results
    }
}

/// Joins `with` into `masks`, one by one. Returns whether any of them grew.
fn grow(masks: &mut [Mask], with: &[Mask]) -> bool {
    let mut grew = false;
    for (mask, with) in masks.iter_mut().zip(with) {
        grew |= with & !*mask != 0;
        *mask |= with;
    }
    grew
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
