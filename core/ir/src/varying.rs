//! Along which axes of a mesh devices compute different values.

use std::{collections::BTreeSet, sync::Arc};

use crate::{Axes, Graph, Groups, Op, ShardMap};

/// For each result of a `shard_map`, the manual axes along which devices may compute different parts. Along all others
/// they compute the same, whatever the operands.
pub fn varying(map: &ShardMap) -> Vec<BTreeSet<Arc<str>>> {
    let axes: Axes = map.manual_axes().into_iter().filter(|&(_, size)| size > 1).collect();
    let inputs =
        map.inputs.iter().map(|spec| mask_of(&axes, axes.iter().filter(|(axis, _)| spec.all_axes().any(|used| used == axis))));
    let outputs = masks(&axes, &map.body, inputs.collect());
    let named =
        |mask: Mask| axes.iter().enumerate().filter(|(i, _)| mask & bit(*i) != 0).map(|(_, (axis, _))| axis.clone()).collect();
    outputs.into_iter().map(named).collect()
}

/// A bit for each axis.
type Mask = u64;

fn bit(axis: usize) -> Mask {
    // Of two devices or more each, so many axes are no mesh; past the 63rd they share a bit, to be on the safe side.
    1 << axis.min(63)
}

fn mask_of<'a>(all: &Axes, some: impl Iterator<Item = &'a (Arc<str>, usize)>) -> Mask {
    some.filter_map(|(axis, _)| all.iter().position(|(other, _)| other == axis)).map(bit).fold(0, |mask, bit| mask | bit)
}

/// The masks of the outputs of `graph`, from those of its inputs.
fn masks(axes: &Axes, graph: &Graph, inputs: Vec<Mask>) -> Vec<Mask> {
    let mut known: Vec<Mask> = vec![0; graph.value_count()];
    for (input, mask) in graph.inputs().iter().zip(inputs) {
        known[input.index()] = mask;
    }
    let all = mask_of(axes, axes.iter());
    let of_groups = |groups: &Groups| match groups {
        Groups::Axes(over) => mask_of(axes, over.iter()),
        Groups::Lists(_) | Groups::All => all,
    };
    for node in graph.nodes() {
        let operands: Vec<Mask> = node.operands.iter().map(|operand| known[operand.index()]).collect();
        let any = operands.iter().fold(0, |mask, operand| mask | operand);
        let results: Vec<Mask> = match &node.op {
            // Every member of a group gets the same; different groups do not.
            Op::AllReduce { groups, .. } | Op::AllGather { groups, .. } => match groups {
                Groups::Axes(_) | Groups::All => vec![any & !of_groups(groups)],
                Groups::Lists(lists) if lists.len() == 1 => vec![0],
                Groups::Lists(_) => vec![if any == 0 { 0 } else { all }],
            },
            Op::ReduceScatter { groups, .. } | Op::AllToAll { groups, .. } | Op::CollectivePermute { groups, .. } => {
                vec![any | of_groups(groups)]
            }
            Op::PartitionId => vec![all],
            Op::AxisIndex(over) => vec![mask_of(axes, over.iter())],
            Op::While { carried, condition, body } => {
                // What varies in one turn varies in the next, until nothing more does.
                let mut turn = operands;
                loop {
                    let stop = masks(axes, condition, turn.clone())[0];
                    let next = masks(axes, body, turn.clone());
                    let grown: Vec<Mask> = turn.iter().zip(next).map(|(old, new)| old | new | stop).collect();
                    if grown == turn[..*carried] {
                        break grown;
                    }
                    turn.splice(..*carried, grown);
                }
            }
            Op::Scan { carried, body, .. } => {
                let mut turn = operands;
                loop {
                    let results = masks(axes, body, turn.clone());
                    let grown: Vec<Mask> = turn.iter().zip(&results).take(*carried).map(|(old, new)| old | new).collect();
                    if grown == turn[..*carried] {
                        break grown.into_iter().chain(results.into_iter().skip(*carried)).collect();
                    }
                    turn.splice(..*carried, grown);
                }
            }
            Op::Checkpoint { body, .. } => masks(axes, body, operands),
            Op::Case { branches } => {
                let results = branches.iter().map(|branch| masks(axes, branch, operands[1..].to_vec()));
                let either = |a: Vec<Mask>, b: Vec<Mask>| a.iter().zip(b).map(|(a, b)| a | b).collect();
                results.reduce(either).unwrap_or_default().into_iter().map(|mask| mask | operands[0]).collect()
            }
            Op::Constant(_)
            | Op::Iota { .. }
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Select
            | Op::Clamp
            | Op::Convert(_)
            | Op::BitcastConvert(_)
            | Op::ReducePrecision { .. }
            | Op::Broadcast { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Reverse { .. }
            | Op::Concatenate { .. }
            | Op::Slice { .. }
            | Op::DynamicSlice { .. }
            | Op::DynamicUpdateSlice
            | Op::Pad { .. }
            | Op::Gather(_)
            | Op::Scatter(_)
            | Op::Dot(_)
            | Op::Convolution(_)
            | Op::Reduce { .. }
            | Op::ArgReduce { .. }
            | Op::ReduceWindow { .. }
            | Op::SelectAndScatter { .. }
            | Op::Sort { .. }
            | Op::ReplicaId
            | Op::ShardMap(_)
            | Op::ShardingConstraint(_) => vec![any; node.results.len()],
            // A barrier changes nothing.
            Op::OptimizationBarrier => operands,
            // Of what is not known here, nothing is.
            Op::CustomCall(_) => vec![all; node.results.len()],
        };
        for (result, mask) in node.results.iter().zip(results) {
            known[result.index()] = mask;
        }
    }
    graph.outputs().iter().map(|output| known[output.index()]).collect()
}
