//! The operations, each in one row.
//!
//! Names and meanings are those of the specification (<https://openxla.org/stablehlo/spec>).
//! Operations on dynamic shapes and on quantized types have no variant: readers refuse them by
//! name, as they do `infeed`, `outfeed`, `send` and `recv`. `broadcast` and `dot` are read as
//! `broadcast_in_dim` and `dot_general`, `create_token` as `after_all`.
//!
//! # Add an operation
//!
//! 1. Add a row to [`ops!`], or a case to [`UnaryOp`] or [`BinaryOp`]. The variant of [`OpKind`],
//!    [`OpKind::to_attributes`], [`OpKind::from_attributes`], text and portable artifacts follow
//!    from it. `define!` in [`macros`] documents the grammar of rows.
//! 2. Choose the kinds of its fields from [`kinds`]. A new enumeration, and a structure of many
//!    fields or of fields that several operations have, go into [`attributes`].
//! 3. Write the rule that the row names, in [`verify`](crate::verify): it checks the operands,
//!    attributes and regions, and returns the types of the results. Elementwise operations share
//!    one, to which the row gives the classes of elements.
//! 4. Text has operands and `key = value` if all fields have a [`key`](fields::Field::key), else
//!    MLIR's generic form. Another form is parsed in `text/pretty.rs` and written in
//!    `print/forms.rs`.
//!
//! Other names of an operation, and operations that are read as others, are in
//! [`build`](crate::build).

mod attributes;
pub(crate) mod classes;
mod custom_call;
mod enumeration;
mod fields;
mod kinds;
mod macros;
mod read;
mod row;
mod take;
mod value;

use std::{collections::BTreeMap, sync::LazyLock};

use halite_core::Result;

pub(crate) use self::{
    attributes::{ALGORITHM_FIELDS, PRECISION, precision},
    enumeration::Enumeration,
    fields::Fields,
    kinds::{flag, sizes},
    row::{Named, Row},
    take::Take,
    value::{Value, width},
};
pub use self::{
    attributes::{
        CollectiveAttributes, ComparisonDirection, ComparisonOrder, ConvolutionAttributes,
        ConvolutionDims, DotAttributes, FftKind, GatherAttributes, ManualAttributes,
        PropagationDirection, RngAlgorithm, RngDistribution, ScatterAttributes, Transposition,
        WindowAttributes,
    },
    custom_call::CustomCallAttributes,
};
use self::{
    attributes::{Dilated, Exchange, Undilated, direction, last_dim, order},
    classes::{ANY, BITS, FLOAT, INEXACT, INTEGER, NUMBER, SIGNED},
    fields::{Boxed, structure},
    kinds::{
        bits, case, channel, constant, devices, dictionary, float, index, ints, sharding, size,
        symbol, text, version,
    },
    macros::{define, elementwise, names, versions},
    row::{STABLE, Versions, since},
};
use crate::{Attributes, Dense, ElementClass, ShardySharding};

