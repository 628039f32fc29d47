//! Passes over graphs. Each returns a graph with the same inputs and outputs, which computes the
//! same bits; the precision pass changes element types, and [`matrix_products()`] and calls of
//! kernels leave the order of summation to others.
//!
//! Compilers simplify too; here it reduces the text that is printed, hashed and compiled.

mod choose_kernels;
mod dead_code;
mod faults;
mod identities;
mod kernels;
mod long_chains;
mod matrix_products;
mod narrow_convolutions;
mod one_function;
mod precision;
mod unroll;

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::{BuildHasher, Hash, Hasher, RandomState},
    iter::zip,
    mem,
};

use halite_core::TensorType;

use crate::{CustomCall, Graph, Node, Op, Value};

pub use choose_kernels::{ATTENTION, ATTENTION_GRADIENT, choose_kernels};
pub use dead_code::dead_code;
pub use faults::around_faults;
pub use identities::identities;
pub use kernels::{narrow_matrices, with_kernels};
pub use long_chains::without_long_chains;
pub use matrix_products::matrix_products;
pub use narrow_convolutions::narrow_convolutions;
pub use one_function::one_function;
pub use precision::{with_precision, with_signature};
pub use unroll::{has_checkpoint, unrolled};

/// [`identities()`], then [`common_subexpressions`], then [`dead_code()`].
///
/// ```
/// use halite_core::{DType, TensorType};
/// use halite_ir::{BinaryOp, Graph, Op, UnaryOp, optimize};
///
/// let mut graph = Graph::new();
/// let x = graph.input(TensorType::new(DType::F32, [2]));
/// let a = graph.push(Op::Unary(UnaryOp::Exponential), &[x], None).unwrap()[0];
/// let b = graph.push(Op::Unary(UnaryOp::Exponential), &[x], None).unwrap()[0];
/// let unused = graph.push(Op::Unary(UnaryOp::Tanh), &[x], None).unwrap()[0];
/// let sum = graph.push(Op::Binary(BinaryOp::Add), &[a, b], None).unwrap()[0];
/// graph.set_outputs(vec![sum]);
/// assert_eq!(optimize(graph).nodes().len(), 2);
/// ```
pub fn optimize(graph: Graph) -> Graph {
    dead_code(common_subexpressions(identities(graph)))
}

/// Merges equal operations on equal operands, including constants. Custom calls with side effects
/// and optimization barriers are not merged.
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn common_subexpressions(graph: Graph) -> Graph {
    let (mut rewriter, nodes, outputs) = Rewriter::of(graph);
    let state = RandomState::new();
    // Nodes of the new graph by hash. Different nodes with equal hashes have successive keys.
    let mut seen: HashMap<u64, usize> = HashMap::with_capacity(nodes.len());
    for mut node in nodes {
        map_regions(&mut node.op, common_subexpressions);
        rewriter.map_operands(&mut node);
        if has_side_effect(&node.op) || matches!(node.op, Op::OptimizationBarrier) {
            rewriter.keep(node);
            continue;
        }
        let mut key = rewriter.hash(&node, &state);
        let earlier = loop {
            let candidate = match seen.entry(key) {
                Entry::Vacant(free) => {
                    free.insert(rewriter.new.nodes.len());
                    break None;
                }
                Entry::Occupied(taken) => &rewriter.new.nodes[*taken.get()],
            };
            if candidate.operands == node.operands && candidate.op == node.op {
                break Some(candidate);
            }
            key = key.wrapping_add(1);
        };
        match earlier {
            Some(earlier) => zip(&node.results, &earlier.results)
                .for_each(|(result, &same)| rewriter.replaced[result.index()] = Some(same)),
            None => rewriter.keep(node),
        }
    }
    rewriter.finish(outputs)
}

