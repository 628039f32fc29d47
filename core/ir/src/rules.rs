//! What passes, the cost model and gradients need to know of each operation, one row for each.
//!
//! A row states facts that hold whatever the operands are. What also depends on their types stands
//! with the pass that asks: [`Work::Counted`], and cast rules that are `None`.

use crate::{BinaryOp, Op, Reduction, UnaryOp, WindowAttributes};

/// The facts of an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rules {
    pub(crate) work: Work,
    /// `None` where the types of the operands decide: of conversions, and of products, which may be
    /// squares.
    pub(crate) cast: Option<CastRule>,
    /// Whether recomputing the one result takes about as long as reading it: no transcendental
    /// functions, reductions or products of matrices.
    pub is_cheap: bool,
    /// In which operands it is linear.
    pub linearity: Linearity,
}

/// The operands in which an operation is linear: a zero there makes the result zero.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Linearity {
    /// None, or it has a rule of its own.
    None,
    /// The first one, whatever the others are.
    First,
    /// All of them together: sums, and what chooses between them.
    Together,
    /// Each of two alone: a product.
    Each,
    /// The second one, between bounds.
    Second,
    /// The second and third together, by a predicate.
    Chosen,
}

/// What the cost model counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Work {
    /// Nothing: it is computed where it is used, or not moved.
    Nothing,
    /// Bytes that are read and written.
    Copy,
    /// An operation for each element of the result.
    Elementwise,
    /// A transcendental function for each element of the result.
    Transcendental,
    /// An operation for each element of the first operand.
    EachOfFirst,
    /// What depends on its attributes and types.
    Counted,
    /// The work of its graphs.
    Regions,
}

/// How an operation behaves towards precision.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CastRule {
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
pub(crate) enum Conditioning {
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
pub(crate) enum Terms {
    /// Whole dimensions, or all occurrences of an index: rounding errors average out.
    Many,
    /// A window, or one value of each device.
    Few,
}

impl Rules {
    const fn new(work: Work, cast: CastRule) -> Self {
        Rules {
            work,
            cast: Some(cast),
            is_cheap: false,
            linearity: Linearity::None,
        }
    }

    /// With a cast rule that the types of the operands decide.
    const fn by_types(work: Work) -> Self {
        Rules {
            work,
            cast: None,
            is_cheap: false,
            linearity: Linearity::None,
        }
    }

    const fn cheap(self) -> Self {
        Rules {
            is_cheap: true,
            ..self
        }
    }

