//! Dead-code elimination: unused nodes, and unused results, operands and carried values of scans
//! and checkpoints.

use std::iter::zip;

use super::{Rewriter, has_side_effect, map_regions};
use crate::{Graph, Node, Op, Value};

/// Drops nodes that no output depends on, and unused results, carried values and operands of the
/// remaining scans and checkpoints. Custom calls with side effects stay, and so do all inputs.
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn dead_code(graph: &Graph) -> Graph {
    let all = vec![true; graph.inputs().len()];
    without(
        graph,
        &needed(graph, graph.outputs().iter().copied()),
        &all,
        graph.outputs().to_vec(),
    )
}

/// For each value of a graph, whether one of `outputs` depends on it.
fn needed(graph: &Graph, outputs: impl Iterator<Item = Value>) -> Vec<bool> {
    let mut needed = vec![false; graph.value_count()];
    outputs.for_each(|output| needed[output.index()] = true);
    for node in graph.nodes().iter().rev() {
        if stays(node, &needed) {
            let operands = Part::of(node, &needed).operands;
            zip(&node.operands, operands)
                .filter(|(_, is)| *is)
                .for_each(|(operand, _)| needed[operand.index()] = true);
        }
    }
    needed
}

fn stays(node: &Node, needed: &[bool]) -> bool {
    node.results.iter().any(|result| needed[result.index()]) || has_side_effect(&node.op)
}

/// The needed operands and results of a node.
struct Part {
    operands: Vec<bool>,
    results: Vec<bool>,
}

impl Part {
    fn of(node: &Node, needed: &[bool]) -> Self {
        let mut results: Vec<bool> = node
            .results
            .iter()
            .map(|result| needed[result.index()])
            .collect();
        let (Op::Scan { body, .. } | Op::Checkpoint { body, .. }) = &node.op else {
            return Self::all(node);
        };
        // It stays for its side effect.
        if !results.contains(&true) {
            return Self::all(node);
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
                return Part { operands, results };
            }
            made.into_iter().for_each(|at| results[at] = true);
        }
    }

    fn all(node: &Node) -> Self {
        Part {
            operands: vec![true; node.operands.len()],
            results: vec![true; node.results.len()],
        }
    }

    /// The operation with only these operands and results.
    fn of_op(&self, op: &Op) -> Op {
        let part = |body: &Graph| {
            let outputs: Vec<Value> = chosen(body.outputs(), &self.results).collect();
            Box::new(without(
                body,
                &needed(body, outputs.iter().copied()),
                &self.operands,
                outputs,
            ))
        };
        let count = |of: &[bool]| of.iter().filter(|&&is| is).count();
        match op {
            Op::Scan {
                carried,
                scanned,
                length,
                reverse,
                residuals,
                body,
            } => Op::Scan {
                carried: count(&self.results[..*carried]),
                scanned: count(&self.operands[self.operands.len() - scanned..]),
                length: *length,
                reverse: *reverse,
                residuals: count(&self.results[self.results.len() - residuals..]),
                body: part(body),
            },
            Op::Checkpoint { body, remat } => Op::Checkpoint {
                body: part(body),
                remat: *remat,
            },
            other => map_regions(other, &dead_code),
        }
    }
}

fn chosen<'a>(values: &'a [Value], which: &'a [bool]) -> impl Iterator<Item = Value> + 'a {
    zip(values, which)
        .filter(|(_, is)| **is)
        .map(|(&value, _)| value)
}

/// The graph with only these inputs and outputs, without the nodes that are not needed.
fn without(graph: &Graph, needed: &[bool], inputs: &[bool], outputs: Vec<Value>) -> Graph {
    let mut rewriter = Rewriter::of_inputs(graph, chosen(graph.inputs(), inputs));
    for node in graph.nodes().iter().filter(|node| stays(node, needed)) {
        let part = Part::of(node, needed);
        let operands = chosen(&node.operands, &part.operands)
            .map(|operand| rewriter.value(operand))
            .collect();
        let results: Vec<Value> = chosen(&node.results, &part.results).collect();
        let types = results
            .iter()
            .map(|&result| graph.ty(result).clone())
            .collect();
        let made = rewriter.push(part.of_op(&node.op), operands, types, node.origin);
        rewriter.replace(&results, &made);
    }
    rewriter.finish_with(outputs)
}
