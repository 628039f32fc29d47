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
                .for_each(|(result, &same)| rewriter.map[result.index()] = Some(same)),
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

/// Builds a graph from the nodes of another.
struct Rewriter {
    /// Types of the values of the old graph.
    types: Vec<TensorType>,
    /// For each value of the old graph, the value of the new one.
    map: Vec<Option<Value>>,
    new: Graph,
}

impl Rewriter {
    /// Starts a graph with the same inputs. Returns the nodes and outputs of the old one.
    fn of(old: Graph) -> (Self, Vec<Node>, Vec<Value>) {
        let rewriter = Self::new(old.types, old.inputs.into_iter());
        (rewriter, old.nodes, old.outputs)
    }

    /// Starts a graph with these inputs of an old one, whose values have these types.
    fn new(types: Vec<TensorType>, inputs: impl Iterator<Item = Value>) -> Self {
        let mut new = Graph::new();
        let mut map = vec![None; types.len()];
        for input in inputs {
            map[input.index()] = Some(new.input(types[input.index()].clone()));
        }
        Rewriter { types, map, new }
    }

    fn value(&self, old: Value) -> Value {
        self.map[old.index()].expect("operands of a valid graph are made before they are used")
    }

    /// Replaces the operands, values of the old graph, by those of the new one.
    fn map_operands(&self, node: &mut Node) {
        for operand in &mut node.operands {
            *operand = self.value(*operand);
        }
    }

    /// Moves a node to the new graph. Its operands are values of the new graph already, its results
    /// those of the old one.
    fn keep(&mut self, mut node: Node) {
        for result in &mut node.results {
            let new = self.new.value(self.types[result.index()].clone());
            self.map[result.index()] = Some(new);
            *result = new;
        }
        self.new.nodes.push(node);
    }

    /// Maps a value of the old graph to one of the new graph.
    fn replace(&mut self, old: Value, new: Value) {
        self.map[old.index()] = Some(new);
    }

    /// Hash of a node whose operands are values of the new graph and whose results those of the old
    /// one. Nodes that compute the same have equal hashes.
    fn hash(&self, node: &Node, state: &RandomState) -> u64 {
        let mut hasher = state.build_hasher();
        hash_attributes(&node.op, &mut hasher);
        node.operands.hash(&mut hasher);
        for result in &node.results {
            self.types[result.index()].hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Sets the outputs, values of the old graph.
    fn finish(mut self, outputs: Vec<Value>) -> Graph {
        self.new.outputs = outputs
            .into_iter()
            .map(|output| self.value(output))
            .collect();
        self.new
    }
}