    const fn linear(self, linearity: Linearity) -> Self {
        Rules { linearity, ..self }
    }
}

const AMPLIFIES: CastRule = CastRule::FullPrecision(Conditioning::Amplifies);
const DAMPS: CastRule = CastRule::FullPrecision(Conditioning::Damps);

impl Op {
    /// The facts of the operation.
    pub fn rules(&self) -> Rules {
        use CastRule::{Contract, DataMovement, FollowInputs, PerOperand, Predicate, Unchanged};
        use Linearity::{Chosen, First, Second};
        use Work::{Copy, Counted, EachOfFirst, Elementwise, Nothing, Regions};
        let new = Rules::new;
        match self {
            Op::Constant(_) => new(Nothing, DataMovement).cheap(),
            Op::Iota { .. } => new(Nothing, AMPLIFIES).cheap(),

            Op::Unary(unary) => of_unary(*unary),
            Op::Binary(binary) => of_binary(*binary),
            Op::Compare(_) => new(Elementwise, Predicate).cheap(),
            Op::Select => new(Elementwise, FollowInputs).cheap().linear(Chosen),
            Op::Clamp => new(Elementwise, FollowInputs).cheap().linear(Second),
            Op::Convert(_) => Rules::by_types(Elementwise).cheap().linear(First),
            Op::BitcastConvert(_) => new(Copy, Unchanged).cheap(),
            Op::ReducePrecision { .. } => new(Elementwise, FollowInputs).cheap().linear(First),

            Op::Broadcast { .. } => new(Copy, DataMovement).cheap().linear(First),
            Op::Reshape { .. } => new(Nothing, DataMovement).cheap().linear(First),
            Op::Transpose { .. } => new(Copy, DataMovement).cheap().linear(First),
            Op::Reverse { .. } => new(Copy, DataMovement).cheap(),
            Op::Concatenate { .. } => new(Copy, FollowInputs),
            Op::Slice { .. } => new(Copy, FollowInputs).cheap(),
            Op::DynamicSlice { .. } => new(Copy, FollowInputs).cheap(),
            Op::DynamicUpdateSlice => new(Copy, FollowInputs),
            Op::Pad { .. } => new(Copy, FollowInputs).cheap(),
            Op::Gather(_) => new(Copy, FollowInputs),
            Op::Scatter(_, None) => new(Copy, FollowInputs),
            Op::Scatter(_, Some(kind)) => new(Counted, of_reduction(*kind, Terms::Many)),

            Op::Dot(..) | Op::Convolution(..) => new(Counted, Contract),
            Op::Reduce { kind, .. } => new(Counted, of_reduction(*kind, Terms::Many)),
            Op::ArgReduce { .. } => new(Counted, AMPLIFIES),
            Op::ReduceWindow { kind, .. } => new(Counted, of_reduction(*kind, Terms::Few)),
            Op::SelectAndScatter { window, .. } => new(Counted, of_selection(window)),
            Op::Sort { .. } => new(Counted, AMPLIFIES),
            Op::Cholesky { .. } | Op::TriangularSolve(_) => new(Counted, AMPLIFIES),

            // Scans have a transfer function of their own; checkpoints are removed before the pass.
            Op::While { .. } | Op::Scan { .. } | Op::Checkpoint { .. } => new(Regions, Unchanged),
            Op::Case { .. } | Op::ShardMap(_) => new(Regions, Unchanged),
            Op::CustomCall(call) if call.decomposition.is_some() => new(Regions, Unchanged),
            Op::CustomCall(_) => new(Counted, Unchanged),

            Op::StopGradient => new(Nothing, Unchanged).cheap(),
            Op::OptimizationBarrier => new(Nothing, PerOperand),
            Op::ShardingConstraint(_) => new(Nothing, DataMovement).cheap().linear(First),
            Op::Unsharded { .. } => new(Nothing, DataMovement).cheap().linear(First),
            Op::PropagationBarrier => new(Nothing, DataMovement).cheap().linear(First),

            Op::AllReduce { kind, .. } => {
                new(EachOfFirst, of_reduction(*kind, Terms::Few)).linear(First)
            }
            Op::ReduceScatter { kind, .. } => new(EachOfFirst, of_reduction(*kind, Terms::Few)),
            Op::AllGather { .. } => new(Copy, DataMovement),
            Op::AllToAll { .. } | Op::CollectivePermute { .. } => new(Copy, FollowInputs),
            Op::PartitionId | Op::ReplicaId | Op::AxisIndex(_) => new(Nothing, Unchanged).cheap(),
        }
    }
}

const fn of_unary(unary: UnaryOp) -> Rules {
    use CastRule::{FollowInputs, Predicate};
    use Work::{Elementwise, Transcendental};
    match unary {
        UnaryOp::Abs => Rules::new(Elementwise, FollowInputs).cheap(),
        UnaryOp::Cbrt => Rules::new(Transcendental, DAMPS),
        UnaryOp::Ceil => Rules::new(Elementwise, AMPLIFIES).cheap(),
        UnaryOp::Cosine => Rules::new(Transcendental, AMPLIFIES),
        UnaryOp::CountLeadingZeros => Rules::new(Elementwise, AMPLIFIES).cheap(),
        UnaryOp::Erf => Rules::new(Transcendental, FollowInputs),
        UnaryOp::Exponential => Rules::new(Transcendental, AMPLIFIES),
        UnaryOp::ExponentialMinusOne => Rules::new(Transcendental, AMPLIFIES),
        UnaryOp::Floor => Rules::new(Elementwise, AMPLIFIES).cheap(),
        UnaryOp::Imag => Rules::new(Elementwise, FollowInputs).cheap(),
        UnaryOp::IsFinite => Rules::new(Elementwise, Predicate).cheap(),
        UnaryOp::Log => Rules::new(Transcendental, AMPLIFIES),
        UnaryOp::LogPlusOne => Rules::new(Transcendental, AMPLIFIES),
        UnaryOp::Logistic => Rules::new(Transcendental, FollowInputs),
        UnaryOp::Negate => {
            let rules = Rules::new(Elementwise, FollowInputs).cheap();
            rules.linear(Linearity::First)
        }
        UnaryOp::Not => Rules::new(Elementwise, FollowInputs).cheap(),
        UnaryOp::Popcnt => Rules::new(Elementwise, AMPLIFIES).cheap(),
        UnaryOp::Real => Rules::new(Elementwise, FollowInputs).cheap(),
        UnaryOp::RoundNearestAfz => Rules::new(Elementwise, AMPLIFIES).cheap(),
        UnaryOp::RoundNearestEven => Rules::new(Elementwise, AMPLIFIES).cheap(),
        UnaryOp::Rsqrt => Rules::new(Transcendental, DAMPS),
        UnaryOp::Sign => Rules::new(Elementwise, FollowInputs).cheap(),
        UnaryOp::Sine => Rules::new(Transcendental, AMPLIFIES),
        UnaryOp::Sqrt => Rules::new(Transcendental, DAMPS),
        UnaryOp::Tan => Rules::new(Transcendental, AMPLIFIES),
        UnaryOp::Tanh => Rules::new(Transcendental, FollowInputs),
    }
}

const fn of_binary(binary: BinaryOp) -> Rules {
    use Work::{Elementwise, Transcendental};
    let simple = Rules::new(Elementwise, CastRule::FollowInputs).cheap();
    match binary {
        BinaryOp::Add | BinaryOp::Subtract => simple.linear(Linearity::Together),
        BinaryOp::Multiply => {
            let rules = Rules::by_types(Elementwise).cheap();
            rules.linear(Linearity::Each)
        }
        BinaryOp::Divide => {
            let rules = Rules::new(Elementwise, CastRule::FollowInputs);
            rules.linear(Linearity::First)
        }
        BinaryOp::Maximum | BinaryOp::Minimum => simple,
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => simple,
        BinaryOp::ShiftLeft => simple,
        BinaryOp::ShiftRightArithmetic | BinaryOp::ShiftRightLogical => simple,
        BinaryOp::Complex => simple,
        BinaryOp::Atan2 | BinaryOp::Power => Rules::new(Transcendental, AMPLIFIES),
        BinaryOp::Remainder => Rules::new(Elementwise, AMPLIFIES),
    }
}

const fn of_reduction(kind: Reduction, terms: Terms) -> CastRule {
    match kind {
        Reduction::Sum | Reduction::Product => CastRule::Reduce(terms),
        // The result is one of the elements.
        Reduction::Min | Reduction::Max | Reduction::And | Reduction::Or => CastRule::FollowInputs,
    }
}

/// Sums, if an element can be in two windows.
fn of_selection(window: &WindowAttributes) -> CastRule {
    let mut dims = window.sizes.iter().zip(&window.strides);
    if dims.any(|(size, stride)| size > stride) {
        CastRule::Reduce(Terms::Few)
    } else {
        CastRule::FollowInputs
    }
}
