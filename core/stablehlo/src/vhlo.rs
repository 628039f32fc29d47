//! Tables of VHLO, the versioned dialect of portable artifacts: operations, enumerations and element
//! types by version.
//!
//! Source: the dialect's definition in <https://github.com/openxla/stablehlo> and its version log,
//! <https://openxla.org/stablehlo/vhlo>.

use crate::{ElementType, Version};

/// One version of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VhloOp {
    /// Name in StableHLO: `dot_general`.
    pub(crate) name: &'static str,
    /// Number of the version: 2 in `dot_general_v2`.
    pub(crate) number: u32,
    /// First version of StableHLO that has it.
    pub(crate) since: Version,
    /// Last version of StableHLO that has it.
    pub(crate) until: Version,
    /// Names of its attributes, in alphabetical order, which is also the order of its properties.
    pub(crate) attributes: &'static [&'static str],
}

impl VhloOp {
    /// The operation with this name in VHLO: `dot_general_v2`.
    pub(crate) fn find(name: &str) -> Option<&'static VhloOp> {
        let (name, number) = split_version(name)?;
        OPS.iter().find(|op| op.name == name && op.number == number)
    }

    /// The version of an operation that a version of StableHLO has.
    pub(crate) fn at(name: &str, version: Version) -> Option<&'static VhloOp> {
        OPS.iter()
            .find(|op| op.name == name && op.since <= version && version <= op.until)
    }

    /// All versions of an operation, oldest first.
    pub(crate) fn versions(name: &str) -> impl Iterator<Item = &'static VhloOp> {
        OPS.iter().filter(move |op| op.name == name)
    }
}

/// Splits `dot_general_v2` into `dot_general` and 2.
pub(crate) fn split_version(name: &str) -> Option<(&str, u32)> {
    let (name, number) = name.rsplit_once("_v")?;
    Some((name, number.parse().ok()?))
}

const fn v(major: u16, minor: u16) -> Version {
    Version::new(major, minor, 0)
}

const fn op(
    name: &'static str,
    number: u32,
    since: Version,
    until: Version,
    attributes: &'static [&'static str],
) -> VhloOp {
    // Patch releases have the operations of their minor version.
    let until = Version::new(until.major, until.minor, u16::MAX);
    VhloOp {
        name,
        number,
        since,
        until,
        attributes,
    }
}

