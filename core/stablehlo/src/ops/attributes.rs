//! Structures and enumerations of the fields of operations, and kinds of fields that one operation
//! has.

use halite_core::Result;

use super::{
    enumeration::{Case, Enumeration},
    fields::{Field, Fields, Structure},
    kinds::{
        any, axes, channel, dim, dims, flag, flags, groups, padding, shardings, size, sizes, steps,
        texts, window,
    },
    macros::{attributes, cases, fields, names},
    read,
    row::Named,
    take::Take,
    value::Value,
};
use crate::{Attribute, Attributes, ElementType, ShardyAxis, ShardySharding};

cases! {
    /// Relations of [`OpKind::Compare`](crate::OpKind::Compare).
    ComparisonDirection(3, "comparison_direction") {
        Eq = "EQ", Ne = "NE", Ge = "GE", Gt = "GT", Le = "LE", Lt = "LT",
    }
}

cases! {
    /// Orders of [`OpKind::Compare`](crate::OpKind::Compare).
    ComparisonOrder(4, "comparison_type", after Some("NOTYPE")) {
        Float = "FLOAT", TotalOrder = "TOTALORDER", Signed = "SIGNED", Unsigned = "UNSIGNED",
    }
}

cases! {
    /// Transforms of [`OpKind::Fft`](crate::OpKind::Fft).
    FftKind(7, "fft_type") { Fft = "FFT", Ifft = "IFFT", Rfft = "RFFT", Irfft = "IRFFT" }
}

cases! {
    /// Transpositions of the matrix of [`OpKind::TriangularSolve`](crate::OpKind::TriangularSolve).
    Transposition(16, "transpose", after Some("TRANSPOSE_INVALID")) {
        No = "NO_TRANSPOSE", Transpose = "TRANSPOSE", Adjoint = "ADJOINT",
    }
}

cases! {
    /// Distributions of [`OpKind::Rng`](crate::OpKind::Rng).
    RngDistribution(13, "rng_distribution", after None) { Uniform = "UNIFORM", Normal = "NORMAL" }
}

cases! {
    /// Algorithms of [`OpKind::RngBitGenerator`](crate::OpKind::RngBitGenerator).
    RngAlgorithm(12, "rng_algorithm") {
        Default = "DEFAULT", ThreeFry = "THREE_FRY", Philox = "PHILOX",
    }
}

names! {
    /// Directions of [`OpKind::PropagationBarrier`](crate::OpKind::PropagationBarrier), in the
    /// order of their numbers: from the operand to the result is forward.
    PropagationDirection {
        None = "NONE", Forward = "FORWARD", Backward = "BACKWARD", Both = "BOTH",
    }
}