/// Calls a macro with the rows of all operations but the elementwise ones. Rules have the operation
/// with its types as `op`.
macro_rules! ops {
    ($with:ident) => { $with! { op;
        /// The value; no operands.
        Constant(value: Dense = constant("value")) = "constant" => {
                let [] = op.take()?;
                one(Ok(value.ty.clone()))
            };
        /// Counts along a dimension; no operands.
        Iota { dim: usize = size("iota_dimension").key("dim") } = "iota" => one(rules::iota(&op.tensors()?, op.declared_one()?, *dim));

        /// Elementwise on two operands of one type, with a boolean result.
        Compare {
            direction: ComparisonDirection = case("comparison_direction"),
            /// `None` if the program leaves it to the element type: `TotalOrder` is never implied.
            order: Option<ComparisonOrder> = order("compare_type"),
        } = "compare" => one(rules::compare(&op.tensors()?, *order));
        /// Operands `(predicate, on_true, on_false)`.
        Select = "select" => one(rules::select(&op.tensors()?));
        /// Operands `(low, x, high)`.
        Clamp = "clamp" => one(rules::clamp(&op.tensors()?));
        /// To the element type of the result, by value.
        Convert = "convert" => one(rules::convert(&op.tensors()?, op.declared_one()?.element));
        /// To the element type of the result, by bits.
        BitcastConvert = "bitcast_convert" => one(rules::bitcast_convert(&op.tensors()?, op.declared_one()?));
        ReducePrecision {
            exponent: u32 = bits("exponent_bits"),
            mantissa: u32 = bits("mantissa_bits"),
        } = "reduce_precision" => one(rules::reduce_precision(&op.tensors()?, *exponent));

        /// `mapping[i]` is the dimension of the result that dimension `i` of the operand becomes.
        BroadcastInDim { mapping: Vec<usize> = sizes("broadcast_dimensions").key("dims") }
            = "broadcast_in_dim" => one(rules::broadcast(&op.tensors()?, &op.declared_one()?.dims, mapping));
        Reshape = "reshape" => one(rules::reshape(&op.tensors()?, &op.declared_one()?.dims));
        Transpose { permutation: Vec<usize> = sizes("permutation").key("dims") }
            = "transpose" => one(rules::transpose(&op.tensors()?, permutation));
        Reverse { dims: Vec<usize> = sizes("dimensions").key("dims") }
            = "reverse" => one(rules::reverse(&op.tensors()?, dims));
        Concatenate { dim: usize = size("dimension").key("dim") }
            = "concatenate" => one(rules::concatenate(&op.tensors()?, *dim));
        Slice {
            starts: Vec<usize> = sizes("start_indices"),
            limits: Vec<usize> = sizes("limit_indices"),
            strides: Vec<usize> = sizes("strides"),
        } = "slice" => one(rules::slice(&op.tensors()?, starts, limits, strides));
        /// Operands `(x, starts..)`.
        DynamicSlice { sizes: Vec<usize> = sizes("slice_sizes").key("sizes") }
            = "dynamic_slice" => one(rules::dynamic_slice(&op.tensors()?, sizes));
        /// Operands `(x, update, starts..)`.
        DynamicUpdateSlice = "dynamic_update_slice" => one(rules::dynamic_update_slice(&op.tensors()?));
        /// Operands `(x, value)`.
        Pad {
            low: Vec<i64> = ints("edge_padding_low").key("low"),
            high: Vec<i64> = ints("edge_padding_high").key("high"),
            interior: Vec<usize> = sizes("interior_padding").key("interior"),
        } = "pad" => one(rules::pad(&op.tensors()?, low, high, interior));
        /// Operands `(x, start_indices)`.
        Gather(attributes: Box<GatherAttributes> = Boxed(structure()))
            = "gather" in &[since(0, 9), since(1, 1)] => one(rules::gather(&op.tensors()?, attributes));
        /// Operands `(inputs.., indices, updates..)`; region: `(old.., update..) -> new..`.
        Scatter(attributes: Box<ScatterAttributes> = Boxed(structure()))
            = "scatter" [regions] in &[since(0, 9), since(1, 1)] => reduce::scatter(op, attributes);

        DotGeneral(attributes: Box<DotAttributes> = Boxed(structure()))
            = "dot_general" in &[since(0, 9), since(1, 6)]
            => one(rules::dot(&op.tensors()?, attributes, op.declared_one()?.element));
        Convolution(attributes: Box<ConvolutionAttributes> = Boxed(structure()))
            = "convolution" => one(rules::convolution(&op.tensors()?, attributes, op.declared_one()?.element));

        /// Operands `(inputs.., initial values..)`; region: `(accumulators.., elements..) -> ..`.
        Reduce { dims: Vec<usize> = sizes("dimensions") }
            = "reduce" [regions] => reduce::reduce(op, dims);
        /// Operands and region as of [`Reduce`](Self::Reduce).
        ReduceWindow(windows: Box<WindowAttributes> = Boxed(Dilated))
            = "reduce_window" [regions] => reduce::reduce_window(op, windows);
        /// Operands `(x, source, initial value)`; regions: select, scatter. It has no dilations.
        SelectAndScatter(windows: Box<WindowAttributes> = Boxed(Undilated))
            = "select_and_scatter" [regions] => reduce::select_and_scatter(op, windows);
        /// Region: `(left_0, right_0, left_1, ..) -> bool`, whether left comes first.
        Sort { dim: usize = last_dim("dimension"), stable: bool = flag("is_stable") }
            = "sort" [regions] => reduce::sort(op, *dim);
        /// Elementwise by its region, over all dimensions.
        Map { dims: Vec<usize> = sizes("dimensions") } = "map" [regions] => reduce::map(op, dims);

        /// Regions: condition, body; both take all operands.
        While = "while" [regions] => control::while_loop(op);
        /// Operand: the predicate. Regions: true, false; without arguments.
        If = "if" [regions] => control::if_else(op);
        /// Operand: the index. Regions: branches without arguments; the last is for other indices.
        Case = "case" [regions] => control::case(op);
        /// A function of the module.
        Call { function: String = symbol("callee") } = "func.call" => control::call(op, function);
        /// An operation whose meaning is a function of the module.
        Composite {
            name: String = text("name"),
            attributes: Attributes = dictionary("composite_attributes").or_default(),
            /// The function.
            decomposition: String = symbol("decomposition"),
            version: i64 = version("version"),
        } = "composite" in &[since(0, 19), since(1, 14)] => control::call(op, decomposition);
        /// An operation that its implementor knows by name.
        CustomCall(call: Box<CustomCallAttributes> = Boxed(structure()))
            = "custom_call" in &[since(0, 9), since(1, 18).adds("result_tilings")]
            => control::custom_call(op, &call.functions);

        Fft {
            transform: FftKind = case("fft_type").key("type"),
            lengths: Vec<usize> = sizes("fft_length").key("length"),
        } = "fft" => linalg::fft(op, *transform, lengths);
        /// `lower`: whether the lower triangle is read and written.
        Cholesky { lower: bool = flag("lower").key("lower") } = "cholesky" => one(rules::cholesky(&op.tensors()?));
        TriangularSolve {
            left_side: bool = flag("left_side"),
            lower: bool = flag("lower"),
            unit_diagonal: bool = flag("unit_diagonal"),
            transpose: Transposition = case("transpose_a"),
        } = "triangular_solve" => one(rules::triangular_solve(&op.tensors()?, *left_side));
        /// Operands `(x, scale, offset)`, results `(y, mean, variance)`.
        BatchNormTraining {
            epsilon: f32 = float("epsilon"),
            feature: usize = size("feature_index"),
        } = "batch_norm_training" => linalg::batch_norm_training(op, *feature);
        /// Operands `(x, scale, offset, mean, variance)`.
        BatchNormInference {
            epsilon: f32 = float("epsilon"),
            feature: usize = size("feature_index"),
        } = "batch_norm_inference" => linalg::batch_norm_inference(op, *feature);
        /// Operands `(x, scale, mean, variance, dy)`, results `(dx, dscale, doffset)`.
        BatchNormGrad {
            epsilon: f32 = float("epsilon"),
            feature: usize = size("feature_index"),
        } = "batch_norm_grad" => linalg::batch_norm_grad(op, *feature);

        /// Operands `(low or mean, high or deviation, shape)`.
        Rng { distribution: RngDistribution = case("rng_distribution").key("distribution") }
            = "rng" => linalg::rng(op, *distribution);
        /// Operand: the state. Results: the next state, bits.
        RngBitGenerator { algorithm: RngAlgorithm = case("rng_algorithm").key("algorithm") }
            = "rng_bit_generator" => linalg::rng_bit_generator(op, *algorithm);

        /// Results are the operands.
        OptimizationBarrier = "optimization_barrier" => control::identity(op);
        Tuple = "tuple" => control::tuple(op);
        GetTupleElement { index: usize = index("index") }
            = "get_tuple_element" => control::get_tuple_element(op, *index);
        /// Operands and result are tokens.
        AfterAll = "after_all" => control::after_all(op);
        /// The size of a dimension, a scalar of `i32`.
        GetDimensionSize { dim: usize = size("dimension").key("dim") }
            = "get_dimension_size" => get_dimension_size(op, *dim);

        /// Region: `(a, b) -> combined`. Any number of operands.
        AllReduce(collective: CollectiveAttributes = structure())
            = "all_reduce" [regions] in SEVERAL_OPERANDS => collective::all_reduce(op, collective);
        /// Any number of operands.
        AllGather {
            dim: usize = size("all_gather_dim"),
            collective: CollectiveAttributes = structure(),
        } = "all_gather" in SEVERAL_OPERANDS => collective::all_gather(op, *dim, collective);
        /// Any number of operands.
        AllToAll {
            concat: usize = size("concat_dimension"),
            collective: CollectiveAttributes = Exchange,
            parts: usize = size("split_count"),
            split: usize = size("split_dimension"),
        } = "all_to_all" in SEVERAL_OPERANDS
            => collective::all_to_all(op, [*split, *concat], *parts, collective);
        /// Region as of [`AllReduce`](Self::AllReduce); one operand.
        ReduceScatter {
            collective: CollectiveAttributes = structure(),
            dim: usize = size("scatter_dimension"),
        } = "reduce_scatter" [regions] => collective::reduce_scatter(op, *dim, collective);
        /// `(source, target)` of each message.
        CollectivePermute {
            channel: Option<i64> = channel("channel_id"),
            pairs: Vec<(usize, usize)> = devices("source_target_pairs"),
        } = "collective_permute" => collective::collective_permute(op, pairs, *channel);
        CollectiveBroadcast(collective: CollectiveAttributes = Exchange)
            = "collective_broadcast" in &[since(0, 16), since(1, 20).adds(DYNAMIC_ROOT)]
            => collective::collective_broadcast(op, collective);
        /// A scalar of `ui32`; no operands.
        PartitionId = "partition_id" => collective::process_id(op);
        /// A scalar of `ui32`; no operands.
        ReplicaId = "replica_id" => collective::process_id(op);

        /// `sdy.sharding_constraint`.
        ShardingConstraint(sharding: ShardySharding = sharding("sharding"))
            = "sdy.sharding_constraint" => sharding::constraint(op, sharding);
        /// `sdy.propagation_barrier`: its operand, to whose sharding shardings spread in these
        /// directions only.
        PropagationBarrier(direction: PropagationDirection = direction("allowed_direction"))
            = "sdy.propagation_barrier" => sharding::barrier(op);
        /// `sdy.manual_computation`: its region takes and returns the shards of one device.
        ManualComputation(manual: ManualAttributes = structure())
            = "sdy.manual_computation" [regions] => sharding::manual_computation(op, manual);
    } };
}
pub(crate) use ops;

