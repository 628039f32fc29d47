//! The table of cast rules: how each operation behaves towards precision.

use halite_core::DType;

use super::Cast;
use crate::{BinaryOp, Graph, Node, Op, Reduction, UnaryOp, WindowAttributes};

/// How an operation behaves towards precision.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CastRule {
    /// Multiplies operands in the compute dtype and sums in full precision.
    Contract,
    /// Elementwise, or selects elements: in the compute dtype if all operands are.
    FollowInputs,
    /// Moves the elements of one operand, or makes them: commutes with a convert.
    DataMovement,
    /// The result has another kind of element, and is in the compute dtype if all operands are:
    /// comparisons.
    Predicate,
    /// Each result is the operand at the same place, and has its dtype.
    PerOperand,
    /// Computed in full precision.
    FullPrecision(Conditioning),
    /// Computed in full precision for its range, not for its digits: the square of an `f16`, which
    /// is infinite beyond 256, as in the norm of activations.
    FullRange,
    /// A sum or product of elements, in full precision.
    Reduce(Terms),
    /// Operands and results keep their declared dtypes.
    Unchanged,
}

/// What an operation does to the rounding error of its operand. It is a convention, close to what
/// PyTorch's autocast does: a difference may amplify an error, too, and follows its inputs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Conditioning {
    /// A small error of the operand may be a large one of the result: `exp`, `log`, `floor`.
    Amplifies,
    /// The relative error of the result is that of the operand, and its own rounding: a convert to
    /// another float, as of a parameter that is stored in the compute dtype.
    Keeps,
    /// The relative error of the result is at most half of the operand's: roots.
    Damps,
}

/// How many elements a reduction combines into one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Terms {
    /// Whole dimensions, or all occurrences of an index: rounding errors average out.
    Many,
    /// A window, or one value of each device.
    Few,
}

/// The rule of an operation of `graph`.
pub(super) fn cast_rule(cast: Cast<'_>, graph: &Graph, node: &Node) -> CastRule {
    use CastRule::*;
    match &node.op {
        Op::Dot(..) | Op::Convolution(..) => Contract,
        Op::Constant(_)
        | Op::Broadcast { .. }
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Reverse { .. }
        | Op::AllGather { .. }
        | Op::ShardingConstraint(_)
        | Op::Unsharded { .. }
        | Op::PropagationBarrier => DataMovement,
        Op::Unary(unary) => of_unary(*unary),
        Op::Binary(BinaryOp::Multiply)
            if node.operands[0] == node.operands[1] && cast.policy.compute == DType::F16 =>
        {
            FullRange
        }
        Op::Binary(binary) => of_binary(*binary),
        Op::Compare(_) => Predicate,
        Op::Convert(to) => of_convert(cast, graph.ty(node.operands[0]).dtype(), *to),
        Op::Select
        | Op::Clamp
        | Op::ReducePrecision { .. }
        | Op::Concatenate { .. }
        | Op::Slice { .. }
        | Op::DynamicSlice { .. }
        | Op::DynamicUpdateSlice
        | Op::Pad { .. }
        | Op::Gather(_)
        | Op::AllToAll { .. }
        | Op::CollectivePermute { .. } => FollowInputs,
        Op::OptimizationBarrier => PerOperand,
        Op::Scatter(_, combine) => match combine {
            None => FollowInputs,
            Some(kind) => of_reduction(kind, Terms::Many),
        },
        Op::Reduce { kind, .. } => of_reduction(kind, Terms::Many),
        Op::ReduceWindow { kind, .. }
        | Op::AllReduce { kind, .. }
        | Op::ReduceScatter { kind, .. } => of_reduction(kind, Terms::Few),
        Op::SelectAndScatter { window, .. } if !overlap(window) => FollowInputs,
        Op::SelectAndScatter { .. } => Reduce(Terms::Few),
        Op::Iota { .. } | Op::ArgReduce { .. } | Op::Sort { .. } => {
            FullPrecision(Conditioning::Amplifies)
        }
        // Scans have a transfer function of their own; the other two are removed before the pass.
        Op::Scan { .. } | Op::Checkpoint { .. } | Op::StopGradient => Unchanged,
        Op::BitcastConvert(_)
        | Op::While { .. }
        | Op::Case { .. }
        | Op::CustomCall(_)
        | Op::ShardMap(_)
        | Op::AxisIndex(_)
        | Op::PartitionId
        | Op::ReplicaId => Unchanged,
    }
}

fn of_unary(unary: UnaryOp) -> CastRule {
    match unary {
        UnaryOp::Abs
        | UnaryOp::Erf
        | UnaryOp::Logistic
        | UnaryOp::Imag
        | UnaryOp::Negate
        | UnaryOp::Not
        | UnaryOp::Real
        | UnaryOp::Sign
        | UnaryOp::Tanh => CastRule::FollowInputs,
        UnaryOp::IsFinite => CastRule::Predicate,
        UnaryOp::Cbrt | UnaryOp::Rsqrt | UnaryOp::Sqrt => {
            CastRule::FullPrecision(Conditioning::Damps)
        }
        UnaryOp::Ceil
        | UnaryOp::Cosine
        | UnaryOp::CountLeadingZeros
        | UnaryOp::Exponential
        | UnaryOp::ExponentialMinusOne
        | UnaryOp::Floor
        | UnaryOp::Log
        | UnaryOp::LogPlusOne
        | UnaryOp::Popcnt
        | UnaryOp::RoundNearestAfz
        | UnaryOp::RoundNearestEven
        | UnaryOp::Sine
        | UnaryOp::Tan => CastRule::FullPrecision(Conditioning::Amplifies),
    }
}

fn of_binary(binary: BinaryOp) -> CastRule {
    match binary {
        BinaryOp::Add
        | BinaryOp::And
        | BinaryOp::Complex
        | BinaryOp::Divide
        | BinaryOp::Maximum
        | BinaryOp::Minimum
        | BinaryOp::Multiply
        | BinaryOp::Or
        | BinaryOp::Subtract
        | BinaryOp::Xor
        | BinaryOp::ShiftLeft
        | BinaryOp::ShiftRightArithmetic
        | BinaryOp::ShiftRightLogical => CastRule::FollowInputs,
        BinaryOp::Atan2 | BinaryOp::Power | BinaryOp::Remainder => {
            CastRule::FullPrecision(Conditioning::Amplifies)
        }
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

fn of_reduction(kind: &Reduction, terms: Terms) -> CastRule {
    match kind {
        Reduction::Sum | Reduction::Product => CastRule::Reduce(terms),
        // The result is one of the elements.
        Reduction::Min | Reduction::Max | Reduction::And | Reduction::Or => CastRule::FollowInputs,
    }
}

/// Whether an element can be in two windows.
fn overlap(window: &WindowAttributes) -> bool {
    (window.sizes.iter().zip(&window.strides)).any(|(size, stride)| size > stride)
}
