//! Passes over graphs. Each returns a graph with the same inputs and outputs; except for the
//! precision pass it computes the same bits.
//!
//! Compilers simplify too; here it reduces the text that is printed, hashed and compiled.

mod dead_code;
mod identities;
mod precision;

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    panic::Location,
};

use halite_core::TensorType;

use crate::{
    Graph, Node, Op, ShardMap, Value,
    op::{collective_op, device_index_op, local_op, marker_op},
};

pub use dead_code::dead_code;
pub use identities::identities;
pub use precision::{with_precision, with_signature};

/// [`identities()`], then [`common_subexpressions`], then [`dead_code()`].
///
/// ```
/// use halite_core::{DType, TensorType};
/// use halite_ir::{Binary, Graph, Op, Unary, optimize};
///
/// let mut graph = Graph::new();
/// let x = graph.input(TensorType::new(DType::F32, [2]));
/// let a = graph.push(Op::Unary(Unary::Exponential), &[x], None).unwrap()[0];
/// let b = graph.push(Op::Unary(Unary::Exponential), &[x], None).unwrap()[0];
/// let unused = graph.push(Op::Unary(Unary::Tanh), &[x], None).unwrap()[0];
/// let sum = graph.push(Op::Binary(Binary::Add), &[a, b], None).unwrap()[0];
/// graph.set_outputs(vec![sum]);
/// assert_eq!(optimize(&graph).nodes().len(), 2);
/// ```
pub fn optimize(graph: &Graph) -> Graph {
    dead_code(&common_subexpressions(&identities(graph)))
}

/// Merges equal operations on equal operands, including constants. Custom calls with side effects
/// and optimization barriers are not merged.
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn common_subexpressions(graph: &Graph) -> Graph {
    let mut rewriter = Rewriter::new(graph);
    let state = RandomState::new();
    // Nodes of the new graph by hash; nodes with equal hashes are compared.
    let mut seen: HashMap<u64, Vec<usize>> = HashMap::new();
    for node in graph.nodes() {
        let op = map_regions(&node.op, &common_subexpressions);
        let operands = rewriter.operands(node);
        if has_side_effect(&op) || matches!(op, Op::OptimizationBarrier) {
            rewriter.keep(node, op, operands);
            continue;
        }
        let types = node
            .results
            .iter()
            .map(|&result| graph.ty(result))
            .collect::<Vec<_>>();
        let key = state.hash_one((std::mem::discriminant(&op), &operands, types, sample(&op)));
        let candidates = seen.entry(key).or_default();
        let same = |&&candidate: &&usize| {
            let other = &rewriter.new.nodes()[candidate];
            other.operands == operands && other.op == op
        };
        match candidates.iter().find(same) {
            Some(&candidate) => {
                let results = rewriter.new.nodes()[candidate].results.clone();
                rewriter.replace(&node.results, &results);
            }
            None => {
                candidates.push(rewriter.new.nodes().len());
                rewriter.keep(node, op, operands);
            }
        }
    }
    rewriter.finish()
}

/// The same graph without the operations that only differentiation sees: checkpoints are replaced
/// by their bodies, `stop_gradient` by its operand.
fn without_checkpoints(graph: &Graph) -> Graph {
    let mut new = Graph::new();
    let inputs = graph
        .inputs()
        .iter()
        .map(|&input| new.input(graph.ty(input).clone()))
        .collect();
    let outputs = put_nodes(&mut new, graph, inputs);
    new.set_outputs(outputs);
    new
}

/// Copies the nodes of a graph into another with these values as inputs; returns the outputs.
fn put_nodes(new: &mut Graph, graph: &Graph, inputs: Vec<Value>) -> Vec<Value> {
    let mut map: HashMap<Value, Value> = graph.inputs().iter().copied().zip(inputs).collect();
    for node in graph.nodes() {
        let operands: Vec<Value> = node.operands.iter().map(|operand| map[operand]).collect();
        let results = match &node.op {
            Op::Checkpoint { body, remat: _ } => put_nodes(new, body, operands),
            Op::StopGradient => operands,
            op => {
                let types = node
                    .results
                    .iter()
                    .map(|&result| graph.ty(result).clone())
                    .collect();
                new.push_typed(
                    map_regions(op, &without_checkpoints),
                    operands,
                    types,
                    node.origin,
                )
                .to_vec()
            }
        };
        map.extend(node.results.iter().copied().zip(results));
    }
    graph.outputs().iter().map(|output| map[output]).collect()
}