ops!(define);

/// Version 2 may have several operands.
const SEVERAL_OPERANDS: Versions = &[since(0, 9), since(1, 5)];

/// Version 2 has an accuracy, which is not a field: only the default one is read.
const ACCURATE: Versions = &[since(0, 9), since(1, 10).adds(ACCURACY)];

/// Attribute of elementwise operations.
pub(crate) const ACCURACY: &str = "result_accuracy";

/// Attribute of `collective_broadcast` that only readers know: a dynamic root is refused.
pub(crate) const DYNAMIC_ROOT: &str = "has_dynamic_root";

elementwise! {
    /// Elementwise operations on one operand. `erf` is the operation of CHLO, which programs have
    /// as the custom call `mhlo.erf`.
    UnaryOp {
        Abs: SIGNED = "abs", Cbrt: INEXACT = "cbrt" in ACCURATE, Ceil: FLOAT = "ceil",
        CountLeadingZeros: INTEGER = "count_leading_zeros", Cosine: INEXACT = "cosine" in ACCURATE,
        Erf: FLOAT = "erf" in &[],
        Exponential: INEXACT = "exponential" in &[since(0, 9), since(1, 9).adds(ACCURACY)],
        ExponentialMinusOne: INEXACT = "exponential_minus_one" in ACCURATE, Floor: FLOAT = "floor",
        Imag: INEXACT = "imag", IsFinite: FLOAT = "is_finite", Log: INEXACT = "log" in ACCURATE,
        LogPlusOne: INEXACT = "log_plus_one" in ACCURATE,
        Logistic: INEXACT = "logistic" in ACCURATE, Negate: NUMBER = "negate", Not: BITS = "not",
        Popcnt: INTEGER = "popcnt", Real: INEXACT = "real",
        RoundNearestAfz: FLOAT = "round_nearest_afz",
        RoundNearestEven: FLOAT = "round_nearest_even", Rsqrt: INEXACT = "rsqrt" in ACCURATE,
        Sign: SIGNED = "sign", Sine: INEXACT = "sine" in ACCURATE,
        Sqrt: INEXACT = "sqrt" in ACCURATE,
        Tan: INEXACT = "tan" in &[since(1, 4), since(1, 10).adds(ACCURACY)],
        Tanh: INEXACT = "tanh" in ACCURATE,
    }
}

