//! Custom calls with a decomposition: calls of halite's kernels, or the nodes of the decomposition.

use std::iter::zip;

use halite_core::{DType, Kernels, TensorType};

use super::{Rewriter, kernels::is_manual, map_regions, put_nodes};
use crate::{CustomCall, Graph, Op};

/// Target of attention. Operands: queries `[batch, time, heads, width]`, scaled; keys
/// `[batch, source, kv_heads, width]`; values `[batch, source, kv_heads, any]`. Results: attention
/// `[batch, time, heads, any]` and the logarithms of the sums of the exponentials of the scores
/// `[batch, heads, time]`. Attribute: `causal`.
pub const ATTENTION: &str = "halite_attention";

/// Target of the gradient of attention. Operands: those of [`ATTENTION`]; the logarithms; the
/// cotangent of the first result; the sums over its last dimension times the result, less the
/// cotangent of the logarithms, `[batch, heads, time]`. Results: the cotangents of the queries,
/// keys and values. Attribute: `causal`.
pub const ATTENTION_GRADIENT: &str = "halite_attention_gradient";

/// Decides about each custom call with a decomposition. It becomes a call without one where one of
/// halite's kernels computes it, and `kernels` allows that; else its nodes take its place.
///
/// In a program for several `devices`, only the bodies of [`ShardMap`](crate::ShardMap)s over all
/// axes of the mesh have calls.
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn choose_kernels(graph: Graph, kernels: Kernels, devices: usize) -> Graph {
    chosen(graph, kernels, devices == 1)
}

fn chosen(graph: Graph, kernels: Kernels, one_device: bool) -> Graph {
    let (mut rewriter, nodes, outputs) = Rewriter::of(graph);
    for mut node in nodes {
        rewriter.map_operands(&mut node);
        let inside = one_device || is_manual(&node.op);
        map_regions(&mut node.op, |body| chosen(body, kernels, inside));
        let types: Vec<&TensorType> = node.operands.iter().map(|&x| rewriter.new.ty(x)).collect();
        let decomposition = match &mut node.op {
            Op::CustomCall(call) => {
                let is_called = one_device && is_called(call, &types, kernels);
                call.decomposition.take().filter(|_| !is_called)
            }
            _ => None,
        };
        match decomposition {
            None => rewriter.keep(node),
            Some(graph) => {
                let values = put_nodes(&mut rewriter.new, &graph, node.operands);
                zip(node.results, values).for_each(|(old, new)| rewriter.replace(old, new));
            }
        }
    }
    rewriter.finish(outputs)
}

/// Returns whether the program calls a kernel.
fn is_called(call: &CustomCall, operands: &[&TensorType], kernels: Kernels) -> bool {
    let is_known = [ATTENTION, ATTENTION_GRADIENT].contains(&&*call.target);
    let is_f32 = operands.iter().all(|ty| ty.dtype() == DType::F32);
    is_known
        && is_f32
        && match kernels {
            Kernels::Off => false,
            Kernels::On => multiplications(operands) >= LEAST_WORK,
            Kernels::All => true,
        }
}

/// Least number of multiplications of a call, an estimate: for fewer, calling takes longer than it
/// saves.
const LEAST_WORK: f64 = 1e6;

/// Multiplications of queries and keys, those of masked positions included.
fn multiplications(operands: &[&TensorType]) -> f64 {
    let [queries, keys, ..] = operands else {
        return 0.0;
    };
    let source = keys.dims().get(1).copied().unwrap_or(0) as f64;
    (queries.dims().iter()).fold(source, |product, &dim| product * dim as f64)
}
