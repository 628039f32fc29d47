//! The operations with the attributes that define them.
//!
//! Names and meanings are those of the specification (<https://openxla.org/stablehlo/spec>).
//! Operations on dynamic shapes and on quantized types have no variant: readers refuse them by
//! name, as they do `infeed`, `outfeed`, `send` and `recv`. `broadcast` and `dot` are read as
//! `broadcast_in_dim` and `dot_general`, `create_token` as `after_all`.

use crate::{Attribute, Attributes, Dense, ShardyAxis, ShardySharding};

/// An operation without its operands, results and regions.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    missing_docs,
    reason = "fields that are not documented are attributes of the specification"
)]
pub enum OpKind {
    /// The value; no operands.
    Constant(Dense),
    /// Counts along a dimension; no operands.
    Iota {
        dim: usize,
    },

    /// Elementwise on one operand.
    Unary(UnaryOp),
    /// Elementwise on two operands of one type. `complex` has parts as operands.
    Binary(BinaryOp),
    /// Elementwise on two operands of one type, with a boolean result.
    Compare {
        direction: ComparisonDirection,
        /// `None` if the program leaves it to the element type: `TotalOrder` is never implied.
        order: Option<ComparisonOrder>,
    },
    /// Operands `(predicate, on_true, on_false)`.
    Select,
    /// Operands `(low, x, high)`.
    Clamp,
    /// To the element type of the result, by value.
    Convert,
    /// To the element type of the result, by bits.
    BitcastConvert,
    ReducePrecision {
        exponent: u32,
        mantissa: u32,
    },

    /// `mapping[i]` is the dimension of the result that dimension `i` of the operand becomes.
    BroadcastInDim {
        mapping: Vec<usize>,
    },
    Reshape,
    Transpose {
        permutation: Vec<usize>,
    },
    Reverse {
        dims: Vec<usize>,
    },
    Concatenate {
        dim: usize,
    },
    Slice {
        starts: Vec<usize>,
        limits: Vec<usize>,
        strides: Vec<usize>,
    },
    /// Operands `(x, starts..)`.
    DynamicSlice {
        sizes: Vec<usize>,
    },
    /// Operands `(x, update, starts..)`.
    DynamicUpdateSlice,
    /// Operands `(x, value)`.
    Pad {
        low: Vec<i64>,
        high: Vec<i64>,
        interior: Vec<usize>,
    },
    /// Operands `(x, start_indices)`.
    Gather(GatherAttributes),
    /// Operands `(inputs.., indices, updates..)`; region: `(old.., update..) -> new..`.
    Scatter(ScatterAttributes),

    DotGeneral(DotAttributes),
    Convolution(ConvolutionAttributes),

    /// Operands `(inputs.., initial values..)`; region: `(accumulators.., elements..) -> ..`.
    Reduce {
        dims: Vec<usize>,
    },
    /// Operands and region as of [`Reduce`](Self::Reduce).
    ReduceWindow(WindowAttributes),
    /// Operands `(x, source, initial value)`; regions: select, scatter. It has no dilations.
    SelectAndScatter(WindowAttributes),
    /// Region: `(left_0, right_0, left_1, ..) -> bool`, whether left comes first.
    Sort {
        dim: usize,
        stable: bool,
    },
    /// Elementwise by its region, over all dimensions.
    Map {
        dims: Vec<usize>,
    },

    /// Regions: condition, body; both take all operands.
    While,
    /// Operand: the predicate. Regions: true, false; without arguments.
    If,
    /// Operand: the index. Regions: branches without arguments; the last is for other indices.
    Case,
    /// A function of the module.
    Call {
        function: String,
    },
    /// An operation whose meaning is a function of the module.
    Composite {
        name: String,
        attributes: Attributes,
        /// The function.
        decomposition: String,
        version: i64,
    },
    /// An operation that its implementor knows by name.
    CustomCall(CustomCallAttributes),

    Fft {
        transform: FftKind,
        lengths: Vec<usize>,
    },
    /// `lower`: whether the lower triangle is read and written.
    Cholesky {
        lower: bool,
    },
    TriangularSolve {
        left_side: bool,
        lower: bool,
        unit_diagonal: bool,
        transpose: Transposition,
    },
    /// Operands `(x, scale, offset)`, results `(y, mean, variance)`.
    BatchNormTraining {
        epsilon: f32,
        feature: usize,
    },
    /// Operands `(x, scale, offset, mean, variance)`.
    BatchNormInference {
        epsilon: f32,
        feature: usize,
    },
    /// Operands `(x, scale, mean, variance, dy)`, results `(dx, dscale, doffset)`.
    BatchNormGrad {
        epsilon: f32,
        feature: usize,
    },

    /// Operands `(low or mean, high or deviation, shape)`.
    Rng {
        distribution: RngDistribution,
    },
    /// Operand: the state. Results: the next state, bits.
    RngBitGenerator {
        algorithm: RngAlgorithm,
    },

