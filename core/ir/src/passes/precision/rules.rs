//! How each operation behaves towards precision, given its operands.

use halite_core::DType;

use super::Cast;
use crate::{
    Graph, Node, Op,
    rules::{CastRule, Conditioning},
};

/// The rule of an operation of `graph`.
pub(super) fn cast_rule(cast: Cast<'_>, graph: &Graph, node: &Node) -> CastRule {
    if let Some(rule) = node.op.rules().cast {
        return rule;
    }
    match node.op {
        Op::Convert(to) => of_convert(cast, graph.ty(node.operands[0]).dtype(), to),
        // A square.
        _ if node.operands[0] == node.operands[1] && cast.policy.compute == DType::F16 => {
            CastRule::FullRange
        }
        _ => CastRule::FollowInputs,
    }
}

fn of_convert(cast: Cast<'_>, from: DType, to: DType) -> CastRule {
    let casts = |dtype| cast.compute_dtype(dtype).is_some();
    // 0 and 1 are exact in every float, and so is what was rounded to the compute dtype before.
    let is_exact = (from == DType::Bool && to.is_float()) || cast.compute_dtype(to) == Some(from);
    if is_exact {
        CastRule::DataMovement
    } else if casts(from) && casts(to) {
        CastRule::FollowInputs
    } else if from.is_float() && to.is_float() {
        CastRule::FullPrecision(Conditioning::Keeps)
    } else {
        CastRule::FullPrecision(Conditioning::Amplifies)
    }
}