/// The same graph without the operations that only differentiation sees: checkpoints and
/// custom calls with a decomposition are replaced by their nodes, `stop_gradient` by its operand.
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
            Op::Checkpoint { body, remat: _ }
            | Op::CustomCall(CustomCall {
                decomposition: Some(body),
                ..
            }) => put_nodes(new, body, operands),
            Op::StopGradient => operands,
            op => {
                let mut op = op.clone();
                map_regions(&mut op, |region| without_checkpoints(&region));
                let types = node.results.iter().map(|&result| graph.ty(result).clone());
                new.push_typed(op, operands, types.collect(), node.origin)
                    .to_vec()
            }
        };
        map.extend(node.results.iter().copied().zip(results));
    }
    graph.outputs().iter().map(|output| map[output]).collect()
}

/// Hashes part of the attributes, enough to give most different operations different hashes.
fn hash_attributes(op: &Op, hasher: &mut impl Hasher) {
    mem::discriminant(op).hash(hasher);
    if let Op::Constant(literal) = op {
        literal.bytes[..literal.bytes.len().min(64)].hash(hasher);
    } else if let Op::Unary(unary) = op {
        unary.hash(hasher);
    } else if let Op::Binary(binary) = op {
        binary.hash(hasher);
    } else if let Op::Compare(comparison) = op {
        comparison.hash(hasher);
    } else if let Op::Slice { starts, .. } = op {
        starts.hash(hasher);
    }
}

/// Whether it has a side effect, directly or in a region.
fn has_side_effect(op: &Op) -> bool {
    let inside = |graph: &&Graph| graph.nodes().iter().any(|node| has_side_effect(&node.op));
    matches!(op, Op::CustomCall(call) if call.side_effect) || op.regions().iter().any(inside)
}

/// Applies `pass` to the graphs of an operation.
fn map_regions(op: &mut Op, pass: impl Fn(Graph) -> Graph) {
    for region in op.regions_mut() {
        *region = pass(mem::take(region));
    }
}

/// Rewrites a graph in place: its values keep their numbers, new ones follow.
struct Rewriter {
    /// The graph with the nodes that were rewritten so far.
    new: Graph,
    /// For values of the graph as it was, the value that takes their place.
    replaced: Vec<Option<Value>>,
}

impl Rewriter {
    /// Takes the nodes and outputs of a graph.
    fn of(mut graph: Graph) -> (Self, Vec<Node>, Vec<Value>) {
        let nodes = mem::take(&mut graph.nodes);
        let outputs = mem::take(&mut graph.outputs);
        graph.nodes.reserve(nodes.len());
        let replaced = vec![None; graph.value_count()];
        let rewriter = Rewriter {
            new: graph,
            replaced,
        };
        (rewriter, nodes, outputs)
    }

    /// The value that has the place of `old`.
    fn value(&self, old: Value) -> Value {
        let replaced = self.replaced.get(old.index());
        replaced.copied().flatten().unwrap_or(old)
    }

    /// Replaces the operands by what has their place.
    fn map_operands(&self, node: &mut Node) {
        for operand in &mut node.operands {
            *operand = self.value(*operand);
        }
    }

    /// Adds a node whose operands are mapped.
    fn keep(&mut self, node: Node) {
        self.new.nodes.push(node);
    }

    /// Type of the only result of a node.
    fn result_type(&self, node: &Node) -> TensorType {
        self.new.ty(node.results[0]).clone()
    }

    /// Puts a value in the place of one of the graph as it was.
    fn replace(&mut self, old: Value, new: Value) {
        self.replaced[old.index()] = Some(new);
    }

    /// Hash of a node whose operands are mapped. Nodes that compute the same have equal hashes.
    fn hash(&self, node: &Node, state: &RandomState) -> u64 {
        let mut hasher = state.build_hasher();
        hash_attributes(&node.op, &mut hasher);
        node.operands.hash(&mut hasher);
        for &result in &node.results {
            self.new.ty(result).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Sets the outputs, values of the graph as it was.
    fn finish(mut self, outputs: Vec<Value>) -> Graph {
        let outputs = outputs.into_iter().map(|output| self.value(output));
        self.new.outputs = outputs.collect();
        self.new
    }
}