attributes! {
    /// Attributes of `gather`; index lists are ascending where the specification says so.
    #[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
    #[allow(missing_docs, reason = "the names are those of the specification")]
    pub struct GatherAttributes {
        pub offset_dims: Vec<usize> = dims("offset_dims"),
        pub collapsed_slice_dims: Vec<usize> = dims("collapsed_slice_dims"),
        pub operand_batching_dims: Vec<usize> = dims("operand_batching_dims").since(1, 1),
        pub start_indices_batching_dims: Vec<usize>
            = dims("start_indices_batching_dims").since(1, 1),
        pub start_index_map: Vec<usize> = dims("start_index_map"),
        pub index_vector_dim: usize = dim("index_vector_dim"),
        pub indices_are_sorted: bool = flag("indices_are_sorted"),
        pub slice_sizes: Vec<usize> = sizes("slice_sizes"),
    }

    /// Attributes of `scatter`.
    #[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
    #[allow(missing_docs, reason = "the names are those of the specification")]
    pub struct ScatterAttributes {
        pub update_window_dims: Vec<usize> = dims("update_window_dims"),
        pub inserted_window_dims: Vec<usize> = dims("inserted_window_dims"),
        pub input_batching_dims: Vec<usize> = dims("input_batching_dims").since(1, 1),
        pub scatter_indices_batching_dims: Vec<usize>
            = dims("scatter_indices_batching_dims").since(1, 1),
        pub scatter_dims_to_operand_dims: Vec<usize> = dims("scatter_dims_to_operand_dims"),
        pub index_vector_dim: usize = dim("index_vector_dim"),
        pub indices_are_sorted: bool = flag("indices_are_sorted"),
        pub unique_indices: bool = flag("unique_indices"),
    }

    /// Attributes of `dot_general`. Precision and algorithm are hints.
    #[derive(Clone, Debug, Default, PartialEq)]
    #[allow(missing_docs, reason = "the names are those of the specification")]
    pub struct DotAttributes {
        pub lhs_batching: Vec<usize> = dims("lhs_batching_dimensions"),
        pub rhs_batching: Vec<usize> = dims("rhs_batching_dimensions"),
        pub lhs_contracting: Vec<usize> = dims("lhs_contracting_dimensions"),
        pub rhs_contracting: Vec<usize> = dims("rhs_contracting_dimensions"),
        /// `DEFAULT`, `HIGH` or `HIGHEST` of each operand; may be empty.
        pub precision: Vec<String> = precision(PRECISION).key("precision"),
        /// The attribute `algorithm`, as read: its fields by name.
        pub algorithm: Option<Attributes> = Algorithm,
    }

    /// Attributes of `convolution`.
    #[derive(Clone, Debug, Eq, Hash, PartialEq)]
    pub struct ConvolutionAttributes {
        /// Positions of the batch, feature and spatial dimensions of the input.
        pub input: ConvolutionDims = Input,
        /// Positions of the output feature (`batch`), input feature (`feature`) and spatial
        /// dimensions of the kernel.
        pub kernel: ConvolutionDims = Kernel,
        /// Positions of the batch, feature and spatial dimensions of the result.
        pub output: ConvolutionDims = Output,
        /// Step of the window, per spatial dimension.
        pub strides: Vec<usize> = steps("window_strides"),
        /// Elements before and after the input, per spatial dimension; may be negative.
        pub padding: Vec<(i64, i64)> = padding("padding"),
        /// `lhs_dilation`, per spatial dimension.
        pub input_dilation: Vec<usize> = steps("lhs_dilation"),
        /// `rhs_dilation`, per spatial dimension.
        pub kernel_dilation: Vec<usize> = steps("rhs_dilation"),
        /// `window_reversal`, per spatial dimension.
        pub reversal: Vec<bool> = flags("window_reversal"),
        /// `feature_group_count`.
        pub feature_groups: usize = size("feature_group_count"),
        /// `batch_group_count`.
        pub batch_groups: usize = size("batch_group_count"),
        /// `DEFAULT`, `HIGH` or `HIGHEST` of each operand; may be empty.
        pub precision: Vec<String> = precision(PRECISION),
    }

    /// Devices of a collective.
    #[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
    pub struct CollectiveAttributes {
        /// The channel's handle, if the program has one that is greater than 0.
        pub channel: Option<i64> = channel("channel_id"),
        /// Groups of processes, each list in the order of its members. Lists that are padded with
        /// -1 in the program are shorter here.
        pub groups: Vec<Vec<usize>> = groups("replica_groups"),
        /// Whether groups hold flattened ids of (replica, partition).
        pub global_ids: bool = flag("use_global_device_ids"),
    }

    /// Attributes of `sdy.manual_computation`.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct ManualAttributes {
        /// Sharding of each operand.
        pub inputs: Vec<ShardySharding> = shardings("in_shardings"),
        /// Sharding of each result.
        pub outputs: Vec<ShardySharding> = shardings("out_shardings"),
        /// Axes that the region is written for.
        pub axes: Vec<ShardyAxis> = axes("manual_axes"),
    }
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

struct Input;
struct Kernel;
struct Output;

fields! { Input: ConvolutionDims {
    batch: usize = size("input_batch_dimension"),
    feature: usize = size("input_feature_dimension"),
    spatial: Vec<usize> = window("input_spatial_dimensions"),
} }

fields! { Kernel: ConvolutionDims {
    batch: usize = size("kernel_output_feature_dimension"),
    feature: usize = size("kernel_input_feature_dimension"),
    spatial: Vec<usize> = sizes("kernel_spatial_dimensions"),
} }

fields! { Output: ConvolutionDims {
    batch: usize = size("output_batch_dimension"),
    feature: usize = size("output_feature_dimension"),
    spatial: Vec<usize> = sizes("output_spatial_dimensions"),
} }

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

/// Windows of `reduce_window`.
pub(super) struct Dilated;

fields! { Dilated: WindowAttributes {
    base_dilations: Vec<usize> = steps("base_dilations"),
    padding: Vec<(i64, i64)> = padding("padding"),
    window_dilations: Vec<usize> = steps("window_dilations"),
    sizes: Vec<usize> = sizes("window_dimensions"),
    strides: Vec<usize> = steps("window_strides"),
} }

/// Windows of `select_and_scatter` over the first operand, by default of one element.
pub(super) struct Undilated;

fields! { Undilated: WindowAttributes {
    padding: Vec<(i64, i64)> = padding("padding"),
    sizes: Vec<usize> = steps("window_dimensions"),
    strides: Vec<usize> = steps("window_strides"),
    base_dilations: Vec<usize> = NoDilation,
    window_dilations: Vec<usize> = NoDilation,
} }

/// A field without attributes.
struct NoDilation;

impl Fields<Vec<usize>> for NoDilation {
    fn take(&self, take: &mut Take<'_>) -> Result<Vec<usize>> {
        Ok(vec![1; take.rank()?])
    }