/// An operation that has not changed since the first version.
const fn stable(name: &'static str, attributes: &'static [&'static str]) -> VhloOp {
    op(name, 1, Version::OLDEST, Version::NEWEST, attributes)
}

/// All versions of the operations that [`OpKind`](crate::OpKind) has, and of those that it reads as
/// others.
const OPS: &[VhloOp] = &[
    stable("batch_norm_grad", &["epsilon", "feature_index"]),
    stable("batch_norm_inference", &["epsilon", "feature_index"]),
    stable("batch_norm_training", &["epsilon", "feature_index"]),
    stable("broadcast_in_dim", &["broadcast_dimensions"]),
    stable("broadcast", &["broadcast_sizes"]),
    stable("call", &["callee"]),
    stable("cholesky", &["lower"]),
    stable("collective_permute", &["channel_id", "source_target_pairs"]),
    stable("compare", &["compare_type", "comparison_direction"]),
    stable("concatenate", &["dimension"]),
    stable("constant", &["value"]),
    stable(
        "convolution",
        &[
            "batch_group_count",
            "feature_group_count",
            "input_batch_dimension",
            "input_feature_dimension",
            "input_spatial_dimensions",
            "kernel_input_feature_dimension",
            "kernel_output_feature_dimension",
            "kernel_spatial_dimensions",
            "lhs_dilation",
            "output_batch_dimension",
            "output_feature_dimension",
            "output_spatial_dimensions",
            "padding",
            "precision_config",
            "rhs_dilation",
            "window_reversal",
            "window_strides",
        ],
    ),
    stable("dot", &["precision_config"]),
    stable("dynamic_slice", &["slice_sizes"]),
    stable("fft", &["fft_length", "fft_type"]),
    stable(
        "func",
        &[
            "arg_attrs",
            "function_type",
            "res_attrs",
            "sym_name",
            "sym_visibility",
        ],
    ),
    stable("get_dimension_size", &["dimension"]),
    stable("get_tuple_element", &["index"]),
    stable("iota", &["iota_dimension"]),
    stable("map", &["dimensions"]),
    stable(
        "pad",
        &["edge_padding_high", "edge_padding_low", "interior_padding"],
    ),
    stable("reduce", &["dimensions"]),
    stable("reduce_precision", &["exponent_bits", "mantissa_bits"]),
    stable(
        "reduce_scatter",
        &[
            "channel_id",
            "replica_groups",
            "scatter_dimension",
            "use_global_device_ids",
        ],
    ),
    stable(
        "reduce_window",
        &[
            "base_dilations",
            "padding",
            "window_dilations",
            "window_dimensions",
            "window_strides",
        ],
    ),
    stable("reverse", &["dimensions"]),
    stable("rng_bit_generator", &["rng_algorithm"]),
    stable("rng", &["rng_distribution"]),
    stable(
        "select_and_scatter",
        &["padding", "window_dimensions", "window_strides"],
    ),
    stable("slice", &["limit_indices", "start_indices", "strides"]),
    stable("sort", &["dimension", "is_stable"]),
    stable("transpose", &["permutation"]),
    stable(
        "triangular_solve",
        &["left_side", "lower", "transpose_a", "unit_diagonal"],
    ),
    stable("abs", &[]),
    stable("add", &[]),
    stable("after_all", &[]),
    stable("and", &[]),
    stable("atan2", &[]),
    stable("bitcast_convert", &[]),
    stable("case", &[]),
    stable("ceil", &[]),
    stable("clamp", &[]),
    stable("count_leading_zeros", &[]),
    stable("complex", &[]),
    stable("convert", &[]),
    stable("create_token", &[]),
    stable("divide", &[]),
    stable("dynamic_update_slice", &[]),
    stable("floor", &[]),
    stable("if", &[]),
    stable("imag", &[]),
    stable("is_finite", &[]),
    stable("maximum", &[]),
    stable("minimum", &[]),
    stable("multiply", &[]),
    stable("negate", &[]),
    stable("not", &[]),
    stable("optimization_barrier", &[]),
    stable("or", &[]),
    stable("partition_id", &[]),
    stable("popcnt", &[]),
    stable("power", &[]),
    stable("real", &[]),
    stable("remainder", &[]),
    stable("replica_id", &[]),
    stable("reshape", &[]),
    stable("return", &[]),
    stable("round_nearest_even", &[]),
    stable("round_nearest_afz", &[]),
    stable("select", &[]),
    stable("shift_left", &[]),
    stable("shift_right_arithmetic", &[]),
    stable("shift_right_logical", &[]),
    stable("sign", &[]),
    stable("subtract", &[]),
    stable("tuple", &[]),
    stable("while", &[]),
    stable("xor", &[]),
    op(
        "all_gather",
        1,
        v(0, 9),
        v(1, 4),
        &[
            "all_gather_dim",
            "channel_id",
            "replica_groups",
            "use_global_device_ids",
        ],
    ),
    op(
        "all_gather",
        2,
        v(1, 5),
        Version::NEWEST,
        &[
            "all_gather_dim",
            "channel_id",
            "replica_groups",
            "use_global_device_ids",
        ],
    ),
    op(
        "all_reduce",
        1,
        v(0, 9),
        v(1, 4),
        &["channel_id", "replica_groups", "use_global_device_ids"],
    ),
    op(
        "all_reduce",
        2,
        v(1, 5),
        Version::NEWEST,
        &["channel_id", "replica_groups", "use_global_device_ids"],
    ),
    op(
        "all_to_all",
        1,
        v(0, 9),
        v(1, 4),
        &[
            "channel_id",
            "concat_dimension",
            "replica_groups",
            "split_count",
            "split_dimension",
        ],
    ),
    op(
        "all_to_all",
        2,
        v(1, 5),
        Version::NEWEST,
        &[
            "channel_id",
            "concat_dimension",
            "replica_groups",
            "split_count",
            "split_dimension",
        ],
    ),
    op(
        "collective_broadcast",
        1,
        v(0, 16),
        v(1, 19),
        &["channel_id", "replica_groups"],
    ),
    op(
        "collective_broadcast",
        2,
        v(1, 20),
        Version::NEWEST,
        &["channel_id", "has_dynamic_root", "replica_groups"],
    ),
    op(
        "composite",
        1,
        v(0, 19),
        v(1, 13),
        &["composite_attributes", "decomposition", "name", "version"],
    ),
    op(
        "composite",
        2,
        v(1, 14),
        Version::NEWEST,
        &["composite_attributes", "decomposition", "name", "version"],
    ),
    op(
        "custom_call",
        1,
        v(0, 9),
        v(1, 17),
        &[
            "api_version",
            "backend_config",
            "call_target_name",
            "called_computations",
            "has_side_effect",
            "operand_layouts",
            "output_operand_aliases",
            "result_layouts",
        ],
    ),
    op(
        "custom_call",
        2,
        v(1, 18),
        Version::NEWEST,
        &[
            "api_version",
            "backend_config",
            "call_target_name",
            "called_computations",
            "has_side_effect",
            "operand_layouts",
            "output_operand_aliases",
            "result_layouts",
            "result_tilings",
        ],
    ),
    op(
        "dot_general",
        1,
        v(0, 9),
        v(1, 5),
        &[
            "lhs_batching_dimensions",
            "lhs_contracting_dimensions",
            "precision_config",
            "rhs_batching_dimensions",
            "rhs_contracting_dimensions",
        ],
    ),
    op(
        "dot_general",
        2,
        v(1, 6),
        Version::NEWEST,
        &[
            "accumulation_type",
            "allow_imprecise_accumulation",
            "lhs_batching_dimensions",
            "lhs_component_count",
            "lhs_contracting_dimensions",
            "lhs_precision_type",
            "num_primitive_operations",
            "precision_config",
            "rhs_batching_dimensions",
            "rhs_component_count",
            "rhs_contracting_dimensions",
            "rhs_precision_type",
        ],
    ),
    op(
        "gather",
        1,
        v(0, 9),
        v(1, 0),
        &[
            "collapsed_slice_dims",
            "index_vector_dim",
            "indices_are_sorted",
            "offset_dims",
            "slice_sizes",
            "start_index_map",
        ],
    ),
    op(
        "gather",
        2,
        v(1, 1),
        Version::NEWEST,
        &[
            "collapsed_slice_dims",
            "index_vector_dim",
            "indices_are_sorted",
            "offset_dims",
            "operand_batching_dims",
            "slice_sizes",
            "start_index_map",
            "start_indices_batching_dims",
        ],
    ),
    op(
        "scatter",
        1,
        v(0, 9),
        v(1, 0),
        &[
            "index_vector_dim",
            "indices_are_sorted",
            "inserted_window_dims",
            "scatter_dims_to_operand_dims",
            "unique_indices",
            "update_window_dims",
        ],
    ),
    op(
        "scatter",
        2,
        v(1, 1),
        Version::NEWEST,
        &[
            "index_vector_dim",
            "indices_are_sorted",
            "input_batching_dims",
            "inserted_window_dims",
            "scatter_dims_to_operand_dims",
            "scatter_indices_batching_dims",
            "unique_indices",
            "update_window_dims",
        ],
    ),
    op("cbrt", 1, v(0, 9), v(1, 9), &[]),
    op("cbrt", 2, v(1, 10), Version::NEWEST, &["result_accuracy"]),
    op("cosine", 1, v(0, 9), v(1, 9), &[]),
    op("cosine", 2, v(1, 10), Version::NEWEST, &["result_accuracy"]),
    op("exponential", 1, v(0, 9), v(1, 8), &[]),
    op(
        "exponential",
        2,
        v(1, 9),
        Version::NEWEST,
        &["result_accuracy"],
    ),
    op("exponential_minus_one", 1, v(0, 9), v(1, 9), &[]),
    op(
        "exponential_minus_one",
        2,
        v(1, 10),
        Version::NEWEST,
        &["result_accuracy"],
    ),
    op("log", 1, v(0, 9), v(1, 9), &[]),
    op("log", 2, v(1, 10), Version::NEWEST, &["result_accuracy"]),
    op("log_plus_one", 1, v(0, 9), v(1, 9), &[]),
    op(
        "log_plus_one",
        2,
        v(1, 10),
        Version::NEWEST,
        &["result_accuracy"],
    ),
    op("logistic", 1, v(0, 9), v(1, 9), &[]),
    op(
        "logistic",
        2,
        v(1, 10),
        Version::NEWEST,
        &["result_accuracy"],
    ),
    op("rsqrt", 1, v(0, 9), v(1, 9), &[]),
    op("rsqrt", 2, v(1, 10), Version::NEWEST, &["result_accuracy"]),
    op("sine", 1, v(0, 9), v(1, 9), &[]),
    op("sine", 2, v(1, 10), Version::NEWEST, &["result_accuracy"]),
    op("sqrt", 1, v(0, 9), v(1, 9), &[]),
    op("sqrt", 2, v(1, 10), Version::NEWEST, &["result_accuracy"]),
    op("tan", 1, v(1, 4), v(1, 9), &[]),
    op("tan", 2, v(1, 10), Version::NEWEST, &["result_accuracy"]),
    op("tanh", 1, v(0, 9), v(1, 9), &[]),
    op("tanh", 2, v(1, 10), Version::NEWEST, &["result_accuracy"]),
];

/// An enumeration of VHLO.
#[derive(Debug)]
pub(crate) struct Enumeration {
    /// Code of its attributes in bytecode.
    pub(crate) code: u64,
    /// Name of the attributes that have it.
    pub(crate) attribute: &'static str,
    /// Number of the first case.
    first: u64,
    /// Names of the cases.
    cases: &'static [&'static str],
}