/// Part of the attributes, enough to give most different operations different hashes.
fn sample(op: &Op) -> Vec<u64> {
    if let Op::Constant(literal) = op {
        let bytes = literal.bytes.iter().take(64);
        bytes.map(|&byte| u64::from(byte)).collect()
    } else if let Op::Unary(unary) = op {
        vec![*unary as u64]
    } else if let Op::Binary(binary) = op {
        vec![*binary as u64]
    } else if let Op::Compare(comparison) = op {
        vec![*comparison as u64]
    } else if let Op::Slice { starts, .. } = op {
        starts.iter().map(|&start| start as u64).collect()
    } else {
        vec![]
    }
}

/// Whether it has a side effect, directly or in a region.
fn has_side_effect(op: &Op) -> bool {
    let inside = |graph: &&Graph| graph.nodes().iter().any(|node| has_side_effect(&node.op));
    matches!(op, Op::CustomCall(call) if call.side_effect) || op.regions().iter().any(inside)
}

/// The same operation with `pass` applied to the graphs of its regions.
fn map_regions(op: &Op, pass: &dyn Fn(&Graph) -> Graph) -> Op {
    match op {
        Op::While {
            carried,
            condition,
            body,
        } => Op::While {
            carried: *carried,
            condition: Box::new(pass(condition)),
            body: Box::new(pass(body)),
        },
        Op::Scan {
            carried,
            scanned,
            length,
            reverse,
            residuals,
            body,
        } => Op::Scan {
            carried: *carried,
            scanned: *scanned,
            length: *length,
            reverse: *reverse,
            residuals: *residuals,
            body: Box::new(pass(body)),
        },
        Op::Checkpoint { body, remat } => Op::Checkpoint {
            body: Box::new(pass(body)),
            remat: *remat,
        },
        Op::Case { branches } => Op::Case {
            branches: branches.iter().map(pass).collect(),
        },
        Op::ShardMap(ShardMap {
            mesh,
            manual,
            inputs,
            outputs,
            body,
        }) => Op::ShardMap(ShardMap {
            mesh: mesh.clone(),
            manual: manual.clone(),
            inputs: inputs.clone(),
            outputs: outputs.clone(),
            body: Box::new(pass(body)),
        }),
        local_op!() | marker_op!() | collective_op!() | device_index_op!() | Op::CustomCall(_) => {
            op.clone()
        }
    }
}

/// Builds a graph from another, node by node.
struct Rewriter<'a> {
    old: &'a Graph,
    new: Graph,
    /// For each value of the old graph, the value of the new one.
    map: Vec<Option<Value>>,
}

impl<'a> Rewriter<'a> {
    fn new(old: &'a Graph) -> Self {
        Self::of_inputs(old, old.inputs().iter().copied())
    }

    /// Starts with only these inputs of the old graph.
    fn of_inputs(old: &'a Graph, inputs: impl Iterator<Item = Value>) -> Self {
        let mut new = Graph::new();
        let mut map = vec![None; old.value_count()];
        for input in inputs {
            map[input.index()] = Some(new.input(old.ty(input).clone()));
        }
        Rewriter { old, new, map }
    }

    fn operands(&self, node: &Node) -> Vec<Value> {
        node.operands
            .iter()
            .map(|&operand| self.value(operand))
            .collect()
    }

    fn value(&self, old: Value) -> Value {
        self.map[old.index()].expect("operands of a valid graph are made before they are used")
    }

    /// Copies a node to the new graph.
    fn keep(&mut self, node: &Node, op: Op, operands: Vec<Value>) {
        let types = node
            .results
            .iter()
            .map(|&result| self.old.ty(result).clone())
            .collect();
        let results = self.push(op, operands, types, node.origin);
        self.replace(&node.results, &results);
    }

    /// Adds a node to the new graph.
    fn push(
        &mut self,
        op: Op,
        operands: Vec<Value>,
        types: Vec<TensorType>,
        origin: Option<&'static Location<'static>>,
    ) -> Vec<Value> {
        self.new.push_typed(op, operands, types, origin).to_vec()
    }

    /// Maps results of a node of the old graph to values of the new one.
    fn replace(&mut self, old: &[Value], new: &[Value]) {
        for (old, &new) in old.iter().zip(new) {
            self.map[old.index()] = Some(new);
        }
    }

    fn finish(self) -> Graph {
        let outputs = self.old.outputs().to_vec();
        self.finish_with(outputs)
    }

    fn finish_with(mut self, outputs: Vec<Value>) -> Graph {
        let outputs = outputs
            .into_iter()
            .map(|output| self.value(output))
            .collect();
        self.new.set_outputs(outputs);
        self.new
    }
}