    /// Results are the operands.
    OptimizationBarrier,
    Tuple,
    GetTupleElement {
        index: usize,
    },
    /// Operands and result are tokens.
    AfterAll,
    /// The size of a dimension, a scalar of `i32`.
    GetDimensionSize {
        dim: usize,
    },

    /// Region: `(a, b) -> combined`. Any number of operands.
    AllReduce(CollectiveAttributes),
    /// Any number of operands.
    AllGather {
        dim: usize,
        collective: CollectiveAttributes,
    },
    /// Any number of operands.
    AllToAll {
        split: usize,
        concat: usize,
        parts: usize,
        collective: CollectiveAttributes,
    },
    /// Region as of [`AllReduce`](Self::AllReduce); one operand.
    ReduceScatter {
        dim: usize,
        collective: CollectiveAttributes,
    },
    /// `(source, target)` of each message.
    CollectivePermute {
        pairs: Vec<(usize, usize)>,
        channel: Option<i64>,
    },
    CollectiveBroadcast(CollectiveAttributes),
    /// A scalar of `ui32`; no operands.
    PartitionId,
    /// A scalar of `ui32`; no operands.
    ReplicaId,

    /// `sdy.sharding_constraint`.
    ShardingConstraint(ShardySharding),
    /// `sdy.propagation_barrier`: its operand, to whose sharding shardings spread in these directions
    /// only.
    PropagationBarrier(PropagationDirection),
    /// `sdy.manual_computation`: its region takes and returns the shards of one device.
    ManualComputation(ManualAttributes),
}

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[allow(missing_docs, reason = "the names are those of the specification")]
        pub enum $name { $($variant),* }

        impl $name {
            /// All cases.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name in StableHLO.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            /// The case with this [`name`](Self::name).
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|case| case.name() == name)
            }
        }
    };
}

named! {
    /// Elementwise operations on one operand. `erf` is the operation of CHLO, which programs have as
    /// the custom call `mhlo.erf`.
    UnaryOp {
        Abs = "abs", Cbrt = "cbrt", Ceil = "ceil", CountLeadingZeros = "count_leading_zeros",
        Cosine = "cosine", Erf = "erf", Exponential = "exponential",
        ExponentialMinusOne = "exponential_minus_one", Floor = "floor", Imag = "imag",
        IsFinite = "is_finite", Log = "log", LogPlusOne = "log_plus_one", Logistic = "logistic",
        Negate = "negate", Not = "not", Popcnt = "popcnt", Real = "real",
        RoundNearestAfz = "round_nearest_afz", RoundNearestEven = "round_nearest_even",
        Rsqrt = "rsqrt", Sign = "sign", Sine = "sine", Sqrt = "sqrt", Tan = "tan", Tanh = "tanh",
    }
}

named! {
    /// Elementwise operations on two operands.
    BinaryOp {
        Add = "add", And = "and", Atan2 = "atan2", Complex = "complex", Divide = "divide",
        Maximum = "maximum", Minimum = "minimum", Multiply = "multiply", Or = "or",
        Power = "power", Remainder = "remainder", ShiftLeft = "shift_left",
        ShiftRightArithmetic = "shift_right_arithmetic",
        ShiftRightLogical = "shift_right_logical", Subtract = "subtract", Xor = "xor",
    }
}

named! {
    /// Relations of [`OpKind::Compare`].
    ComparisonDirection { Eq = "EQ", Ne = "NE", Ge = "GE", Gt = "GT", Le = "LE", Lt = "LT" }
}

named! {
    /// Orders of [`OpKind::Compare`].
    ComparisonOrder {
        Float = "FLOAT", TotalOrder = "TOTALORDER", Signed = "SIGNED", Unsigned = "UNSIGNED",
    }
}

named! {
    /// Transforms of [`OpKind::Fft`].
    FftKind { Fft = "FFT", Ifft = "IFFT", Rfft = "RFFT", Irfft = "IRFFT" }
}

named! {
    /// Transpositions of the matrix of [`OpKind::TriangularSolve`].
    Transposition { No = "NO_TRANSPOSE", Transpose = "TRANSPOSE", Adjoint = "ADJOINT" }
}

named! {
    /// Distributions of [`OpKind::Rng`].
    RngDistribution { Uniform = "UNIFORM", Normal = "NORMAL" }
}

named! {
    /// Algorithms of [`OpKind::RngBitGenerator`].
    RngAlgorithm { Default = "DEFAULT", ThreeFry = "THREE_FRY", Philox = "PHILOX" }
}

named! {
    /// Directions of [`OpKind::PropagationBarrier`], in the order of their numbers: from the operand
    /// to the result is forward.
    PropagationDirection { None = "NONE", Forward = "FORWARD", Backward = "BACKWARD", Both = "BOTH" }
}