impl Enumeration {
    /// The enumeration of the attributes with this name.
    pub(crate) fn of(attribute: &str) -> Option<&'static Enumeration> {
        ENUMERATIONS.iter().find(|enumeration| enumeration.attribute == attribute)
    }

    /// The case with this number.
    pub(crate) fn case(&self, number: u64) -> Option<&'static str> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.cases.get(index).copied()
    }

    /// Number of the case with this name.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        let index = self.cases.iter().position(|case| *case == name)?;
        Some(self.first + index as u64)
    }
}

/// The enumerations.
pub(crate) static ENUMERATIONS: [Enumeration; 9] = [
    Enumeration {
        code: 3,
        attribute: "comparison_direction",
        first: 0,
        cases: &["EQ", "NE", "GE", "GT", "LE", "LT"],
    },
    Enumeration {
        code: 4,
        attribute: "compare_type",
        first: 0,
        cases: &["NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"],
    },
    Enumeration {
        code: 5,
        attribute: "api_version",
        first: 0,
        cases: &[
            "API_VERSION_UNSPECIFIED",
            "API_VERSION_ORIGINAL",
            "API_VERSION_STATUS_RETURNING",
            "API_VERSION_STATUS_RETURNING_UNIFIED",
            "API_VERSION_TYPED_FFI",
        ],
    },
    Enumeration {
        code: 7,
        attribute: "fft_type",
        first: 0,
        cases: &["FFT", "IFFT", "RFFT", "IRFFT"],
    },
    Enumeration {
        code: 11,
        attribute: "precision_config",
        first: 0,
        cases: &["DEFAULT", "HIGH", "HIGHEST"],
    },
    Enumeration {
        code: 12,
        attribute: "rng_algorithm",
        first: 0,
        cases: &["DEFAULT", "THREE_FRY", "PHILOX"],
    },
    Enumeration {
        code: 13,
        attribute: "rng_distribution",
        first: 1,
        cases: &["UNIFORM", "NORMAL"],
    },
    Enumeration {
        code: 16,
        attribute: "transpose_a",
        first: 0,
        cases: &["TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"],
    },
    Enumeration {
        code: 19,
        attribute: "mode",
        first: 0,
        cases: &["DEFAULT", "HIGHEST", "TOLERANCE"],
    },
];

