//! The closed set of operations. Unless documented otherwise they are those of StableHLO, in its
//! terms (<https://openxla.org/stablehlo/spec>).
//!
//! A `match` that must decide for every operation has no `_`: a new operation makes the compiler
//! list each of these places. Passes that treat many operations alike match on their [`Family`].
//! Passes that only simplify name what they simplify.

use halite_core::{DType, PartitionSpec, TensorType};
use halite_stablehlo::{
    BinaryOp, ComparisonDirection, ConvolutionAttributes, DotAttributes, GatherAttributes,
    ScatterAttributes, UnaryOp, WindowAttributes,
};

use crate::Graph;

mod attributes;
mod family;

pub use attributes::*;
pub use family::Family;
pub(crate) use family::{collective_op, device_index_op, local_op, marker_op};

/// Operation of a node. It has one operand and one result unless documented otherwise.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Tensor known while tracing; no operands.
    Constant(Literal),
    /// `result[.., i, ..] = i` along `dim`; no operands.
    Iota {
        /// Type of the result.
        ty: TensorType,
        /// The dimension that counts.
        dim: usize,
    },

    /// Elementwise on one operand.
    Unary(UnaryOp),
    /// Elementwise on two operands of one type.
    Binary(BinaryOp),
    /// Elementwise on two operands of one type; the result is `bool`. Floats compare as in
    /// IEEE 754: NaN is unordered.
    Compare(ComparisonDirection),
    /// Operands `(predicate, on_true, on_false)`; `predicate` is `bool` of the same dimensions, or
    /// a scalar.
    Select,
    /// Operands `(low, x, high)`; `low` and `high` are scalars or of the dimensions of `x`.
    Clamp,
    /// To another element type, by value. Float to integer truncates.
    Convert(DType),
    /// To another element type of the same size, by bits.
    BitcastConvert(DType),
    /// Rounds a float to fewer bits, keeping its type.
    ReducePrecision {
        /// Bits of the exponent.
        exponent: u32,
        /// Bits of the mantissa.
        mantissa: u32,
    },

    /// `result[i_0, ..] = x[i_(mapping[0]), ..]`; a dimension of size 1 is repeated.
    /// `broadcast_in_dim`.
    Broadcast {
        /// Dimensions of the result.
        dims: Vec<usize>,
        /// For each dimension of the operand, the dimension of the result it becomes.
        mapping: Vec<usize>,
    },
    /// The same elements, row-major, in other dimensions.
    Reshape {
        /// Dimensions of the result.
        dims: Vec<usize>,
    },
    /// `result.dims[i] = x.dims[permutation[i]]`.
    Transpose {
        /// For each dimension of the result, the dimension of the operand.
        permutation: Vec<usize>,
    },
    /// Reverses the order of elements along `dims`.
    Reverse {
        /// The dimensions to reverse.
        dims: Vec<usize>,
    },
    /// Joins any number of operands along `dim`.
    Concatenate {
        /// The dimension that grows.
        dim: usize,
    },
    /// Elements `starts, starts + strides, ..` below `limits`.
    Slice {
        /// First index in each dimension.
        starts: Vec<usize>,
        /// Index after the last in each dimension.
        limits: Vec<usize>,
        /// Step in each dimension.
        strides: Vec<usize>,
    },
    /// Operands `(x, start_0, .., start_n)`, the starts being integer scalars of one type, clamped
    /// so that the slice fits.
    DynamicSlice {
        /// Dimensions of the result.
        sizes: Vec<usize>,
    },
    /// Operands `(x, update, start_0, .., start_n)`, the starts as for
    /// [`DynamicSlice`](Op::DynamicSlice).
    DynamicUpdateSlice,
    /// Operands `(x, value)`, `value` a scalar. Negative `low` and `high` cut.
    Pad {
        /// Elements before the first, in each dimension.
        low: Vec<i64>,
        /// Elements after the last, in each dimension.
        high: Vec<i64>,
        /// Elements between two, in each dimension.
        interior: Vec<usize>,
    },
    /// Operands `(x, indices)`; `indices` of an integer type.
    Gather(GatherAttributes),
    /// Operands `(x, indices, updates)`; `indices` of an integer type. Indices out of range write
    /// nothing. The function combines an update with the old element; `None` replaces it.
    Scatter(ScatterAttributes, Option<Reduction>),

    /// Operands `(left, right)`. `dot_general`: the result has batch, then left's free, then
    /// right's free dimensions. Its element type is at least as wide as the operands': with operands
    /// of bf16 and a result of f32, sums accumulate in f32.
    Dot(DotAttributes, DType),
    /// Operands `(x, kernel)`, and the element type of the result.
    Convolution(ConvolutionAttributes, DType),

    /// Reduces and removes `dims`. Sums and products of floats of 16 bits are accumulated in `f32`
    /// and rounded once; so are those of windows, scatters and selections.
    Reduce {
        /// Function that combines two elements.
        kind: Reduction,
        /// The dimensions, ascending.
        dims: Vec<usize>,
    },
    /// Results `(value, index: s32)`: the extreme element along `dim` and where it is; the first of
    /// equals; NaN wins.
    ArgReduce {
        /// Minimum or maximum.
        kind: Extreme,
        /// The dimension to reduce and remove.
        dim: usize,
    },
    /// Reduces each window of the operand. Padding does not count: it is the identity of `kind`.
    ReduceWindow {
        /// Function that combines two elements.
        kind: Reduction,
        /// The windows.
        window: WindowAttributes,
    },
    /// Operands `(x, source)`: adds each element of `source` to where the extreme of its window in
    /// `x` is. The gradient of max pooling. The window has no dilations.
    SelectAndScatter {
        /// Element of a window that is selected.
        kind: Extreme,
        /// The windows.
        window: WindowAttributes,
    },
    /// Any number of operands of the same dimensions, and as many results: all reordered along
    /// `dim` so that the first is sorted. Stable. Floats are ordered by value: NaN is larger than
    /// all, whatever its sign, and -0 equals 0.
    Sort {
        /// The dimension that is sorted.
        dim: usize,
        /// Largest first.
        descending: bool,
        /// Whether floats are ordered by their bits instead, as IEEE 754's total order has them:
        /// from -NaN over -0 and 0 to NaN.
        by_bits: bool,
    },
    /// The triangular factor of a symmetric, positive definite matrix `[.., n, n]`, `L` of
    /// `A = L Lᵀ` or `U` of `A = Uᵀ U`; of `f32` or `f64`. It reads this triangle alone; the other
    /// one of the result is unspecified. NaN if the matrix is not positive definite.
    Cholesky {
        /// Whether the triangle is the lower one.
        lower: bool,
    },
    /// Operands `(A, B)`: the solution `X` of a system of equations with a triangular matrix
    /// `[.., n, n]`; of `f32` or `f64`.
    TriangularSolve(Triangular),

    /// Operands `(carried.., invariant..)`, of which the first `carried` change. Both graphs take
    /// all operands as inputs; `condition` returns a `bool` scalar, `body` the next carried values.
    /// Results are the last carried values.
    While {
        /// Number of operands carried from one iteration to the next.
        carried: usize,
        /// Computes whether there is another iteration.
        condition: Box<Graph>,
        /// One iteration.
        body: Box<Graph>,
    },
    /// Operands `(carried.., invariant.., scanned..)`: `length` iterations of `body`, which takes
    /// the carried values, the invariant ones, and one slice of each scanned one along its first
    /// dimension, and returns `(next carried.., ys..)`. Results are the last carried values, and
    /// each of the `ys` of all iterations, stacked along a new first dimension.
    Scan {
        /// Number of operands, the first, that are carried from one iteration to the next.
        carried: usize,
        /// Number of operands, the last, that are scanned: `length` is their first dimension.
        scanned: usize,
        /// Number of iterations.
        length: usize,
        /// Whether iterations go from the last slice, and last element of `ys`, to the first.
        reverse: bool,
        /// Number of results, the last, that gradients alone use: residuals of the iterations.
        residuals: usize,
        /// One iteration.
        body: Box<Graph>,
    },
    /// Part of the program that gradients recompute instead of saving its values. Operands are the
    /// inputs of `body`, results its outputs. For everything else it is equivalent to its nodes.
    Checkpoint {
        /// The function.
        body: Box<Graph>,
        /// Values that gradients recompute.
        remat: Remat,
    },
    /// Operands `(index: s32 scalar, inputs..)`. Every branch takes all `inputs` and returns results
    /// of the same types. An index out of range selects the last branch.
    Case {
        /// The functions, by index.
        branches: Vec<Graph>,
    },
    /// The operand, as a constant to differentiation: its cotangent is zero. Compilers do not see
    /// it.
    StopGradient,
    /// As many results as operands, unchanged; the compiler moves nothing across.
    OptimizationBarrier,
    /// Function that the backend knows by name, with any operands and results.
    CustomCall(CustomCall),

    /// Reduces over the devices of each group.
    AllReduce {
        /// Function that combines two elements.
        kind: Reduction,
        /// Groups of devices.
        groups: Groups,
    },
    /// Concatenates over the devices of each group along `dim`.
    AllGather {
        /// The dimension that grows.
        dim: usize,
        /// Groups of devices.
        groups: Groups,
    },
    /// Reduces over the devices of each group and splits the result along `dim` between them.
    ReduceScatter {
        /// Function that combines two elements.
        kind: Reduction,
        /// The dimension that is split.
        dim: usize,
        /// Groups of devices.
        groups: Groups,
    },
    /// Splits along `split`, sends part `i` to member `i` of the group, and concatenates the
    /// received parts along `concat`.
    AllToAll {
        /// The dimension that shrinks.
        split: usize,
        /// The dimension that grows.
        concat: usize,
        /// Groups of devices.
        groups: Groups,
    },
    /// Sends along `(from, to)` pairs within each group; a device without a sender gets zeros.
    CollectivePermute {
        /// `(from, to)`, positions in a group, each at most once on each side.
        pairs: Vec<(usize, usize)>,
        /// Groups of devices.
        groups: Groups,
    },
    /// Index of the partition of this device, a `u32` scalar; no operands.
    PartitionId,
    /// Index of the replica of this device, a `u32` scalar; no operands.
    ReplicaId,
    /// Index of this device along axes of the mesh, an `s32` scalar; no operands. The last of
    /// several axes is the fastest. Only in a [`ShardMap`](Op::ShardMap).
    AxisIndex(Axes),
    /// Function that each device of a mesh runs on its shards of the operands.
    ShardMap(ShardMap),
    /// The operand with this sharding over the program's mesh.
    ShardingConstraint(PartitionSpec),
    /// The operand, whole along `dims` on every device; the compiler shards the other dimensions as it
    /// likes.
    Unsharded {
        /// The dimensions, ascending.
        dims: Vec<usize>,
    },
    /// The operand, whose sharding follows from what computes it, and not from its uses.
    PropagationBarrier,
}