/// Attributes of `gather`; index lists are ascending where the specification says so.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[allow(missing_docs, reason = "the names are those of the specification")]
pub struct GatherAttributes {
    pub offset_dims: Vec<usize>,
    pub collapsed_slice_dims: Vec<usize>,
    pub operand_batching_dims: Vec<usize>,
    pub start_indices_batching_dims: Vec<usize>,
    pub start_index_map: Vec<usize>,
    pub index_vector_dim: usize,
    pub slice_sizes: Vec<usize>,
    pub indices_are_sorted: bool,
}

/// Attributes of `scatter`.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[allow(missing_docs, reason = "the names are those of the specification")]
pub struct ScatterAttributes {
    pub update_window_dims: Vec<usize>,
    pub inserted_window_dims: Vec<usize>,
    pub input_batching_dims: Vec<usize>,
    pub scatter_indices_batching_dims: Vec<usize>,
    pub scatter_dims_to_operand_dims: Vec<usize>,
    pub index_vector_dim: usize,
    pub indices_are_sorted: bool,
    pub unique_indices: bool,
}

/// Attributes of `dot_general`. Precision and algorithm are hints.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "the names are those of the specification")]
pub struct DotAttributes {
    pub lhs_batching: Vec<usize>,
    pub rhs_batching: Vec<usize>,
    pub lhs_contracting: Vec<usize>,
    pub rhs_contracting: Vec<usize>,
    /// `DEFAULT`, `HIGH` or `HIGHEST` of each operand; may be empty.
    pub precision: Vec<String>,
    /// The attribute `algorithm`, as read: its fields by name.
    pub algorithm: Option<Attributes>,
}

/// Attributes of `convolution`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ConvolutionAttributes {
    /// Positions of the batch, feature and spatial dimensions of the input.
    pub input: ConvolutionDims,
    /// Positions of the output feature (`batch`), input feature (`feature`) and spatial dimensions
    /// of the kernel.
    pub kernel: ConvolutionDims,
    /// Positions of the batch, feature and spatial dimensions of the result.
    pub output: ConvolutionDims,
    /// Step of the window, per spatial dimension.
    pub strides: Vec<usize>,
    /// Elements before and after the input, per spatial dimension; may be negative.
    pub padding: Vec<(i64, i64)>,
    /// `lhs_dilation`, per spatial dimension.
    pub input_dilation: Vec<usize>,
    /// `rhs_dilation`, per spatial dimension.
    pub kernel_dilation: Vec<usize>,
    /// `window_reversal`, per spatial dimension.
    pub reversal: Vec<bool>,
    /// `feature_group_count`.
    pub feature_groups: usize,
    /// `batch_group_count`.
    pub batch_groups: usize,
    /// `DEFAULT`, `HIGH` or `HIGHEST` of each operand; may be empty.
    pub precision: Vec<String>,
}

/// Positions of the dimensions of a tensor of a convolution.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct ConvolutionDims {
    /// The batch; of a kernel, the output feature.
    pub batch: usize,
    /// The feature; of a kernel, the input feature.
    pub feature: usize,
    /// The spatial dimensions, in order.
    pub spatial: Vec<usize>,
}

/// Windows over every dimension of an operand.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct WindowAttributes {
    /// Size of the window in each dimension.
    pub sizes: Vec<usize>,
    /// Step of the window in each dimension.
    pub strides: Vec<usize>,
    /// 1 + gaps between elements of the operand, in each dimension.
    pub base_dilations: Vec<usize>,
    /// 1 + gaps between elements of the window, in each dimension.
    pub window_dilations: Vec<usize>,
    /// Padding before and after, in each dimension; may be negative.
    pub padding: Vec<(i64, i64)>,
}

/// Attributes of `custom_call`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CustomCallAttributes {
    /// `call_target_name`.
    pub target: String,
    /// `has_side_effect`.
    pub side_effect: bool,
    /// `backend_config`: a string, or a dictionary.
    pub config: Option<Attribute>,
    /// `api_version`.
    pub api_version: i64,
    /// `called_computations`: functions of the module.
    pub functions: Vec<String>,
    /// `output_operand_aliases`, as read.
    pub aliases: Option<Attribute>,
    /// `operand_layouts`, as read.
    pub operand_layouts: Option<Attribute>,
    /// `result_layouts`, as read.
    pub result_layouts: Option<Attribute>,
}

/// Devices of a collective.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct CollectiveAttributes {
    /// Groups of processes, each list in the order of its members. Lists that are padded with -1 in
    /// the program are shorter here.
    pub groups: Vec<Vec<usize>>,
    /// The channel's handle, if the program has one that is greater than 0.
    pub channel: Option<i64>,
    /// Whether groups hold flattened ids of (replica, partition).
    pub global_ids: bool,
}

/// Attributes of `sdy.manual_computation`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManualAttributes {
    /// Sharding of each operand.
    pub inputs: Vec<ShardySharding>,
    /// Sharding of each result.
    pub outputs: Vec<ShardySharding>,
    /// Axes that the region is written for.
    pub axes: Vec<ShardyAxis>,
}