/// An element type of VHLO.
#[derive(Debug)]
pub(crate) struct VhloElement {
    /// Code of the type in bytecode.
    pub(crate) code: u64,
    /// The element type.
    pub(crate) ty: ElementType,
    /// First version of StableHLO that has it.
    pub(crate) since: Version,
}

const fn element(code: u64, ty: ElementType, since: Version) -> VhloElement {
    VhloElement { code, ty, since }
}

/// The element types but the complex ones, which have an element type of their own.
pub(crate) const ELEMENTS: [VhloElement; 28] = [
    element(0, ElementType::Bool, v(0, 9)),
    element(2, ElementType::Bf16, v(0, 9)),
    element(3, ElementType::F16, v(0, 9)),
    element(4, ElementType::F32, v(0, 9)),
    element(5, ElementType::F64, v(0, 9)),
    element(6, ElementType::F8E4M3Fn, v(0, 9)),
    element(7, ElementType::F8E5M2, v(0, 9)),
    element(10, ElementType::S4, v(0, 9)),
    element(11, ElementType::S8, v(0, 9)),
    element(12, ElementType::S16, v(0, 9)),
    element(13, ElementType::S32, v(0, 9)),
    element(14, ElementType::S64, v(0, 9)),
    element(15, ElementType::U4, v(0, 9)),
    element(16, ElementType::U8, v(0, 9)),
    element(17, ElementType::U16, v(0, 9)),
    element(18, ElementType::U32, v(0, 9)),
    element(19, ElementType::U64, v(0, 9)),
    element(27, ElementType::F8E4M3Fnuz, v(0, 10)),
    element(28, ElementType::F8E5M2Fnuz, v(0, 10)),
    element(29, ElementType::F8E4M3B11Fnuz, v(0, 11)),
    element(31, ElementType::S2, v(1, 2)),
    element(32, ElementType::U2, v(1, 2)),
    element(35, ElementType::F8E4M3, v(1, 7)),
    element(36, ElementType::F8E3M4, v(1, 7)),
    element(37, ElementType::F4E2M1Fn, v(1, 8)),
    element(38, ElementType::F6E2M3Fn, v(1, 8)),
    element(39, ElementType::F6E3M2Fn, v(1, 8)),
    element(40, ElementType::F8E8M0Fnu, v(1, 8)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_an_operation_follow_each_other() {
        for op in OPS {
            let next = OPS
                .iter()
                .find(|next| next.name == op.name && next.number == op.number + 1);
            match next {
                Some(next) => {
                    assert!(next.since > op.until, "{}", op.name);
                    assert_eq!(next.since.minor, op.until.minor + 1, "{}", op.name);
                }
                None => assert_eq!(op.until.minor, Version::NEWEST.minor, "{}", op.name),
            }
        }
    }

    #[test]
    fn attributes_are_in_alphabetical_order() {
        for op in OPS {
            assert!(op.attributes.is_sorted(), "{}", op.name);
        }
    }

    #[test]
    fn every_element_type_but_complex_has_a_code() {
        for ty in ElementType::ALL {
            let known = ELEMENTS.iter().any(|element| element.ty == ty);
            assert_eq!(known, ty.part().is_none(), "{ty}");
        }
    }
}