impl Op {
    /// Name of the operation: `add`, `dot`, `reduce_sum`.
    pub const fn name(&self) -> &'static str {
        match self {
            Op::Constant(_) => "constant",
            Op::Iota { .. } => "iota",
            Op::Unary(unary) => unary.name(),
            Op::Binary(binary) => binary.name(),
            Op::Compare(_) => "compare",
            Op::Select => "select",
            Op::Clamp => "clamp",
            Op::Convert(_) => "convert",
            Op::BitcastConvert(_) => "bitcast_convert",
            Op::ReducePrecision { .. } => "reduce_precision",
            Op::Broadcast { .. } => "broadcast",
            Op::Reshape { .. } => "reshape",
            Op::Transpose { .. } => "transpose",
            Op::Reverse { .. } => "reverse",
            Op::Concatenate { .. } => "concatenate",
            Op::Slice { .. } => "slice",
            Op::DynamicSlice { .. } => "dynamic_slice",
            Op::DynamicUpdateSlice => "dynamic_update_slice",
            Op::Pad { .. } => "pad",
            Op::Gather(_) => "gather",
            Op::Scatter(..) => "scatter",
            Op::Dot(..) => "dot",
            Op::Convolution(..) => "convolution",
            Op::Reduce {
                kind: Reduction::Sum,
                ..
            } => "reduce_sum",
            Op::Reduce {
                kind: Reduction::Product,
                ..
            } => "reduce_product",
            Op::Reduce {
                kind: Reduction::Min,
                ..
            } => "reduce_min",
            Op::Reduce {
                kind: Reduction::Max,
                ..
            } => "reduce_max",
            Op::Reduce {
                kind: Reduction::And,
                ..
            } => "reduce_and",
            Op::Reduce {
                kind: Reduction::Or,
                ..
            } => "reduce_or",
            Op::ArgReduce {
                kind: Extreme::Min, ..
            } => "argmin",
            Op::ArgReduce {
                kind: Extreme::Max, ..
            } => "argmax",
            Op::ReduceWindow { .. } => "reduce_window",
            Op::SelectAndScatter { .. } => "select_and_scatter",
            Op::Sort { .. } => "sort",
            Op::Cholesky { .. } => "cholesky",
            Op::TriangularSolve(_) => "triangular_solve",
            Op::While { .. } => "while",
            Op::Scan { .. } => "scan",
            Op::Checkpoint { .. } => "checkpoint",
            Op::Case { .. } => "case",
            Op::StopGradient => "stop_gradient",
            Op::OptimizationBarrier => "optimization_barrier",
            Op::CustomCall(_) => "custom_call",
            Op::AllReduce { .. } => "all_reduce",
            Op::AllGather { .. } => "all_gather",
            Op::ReduceScatter { .. } => "reduce_scatter",
            Op::AllToAll { .. } => "all_to_all",
            Op::CollectivePermute { .. } => "collective_permute",
            Op::PartitionId => "partition_id",
            Op::ReplicaId => "replica_id",
            Op::AxisIndex(_) => "axis_index",
            Op::ShardMap(_) => "shard_map",
            Op::ShardingConstraint(_) => "sharding_constraint",
            Op::Unsharded { .. } => "unsharded",
            Op::PropagationBarrier => "propagation_barrier",
        }
    }

    /// Its graphs, in the order of its fields.
    pub fn regions(&self) -> Vec<&Graph> {
        match self {
            Op::While {
                condition, body, ..
            } => vec![condition, body],
            Op::Scan { body, .. } | Op::Checkpoint { body, .. } => vec![body],
            Op::Case { branches } => branches.iter().collect(),
            Op::ShardMap(map) => vec![&map.body],
            Op::CustomCall(call) => call.decomposition.iter().map(|graph| &**graph).collect(),
            local_op!() | marker_op!() | collective_op!() | device_index_op!() => vec![],
        }
    }

    /// Its graphs as [`regions`](Self::regions), to change them.
    pub(crate) fn regions_mut(&mut self) -> Vec<&mut Graph> {
        match self {
            Op::While {
                condition, body, ..
            } => vec![condition, body],
            Op::Scan { body, .. } | Op::Checkpoint { body, .. } => vec![body],
            Op::Case { branches } => branches.iter_mut().collect(),
            Op::ShardMap(map) => vec![&mut map.body],
            Op::CustomCall(call) => {
                let decomposition = call.decomposition.iter_mut();
                decomposition.map(|graph| &mut **graph).collect()
            }
            local_op!() | marker_op!() | collective_op!() | device_index_op!() => vec![],
        }
    }
}

/// Function that combines two elements.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum Reduction {
    Sum,
    Product,
    Min,
    Max,
    And,
    Or,
}

/// Minimum or maximum.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum Extreme {
    Min,
    Max,
}

/// Values of a [`Checkpoint`](Op::Checkpoint) that gradients recompute instead of saving them.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Remat {
    /// All values: only the operands are saved.
    #[default]
    Full,
    /// All but the results of dot products and convolutions, which are expensive to recompute and
    /// cheap to store.
    SaveDots,
}