elementwise! {
    /// Elementwise operations on two operands.
    BinaryOp {
        Add: ANY = "add", And: BITS = "and", Atan2: INEXACT = "atan2", Complex: ANY = "complex",
        Divide: NUMBER = "divide", Maximum: ANY = "maximum", Minimum: ANY = "minimum",
        Multiply: ANY = "multiply", Or: BITS = "or", Power: NUMBER = "power",
        Remainder: NUMBER = "remainder", ShiftLeft: INTEGER = "shift_left",
        ShiftRightArithmetic: INTEGER = "shift_right_arithmetic",
        ShiftRightLogical: INTEGER = "shift_right_logical", Subtract: NUMBER = "subtract",
        Xor: BITS = "xor",
    }
}

impl OpKind {
    /// The name: without dialect for StableHLO, with it for others (`func.call`).
    pub(crate) fn name(&self) -> &'static str {
        match self {
            OpKind::Unary(UnaryOp::Erf) => "custom_call",
            _ => self.row_name(),
        }
    }

    /// The name and the attributes from which [`from_attributes`](Self::from_attributes) makes
    /// this operation. Optional attributes that it does not have (`channel_id`, `compare_type`, the
    /// algorithm of `dot_general`, ..) are left out; all others are there, defaults included.
    pub fn to_attributes(&self) -> (&'static str, Attributes) {
        let mut attributes = Attributes::default();
        let mut push = |named: &Named, value: Value<'_>| attributes.push(named.name, value.into());
        match self {
            OpKind::Unary(UnaryOp::Erf) => {
                OpKind::CustomCall(Box::new(CustomCallAttributes::new(ERF))).visit(&mut push);
            }
            _ => self.visit(&mut push),
        }
        (self.name(), attributes)
    }
}

/// Target of the call that stands for [`UnaryOp::Erf`], the only operation of CHLO that programs of
/// halite have. JAX writes the same call into portable artifacts.
pub(crate) const ERF: &str = "mhlo.erf";

/// The rows of all operations.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    ROWS.values()
}

/// The row with this name.
pub(crate) fn row(name: &str) -> Option<&'static Row> {
    ROWS.get(name)
}
