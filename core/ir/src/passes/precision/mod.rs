//! Mixed precision: casts a graph to the dtypes of a [`DTypePolicy`].
//!
//! The policy has a *compute dtype* (`bf16`, `f16`) for contractions (dot products, convolutions)
//! and what lies between them, and *full precision* (`f32`) for everything that is sensitive to
//! rounding. The pass decides, for each value, which of the two it has. It is two dataflow analyses
//! and a rewrite:
//!
//! 1. [`demand`], backward: whether a value must stay in full precision, because of what is
//!    computed from it. Lattice: [`Demand`](demand::Demand).
//! 2. [`source`], forward: what a value is computed from, and so in which dtype it comes out.
//!    Lattice: [`Source`](source::Source).
//! 3. [`rewrite`]: the same operations with converts between them.
//!
//! Both lattices are chains, so the join of two elements is the larger one. The transfer function
//! of an operation follows from its [`CastRule`](crate::rules::CastRule), in the table of all
//! operations. Nodes are in topological order, so one sweep reaches the fixed point. Only the
//! carried values of a scan form a cycle: the demand on their outputs is joined with that on their
//! inputs, and the body is swept again until nothing changes.
//!
//! A scan takes stacked operands in the dtype in which they were computed, and its body converts
//! the slices that it needs in another one, such as weights. It returns stacked results in the
//! dtype in which its body computes them, so that residuals of a scan need no more memory than
//! those of unrolled iterations. Carried values keep their dtype, for they may accumulate over all
//! iterations. Regions of other operations are
//! rewritten on their own, between inputs and outputs of unchanged dtype. Checkpoints are inlined:
//! they matter to differentiation alone.

mod demand;
mod rewrite;
mod rules;
mod signature;
mod source;

use halite_core::{DType, DTypePolicy, Narrowing};

use super::without_checkpoints;
use crate::{Graph, Node};
use demand::{Demand, Demands};
use rewrite::{OutputDType, Rewrite};
use source::{Source, Sources};

pub use signature::with_signature;

/// Returns a graph with the same input and output types that computes as `policy` says. Under
/// [`DTypePolicy::F32`] it is the same graph.
///
/// ```
/// use halite_core::{DType, DTypePolicy, Narrowing, TensorType};
/// use halite_ir::{DotAttributes, Graph, Op, with_precision};
///
/// let mut graph = Graph::new();
/// let x = graph.input(TensorType::new(DType::F32, [8, 3]));
/// let w = graph.input(TensorType::new(DType::F32, [3, 2]));
/// let dot = DotAttributes {
///     lhs_contracting: vec![1],
///     rhs_contracting: vec![0],
///     ..DotAttributes::default()
/// };
/// let y = graph.push(Op::Dot(dot, DType::F32), &[x, w], None).unwrap()[0];
/// graph.set_outputs(vec![y]);
///
/// let mixed = with_precision(graph.clone(), &DTypePolicy::BF16_MIXED, &Narrowing::Everywhere);
/// let names: Vec<&str> = mixed.nodes().iter().map(|node| node.op.name()).collect();
/// assert_eq!(names, ["convert", "convert", "dot"]); // bf16 operands, f32 result
/// assert_eq!(mixed.output_types(), graph.output_types());
/// ```
///
/// # Panics
/// If the graph is not valid; see [`verify`](crate::verify).
pub fn with_precision(graph: Graph, policy: &DTypePolicy, narrowing: &Narrowing) -> Graph {
    if policy.is_identity() {
        return graph;
    }
    Cast { policy, narrowing }.region(&without_checkpoints(&graph))
}

/// The policy and the device's limits to it: what all three steps read.
#[derive(Clone, Copy)]
struct Cast<'a> {
    policy: &'a DTypePolicy,
    narrowing: &'a Narrowing,
}

impl Cast<'_> {
    /// Rewrites a graph whose inputs and outputs keep their dtypes.
    fn region(self, graph: &Graph) -> Graph {
        let demands = Demands::of_region(self, graph);
        let inputs = vec![Source::Input; graph.inputs().len()];
        let sources = Sources::new(self, graph, &demands, &inputs);
        let dtypes: Vec<DType> = (graph.inputs().iter())
            .map(|&input| graph.ty(input).dtype())
            .collect();
        let outputs = vec![OutputDType::Declared; graph.outputs().len()];
        Rewrite::new(self, graph, &demands, &sources).run(&dtypes, &outputs)
    }

    /// The compute dtype for values declared as `declared`; `None` if the policy leaves them.
    fn compute_dtype(self, declared: DType) -> Option<DType> {
        let compute = self.policy.compute;
        let casts = match declared {
            DType::F32 => compute != DType::F32,
            DType::F64 => self.policy.double == compute && compute != DType::F32,
            _ => false,
        };
        casts.then_some(compute)
    }

    /// The full-precision dtype for values declared as `declared`.
    fn full_dtype(self, declared: DType) -> DType {
        match declared {
            DType::F64 if self.policy.double != DType::F64 => self.policy.reduce,
            other => other,
        }
    }

    /// The dtype that both operands of a contraction are cast to; `None` if it stays in full
    /// precision.
    fn contraction_dtype(self, graph: &Graph, node: &Node) -> Option<DType> {
        let [left, right] = [node.operands[0], node.operands[1]]
            .map(|operand| self.compute_dtype(graph.ty(operand).dtype()));
        left.and(right)
    }

    /// Whether the result of a contraction in the compute dtype, which is summed in full precision,
    /// is rounded to the compute dtype. A policy whose outputs have the compute dtype rounds also
    /// what must stay in full precision.
    fn rounds_result(self, demand: Demand) -> bool {
        match demand {
            Demand::Any => *self.narrowing == Narrowing::Everywhere,
            Demand::Full | Demand::FullTerms => self.policy.output == self.policy.compute,
        }
    }
}
