//! The operations by version.

use super::VhloOp;
use crate::Version;

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
pub(super) const OPS: &[VhloOp] = &[
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
}
