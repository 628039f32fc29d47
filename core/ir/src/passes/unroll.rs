//! Loops of a fixed length as the nodes of all their iterations.

use std::{collections::HashMap, panic::Location};

use halite_core::TensorType;

use super::{Rewriter, dead_code, map_regions, put_nodes};
use crate::{Graph, Node, Op, Value};

/// Puts the iterations of each [`Op::Scan`] in the place of the loop, where they have at most
/// `most_nodes` together. Slices of what an unrolled loop stacks are the values of its iterations.
///
/// XLA's CUDA plugin launches the operations of a loop one by one, with the copies that slice and
/// stack on other streams, and those of a straight program as one CUDA graph.
///
/// Not for programs with a [checkpoint](has_checkpoint): without loops, the compiler merges what
/// the gradients recompute with the values of the forward pass, and keeps all of them.
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn unrolled(graph: Graph, most_nodes: usize) -> Graph {
    if most_nodes == 0 {
        return graph;
    }
    let (mut rewriter, nodes, outputs) = Rewriter::of(graph);
    let mut stacks = HashMap::new();
    for mut node in nodes {
        rewriter.map_operands(&mut node);
        map_regions(&mut node.op, |region| unrolled(region, most_nodes));
        match &node.op {
            Op::Scan { length, body, .. }
                if *length > 0 && length.saturating_mul(node_count(body)) <= most_nodes =>
            {
                put_iterations(&mut rewriter, &mut stacks, node);
            }
            _ => rewriter.keep(node),
        }
    }
    dead_code(rewriter.finish(outputs))
}

/// Returns whether there is an [`Op::Checkpoint`], in a region too. The precision pass leaves none.
pub fn has_checkpoint(graph: &Graph) -> bool {
    graph.nodes().iter().any(|node| {
        let is_checkpoint = matches!(node.op, Op::Checkpoint { .. });
        is_checkpoint || node.op.regions().into_iter().any(has_checkpoint)
    })
}

/// Nodes of a graph and of its regions.
fn node_count(graph: &Graph) -> usize {
    let regions = |node: &Node| node.op.regions().into_iter().map(node_count).sum::<usize>();
    graph.nodes().iter().map(|node| 1 + regions(node)).sum()
}

/// For each value that an unrolled loop stacked, the values of its iterations.
type Stacks = HashMap<Value, Vec<Value>>;

fn put_iterations(rewriter: &mut Rewriter, stacks: &mut Stacks, node: Node) {
    let Op::Scan {
        carried,
        scanned,
        length,
        reverse,
        body,
        ..
    } = node.op
    else {
        unreachable!("the caller has a scan");
    };
    let new = &mut rewriter.new;
    let (carries, rest) = node.operands.split_at(carried);
    let (invariant, sequences) = rest.split_at(rest.len() - scanned);
    let mut carries = carries.to_vec();
    let mut results: Vec<Vec<Value>> = vec![Vec::new(); node.results.len() - carried];
    for step in 0..length {
        let index = if reverse { length - 1 - step } else { step };
        let slices = sequences
            .iter()
            .map(|&sequence| match stacks.get(&sequence) {
                Some(values) => values[index],
                None => slice(new, sequence, index, node.origin),
            });
        let slices: Vec<_> = slices.collect();
        let inputs = [&carries, invariant, &slices].concat();
        let mut outputs = put_nodes(new, &body, inputs);
        for (result, value) in results.iter_mut().zip(outputs.split_off(carried)) {
            result.push(value);
        }
        carries = outputs;
    }
    let stacked = results.into_iter().map(|mut values| {
        if reverse {
            values.reverse();
        }
        let stack = stack(new, &values, node.origin);
        stacks.insert(stack, values);
        stack
    });
    let values: Vec<_> = carries.into_iter().chain(stacked).collect();
    for (old, value) in node.results.into_iter().zip(values) {
        rewriter.replace(old, value);
    }
}

type Origin = Option<&'static Location<'static>>;

/// Element `index` of the first dimension.
fn slice(graph: &mut Graph, x: Value, index: usize, origin: Origin) -> Value {
    let ty = graph.ty(x).clone();
    let rest = &ty.dims()[1..];
    let op = Op::Slice {
        starts: [&[index], &*vec![0; rest.len()]].concat(),
        limits: [&[index + 1], rest].concat(),
        strides: vec![1; ty.rank()],
    };
    let part = TensorType::new(ty.dtype(), [&[1], rest].concat());
    let sliced = graph.push_typed(op, vec![x], vec![part], origin)[0];
    reshape(graph, sliced, rest.to_vec(), origin)
}

/// The values along a new first dimension.
fn stack(graph: &mut Graph, values: &[Value], origin: Origin) -> Value {
    let ty = graph.ty(values[0]).clone();
    let parts: Vec<Value> = values
        .iter()
        .map(|&value| reshape(graph, value, [&[1], ty.dims()].concat(), origin))
        .collect();
    let stacked = TensorType::new(ty.dtype(), [&[values.len()], ty.dims()].concat());
    graph.push_typed(Op::Concatenate { dim: 0 }, parts, vec![stacked], origin)[0]
}

fn reshape(graph: &mut Graph, x: Value, dims: Vec<usize>, origin: Origin) -> Value {
    let ty = TensorType::new(graph.ty(x).dtype(), dims.clone());
    graph.push_typed(Op::Reshape { dims }, vec![x], vec![ty], origin)[0]
}
