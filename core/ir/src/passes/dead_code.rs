//! Dead-code elimination: unused nodes, and unused results, operands and carried values of scans
//! and checkpoints.

use std::{iter::zip, mem};

use super::{has_side_effect, map_regions};
use crate::{Graph, Node, Op, Value};

/// Drops nodes that no output depends on, and unused results, carried values and operands of the
/// remaining scans and checkpoints. Custom calls with side effects stay, and so do all inputs.
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn dead_code(graph: Graph) -> Graph {
    let needed = needed(&graph, graph.outputs().iter().copied());
    let all = vec![true; graph.inputs().len()];
    let outputs = graph.outputs().to_vec();
    without(graph, &needed, &all, outputs)
}

/// For each value of a graph, whether one of `outputs` depends on it.
fn needed(graph: &Graph, outputs: impl Iterator<Item = Value>) -> Vec<bool> {
    let mut needed = vec![false; graph.value_count()];
    outputs.for_each(|output| needed[output.index()] = true);
    for node in graph.nodes().iter().rev() {
        if stays(node, &needed) {
            let part = Part::of(node, &needed);
            for (position, operand) in node.operands.iter().enumerate() {
                if part.as_ref().is_none_or(|part| part.operands[position]) {
                    needed[operand.index()] = true;
                }
            }
        }
    }
    needed
}

fn stays(node: &Node, needed: &[bool]) -> bool {
    node.results.iter().any(|result| needed[result.index()]) || has_side_effect(&node.op)
}

/// The needed operands and results of a scan or checkpoint.
struct Part {
    operands: Vec<bool>,
    results: Vec<bool>,
}

impl Part {
    /// `None` if all are needed, as of every operation without such a body.
    fn of(node: &Node, needed: &[bool]) -> Option<Self> {
        let (Op::Scan { body, .. } | Op::Checkpoint { body, .. }) = &node.op else {
            return None;
        };
        let mut results: Vec<bool> = node
            .results
            .iter()
            .map(|result| needed[result.index()])
            .collect();
        // It stays for its side effect.
        if !results.contains(&true) {
            return None;
        }
        let carried = if let Op::Scan { carried, .. } = node.op {
            carried
        } else {
            0
        };
        loop {
            let inside = self::needed(body, chosen(body.outputs(), &results));
            let mut operands: Vec<bool> = body
                .inputs()
                .iter()
                .map(|input| inside[input.index()])
                .collect();
            // The value that an iteration needs is a result of the previous one.
            let made: Vec<usize> = (0..carried)
                .filter(|&at| operands[at] && !results[at])
                .collect();
            if made.is_empty() {
                operands[..carried].copy_from_slice(&results[..carried]);
                return Some(Part { operands, results });
            }
            made.into_iter().for_each(|at| results[at] = true);
        }
    }

    /// Drops the other operands and results.
    fn cut(&self, node: &mut Node) {
        let count = |of: &[bool]| of.iter().filter(|&&is| is).count();
        let body = match &mut node.op {
            Op::Scan {
                carried,
                scanned,
                residuals,
                body,
                ..
            } => {
                *carried = count(&self.results[..*carried]);
                *scanned = count(&self.operands[self.operands.len() - *scanned..]);
                *residuals = count(&self.results[self.results.len() - *residuals..]);
                body
            }
            Op::Checkpoint { body, .. } => body,
            _ => return,
        };
        let outputs: Vec<Value> = chosen(body.outputs(), &self.results).collect();
        let needed = needed(body, outputs.iter().copied());
        **body = without(mem::take(body), &needed, &self.operands, outputs);
        node.operands = chosen(&node.operands, &self.operands).collect();
        node.results = chosen(&node.results, &self.results).collect();
    }
}

fn chosen<'a>(values: &'a [Value], which: &'a [bool]) -> impl Iterator<Item = Value> + 'a {
    zip(values, which)
        .filter(|(_, is)| **is)
        .map(|(&value, _)| value)
}

/// The graph with only these inputs and outputs, without the nodes that are not needed. Its values are
/// numbered anew, in their order.
fn without(graph: Graph, needed: &[bool], inputs: &[bool], outputs: Vec<Value>) -> Graph {
    let mut new = Graph::new();
    let mut numbers: Vec<Option<Value>> = vec![None; graph.value_count()];
    for input in chosen(&graph.inputs, inputs) {
        numbers[input.index()] = Some(new.input(graph.ty(input).clone()));
    }
    let made = "operands of a valid graph are made before they are used";
    for mut node in graph.nodes {
        if !stays(&node, needed) {
            continue;
        }
        match Part::of(&node, needed) {
            Some(part) => part.cut(&mut node),
            None => map_regions(&mut node.op, dead_code),
        }
        for operand in &mut node.operands {
            *operand = numbers[operand.index()].expect(made);
        }
        for result in &mut node.results {
            let value = new.value(graph.types[result.index()].clone());
            numbers[result.index()] = Some(value);
            *result = value;
        }
        new.nodes.push(node);
    }
    let outputs = outputs.into_iter();
    new.outputs = outputs
        .map(|output| numbers[output.index()].expect(made))
        .collect();
    new
}
