//! Along which axes of a mesh devices compute different values.

use std::{collections::BTreeSet, panic::Location, sync::Arc};

use crate::{
    Axes, Graph, Groups, Op, ShardMap,
    op::{device_index_op, local_op, marker_op},
};

/// What devices may do otherwise than others: see [`varying`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Varying {
    /// For each result, the manual axes along which devices may compute different parts. Along all
    /// others they compute the same, whatever the operands.
    pub outputs: Vec<BTreeSet<Arc<str>>>,
    /// A collective that not all of its members may come to.
    pub stuck: Option<Stuck>,
}

/// A collective in a loop or branch which devices that it is between may leave, or take, apart from
/// each other: those that come to it would wait for the others for ever.
#[derive(Clone, Debug, PartialEq)]
pub struct Stuck {
    /// Name of the collective.
    pub collective: &'static str,
    /// The line that made it.
    pub origin: Option<&'static Location<'static>>,
    /// Name of the loop or branch that decides.
    pub inside: &'static str,
    /// An axis along which it may decide otherwise, and which the collective is over.
    pub axis: Arc<str>,
}

/// Along which manual axes of a `shard_map` devices may do something else than others.
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

/// A bit for each axis.
type Mask = u64;

fn bit(axis: usize) -> Mask {
    // Of two devices or more each, so many axes are no mesh; past the 63rd they share a bit, to be
    // on the safe side.
    1 << axis.min(63)
}

fn mask_of<'a>(all: &Axes, some: impl Iterator<Item = &'a (Arc<str>, usize)>) -> Mask {
    some.filter_map(|(axis, _)| all.iter().position(|(other, _)| other == axis))
        .map(bit)
        .fold(0, |mask, bit| mask | bit)
}

struct Walk<'a> {
    axes: &'a Axes,
    /// The first that was found.
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

    /// `graph` is run as often, or if, `decides` says, which varies along these axes.
    fn decided(&mut self, decides: Mask, inside: &'static str, graph: &Graph) {
        for node in graph.nodes() {
            if let Some(axis) = groups_of(&node.op)
                .and_then(|groups| self.named(decides & self.over(groups)).next())
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
                self.decided(decides, inside, region);
            }
        }
    }

    /// The masks of the outputs of `graph`, from those of its inputs.
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
                // Every member of a group gets the same; different groups do not.
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
                    // What varies in one turn varies in the next, until nothing more does.
                    let mut turn = operands;
                    loop {
                        let stop = self.masks(condition, turn.clone())[0];
                        let next = self.masks(body, turn.clone());
                        let grown: Vec<Mask> = turn
                            .iter()
                            .zip(next)
                            .map(|(old, new)| old | new | stop)
                            .collect();
                        if grown == turn[..*carried] {
                            self.decided(stop, "while", condition);
                            self.decided(stop, "while", body);
                            break grown;
                        }
                        turn.splice(..*carried, grown);
                    }
                }
                Op::Scan { carried, body, .. } => {
                    let mut turn = operands;
                    loop {
                        let results = self.masks(body, turn.clone());
                        let grown: Vec<Mask> = turn
                            .iter()
                            .zip(&results)
                            .take(*carried)
                            .map(|(old, new)| old | new)
                            .collect();
                        if grown == turn[..*carried] {
                            break grown
                                .into_iter()
                                .chain(results.into_iter().skip(*carried))
                                .collect();
                        }
                        turn.splice(..*carried, grown);
                    }
                }
                Op::Checkpoint { body, .. } => self.masks(body, operands),
                Op::Case { branches } => {
                    branches
                        .iter()
                        .for_each(|branch| self.decided(operands[0], "case", branch));
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
