//! Lower bounds of the memory of a step, from its graph: what is far too large is not compiled.

use std::collections::HashSet;

use super::{Excess, Fit, text::si};
use crate::{
    Error, Result, TensorType,
    ir::{Graph, Node, Op, Value},
};

/// Most bytes that a process or a device can address: compilers take long for steps of more, and the
/// plans that they return for them mean nothing.
const ADDRESSABLE: u64 = 1 << 47;

/// Checks that each value of a step over `devices` devices has an address on each.
pub(super) fn check_addressable(graph: &Graph, devices: usize) -> Result<()> {
    let (ty, node) = match largest(graph) {
        Some((ty, node)) if ty.bytes() as u64 / devices as u64 > ADDRESSABLE => (ty, node),
        _ => return Ok(()),
    };
    let (bytes, most) = (ty.bytes() as f64 / devices as f64, ADDRESSABLE as f64);
    let (bytes, most) = (si(bytes, "B"), si(most, "B"));
    let (name, at) = (node.op.name(), at(node));
    let message = format!(
        "the step has a value {ty} ({name}{at}): {bytes} on each of {devices} devices, more than \
         the {most} that a device can address; lower the batch size, or the context"
    );
    Err(Error::invalid("plan", message))
}

/// A step of which one loop keeps this many times the memory of a device is not compiled: the
/// compiler would take as long as ever to find that it does not fit.
const HOPELESS: u64 = 8;

/// Memory of a large machine, in bytes: the limit where that of a device is not known.
const LARGE_MACHINE: u64 = 1 << 43;

/// The result for a step that is too large to be compiled, by what its loops keep on a device.
///
/// # Errors
/// If the memory of a device is not known, and it would be more than that of a large machine.
pub(super) fn hopeless(
    graph: &Graph,
    devices: usize,
    available: Option<u64>,
) -> Result<Option<Fit>> {
    let Some((bytes, node)) = kept_by_loop(graph) else {
        return Ok(None);
    };
    let required = bytes / devices as u64;
    if let Some(available) = available {
        let too_large = Fit::TooLarge {
            required,
            available,
            what: Excess::Loop,
        };
        return Ok((required / HOPELESS > available).then_some(too_large));
    }
    if required <= LARGE_MACHINE {
        return Ok(None);
    }
    let (bytes, most) = (required as f64, LARGE_MACHINE as f64);
    let (bytes, most) = (si(bytes, "B"), si(most, "B"));
    let (name, at) = (node.op.name(), at(node));
    let message = format!(
        "a loop of the step ({name}{at}) keeps {bytes} on each of {devices} devices, more than the \
         {most} of a large machine; lower the batch size, or the context"
    );
    Err(Error::invalid("plan", message))
}

/// The line of a node, for a message.
fn at(node: &Node) -> String {
    (node.origin).map_or_else(String::new, |line| format!(" at {line}"))
}

/// The loop that keeps the most, and its bytes over all devices: a lower bound of the memory of a
/// step. All operands of a loop are in memory when it starts, and all results when it ends;
/// broadcasts and the like, which compilers may compute inside of it, do not count.
fn kept_by_loop(graph: &Graph) -> Option<(u64, &Node)> {
    let nodes = graph.nodes().iter();
    let is_loop = |node: &&Node| matches!(node.op, Op::Scan { .. } | Op::While { .. });
    let may_be_inside = |node: &&Node| {
        matches!(
            node.op,
            Op::Broadcast { .. } | Op::Iota { .. } | Op::Constant(_)
        )
    };
    let inside = nodes.clone().filter(may_be_inside);
    let inside: HashSet<Value> = inside.flat_map(|node| &node.results).copied().collect();
    let bytes = |values: &[Value]| {
        let values: HashSet<Value> = values.iter().copied().collect();
        let sizes = values.difference(&inside);
        sizes.fold(0, |sum: u64, &value| {
            sum.saturating_add(graph.ty(value).bytes() as u64)
        })
    };
    let loops = nodes.clone().filter(is_loop);
    let loops = loops.map(|node| (bytes(&node.operands).max(bytes(&node.results)), node));
    let nested = nodes
        .flat_map(|node| node.op.regions())
        .filter_map(kept_by_loop);
    loops.chain(nested).max_by_key(|(bytes, _)| *bytes)
}

/// The largest result of the nodes of a graph and its regions.
fn largest(graph: &Graph) -> Option<(&TensorType, &Node)> {
    let nodes = graph.nodes().iter();
    let results = nodes.clone().flat_map(|node| {
        let types = node.results.iter().map(|&value| graph.ty(value));
        types.map(move |ty| (ty, node))
    });
    let nested = nodes.flat_map(|node| node.op.regions().into_iter().filter_map(largest));
    results.chain(nested).max_by_key(|(ty, _)| ty.bytes())
}