    fn visit<'a>(&self, _: &'a Vec<usize>, _: &mut dyn FnMut(&Named, Value<'a>)) {}

    fn describe(&self, _: &mut Vec<Named>) {}
}

/// Devices of a collective without flattened ids.
pub(super) struct Exchange;

fields! { Exchange: CollectiveAttributes {
    channel: Option<i64> = channel("channel_id"),
    groups: Vec<Vec<usize>> = groups("replica_groups"),
    global_ids: bool = flag("use_global_device_ids").unwritten(),
} }

/// An order, `None` if it is `NOTYPE` or missing.
pub(super) fn order(name: &'static str) -> Field<Option<ComparisonOrder>> {
    let read = |take: &Take<'_>, name: &str, value| match value {
        Attribute::Str(text) if text == "NOTYPE" => Ok(None),
        value => read::case(take, name, value).map(Some),
    };
    Field::new(name, read, |order: &Option<ComparisonOrder>| {
        order.map(|it| Value::Case(it.name()))
    })
    .or_default()
    .enumeration(ComparisonOrder::ENUMERATION)
}

/// A dimension of the first operand, counted from the end if it is negative; the last one if it is
/// missing.
pub(super) fn last_dim(name: &'static str) -> Field<usize> {
    fn read(take: &Take<'_>, name: &str, value: Attribute) -> Result<usize> {
        let rank = take.rank()?;
        let dim = read::int(take, name, value)?;
        let from_end = if dim < 0 { rank as i64 } else { 0 };
        usize::try_from(dim.saturating_add(from_end))
            .map_err(|_| take.bad(name, format_args!("is {dim}; the operand has rank {rank}")))
    }
    const LAST: Attribute = Attribute::Int(-1, ElementType::S64);
    size(name)
        .read_by(read)
        .or(|take, name| read(take, name, LAST))
}

/// A direction by its number.
pub(super) fn direction(name: &'static str) -> Field<PropagationDirection> {
    let read = |take: &Take<'_>, name: &str, value| {
        let number = read::size(take, name, value)?;
        let direction = PropagationDirection::ALL.get(number).copied();
        direction.ok_or_else(|| take.wrong(name, number, "0 to 3"))
    };
    Field::new(name, read, |direction| {
        Some(Value::Int(*direction as i64, ElementType::S32))
    })
}

/// Attribute of `dot`, `dot_general` and `convolution`.
pub(crate) const PRECISION: &str = "precision_config";

/// Precisions of operands.
const PRECISIONS: [&str; 3] = ["DEFAULT", "HIGH", "HIGHEST"];

/// A precision of each operand. All `DEFAULT` is the same as none.
pub(crate) fn precision(name: &'static str) -> Field<Vec<String>> {
    let texts = texts(name).enumeration(Enumeration::new(11, "precision", &PRECISIONS));
    texts.read_by(|take, name, value| {
        let mut precision = read::texts(take, name, value)?;
        let unknown = |text: &&String| !PRECISIONS.contains(&text.as_str());
        if let Some(text) = precision.iter().find(unknown) {
            let expected = PRECISIONS.join(", ");
            let problem = format_args!("has `{text}`; expected one of {expected}");
            return Err(take.bad(name, problem));
        }
        if precision.iter().all(|text| text == PRECISIONS[0]) {
            precision.clear();
        }
        Ok(precision)
    })
}

/// Fields of the algorithm of `dot_general`, in the order of the specification.
pub(crate) const ALGORITHM_FIELDS: [&str; 7] = [
    "lhs_precision_type",
    "rhs_precision_type",
    "accumulation_type",
    "lhs_component_count",
    "rhs_component_count",
    "num_primitive_operations",
    "allow_imprecise_accumulation",
];

/// Any of the [`ALGORITHM_FIELDS`].
struct Algorithm;

impl Fields<Option<Attributes>> for Algorithm {
    fn take(&self, take: &mut Take<'_>) -> Result<Option<Attributes>> {
        let mut algorithm = Attributes::default();
        for name in ALGORITHM_FIELDS {
            if let Some(value) = take.attributes.take(name) {
                algorithm.push(name, value);
            }
        }
        Ok((!algorithm.0.is_empty()).then_some(algorithm))
    }

    fn visit<'a>(&self, value: &'a Option<Attributes>, visit: &mut dyn FnMut(&Named, Value<'a>)) {
        for (name, value) in value.iter().flat_map(|algorithm| &algorithm.0) {
            if let Some(name) = ALGORITHM_FIELDS.iter().find(|known| *known == name) {
                visit(&Named::new(name), Value::Any(value));
            }
        }
    }

    fn describe(&self, attributes: &mut Vec<Named>) {
        for name in ALGORITHM_FIELDS {
            any(name).since(1, 6).describe(attributes);
        }
    }
}
