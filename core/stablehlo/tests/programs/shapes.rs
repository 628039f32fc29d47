//! Operations that move elements, and break a constraint.

use expect_test::expect;
use halite_stablehlo::OpKind;

use crate::programs::{
    program::{Edit, attribute, program, refused},
    valid,
};

#[test]
fn shape_operations_must_fit() {
    refused(
        attribute!(valid::iota(), OpKind::Iota { dim } => *dim = 2),
        expect!["`iota_dimension` is 2; it must be below the rank, 2"],
    );
    let broadcast = valid::broadcast_in_dim;
    refused(
        broadcast().operand(0, "2x1xf32"),
        expect![[r#"
        it is from tensor<2x1xf32> to tensor<2x4x3xf32> by `broadcast_dimensions` [2,
        0]; a dimension of the operand must be 1 or that of the result"#]],
    );
    let set = |dims: Vec<usize>| {
        let program = broadcast();
        attribute!(program, OpKind::BroadcastInDim { mapping } => *mapping = dims)
    };
    refused(
        set(vec![2]),
        expect!["`broadcast_dimensions` has 1 items; it must have 2"],
    );
    refused(
        set(vec![2, 2]),
        expect!["`broadcast_dimensions` is [2, 2]; 2 occurs twice"],
    );
    refused(
        set(vec![2, usize::MAX]),
        expect![[r#"
        `broadcast_dimensions` is [2, 18446744073709551615]; dimensions must be below
        the rank, 3"#]],
    );
    refused(
        program(OpKind::Reshape, "2x3xf32", "4xf32"),
        expect![[r#"
        it is from tensor<2x3xf32> with 6 elements to tensor<4xf32> with 4; they must
        have as many"#]],
    );
    refused(
        valid::transpose().result(0, "2x3x4xf32"),
        expect!["result 0 is tensor<2x3x4xf32>; it must be tensor<4x2x3xf32>"],
    );
    refused(
        program(OpKind::Reverse { dims: vec![0, 0] }, "2xf32", "2xf32"),
        expect!["`dimensions` is [0, 0]; 0 occurs twice"],
    );
    refused(
        valid::concatenate().operand(1, "3x1xf32"),
        expect![[r#"
        operands are tensor<2x3xf32> and tensor<3x1xf32>; they must differ in dimension
        1 only"#]],
    );
    refused(
        program(OpKind::Concatenate { dim: 0 }, "", "0xf32"),
        expect!["it must have an operand"],
    );
    refused(
        program(OpKind::GetDimensionSize { dim: 1 }, "2xf32", "i32"),
        expect!["`dimension` is 1; it must be below the rank, 1"],
    );
}

#[test]
fn slices_are_in_bounds() {
    let slice = |edit: fn(&mut Vec<usize>, &mut Vec<usize>, &mut Vec<usize>)| {
        attribute!(
            valid::slice(),
            OpKind::Slice { starts, limits, strides } => edit(starts, limits, strides)
        )
    };
    refused(
        slice(|_, limits, _| limits[1] = 7),
        expect![[r#"
        dimension 1 of tensor<5x6xf32> is sliced from 0 to 7; the range must be within
        0 and 6"#]],
    );
    refused(
        slice(|starts, _, _| starts[0] = 5),
        expect![[r#"
        dimension 0 of tensor<5x6xf32> is sliced from 5 to 4; the range must be within
        0 and 5"#]],
    );
    refused(
        slice(|_, _, strides| strides[0] = 0),
        expect!["`strides` is [0, 4]; each must be at least 1"],
    );
    refused(
        slice(|_, _, strides| _ = strides.pop()),
        expect!["`strides` has 1 items; it must have 2"],
    );
    refused(
        valid::slice().result(0, "3x3xf32"),
        expect!["result 0 is tensor<3x3xf32>; it must be tensor<3x2xf32>"],
    );
    refused(
        valid::dynamic_slice().operand(2, "i64"),
        expect!["operands are tensor<i32> and tensor<i64>; they must have one type"],
    );
    refused(
        valid::dynamic_slice().edit(|op| _ = op.operands.pop()),
        expect!["it has 1 start indices; it must have one for each dimension of tensor<5x6xf32>"],
    );
    refused(
        attribute!(valid::dynamic_slice(), OpKind::DynamicSlice { sizes } => sizes[0] = 6),
        expect!["the slice has the sizes [6, 6]; they must not exceed those of tensor<5x6xf32>"],
    );
    refused(
        valid::dynamic_update_slice().operand(1, "6x6xf32"),
        expect!["the update has the sizes [6, 6]; they must not exceed those of tensor<5x6xf32>"],
    );
    refused(
        valid::dynamic_update_slice().edit(|op| op.operands.truncate(1)),
        expect!["it must have an operand and an update"],
    );
}

#[test]
fn padding_must_fit() {
    let pad = |edit: fn(&mut Vec<i64>, &mut Vec<usize>)| {
        let program = valid::pad();
        attribute!(program, OpKind::Pad { low, interior, .. } => edit(low, interior))
    };
    refused(
        pad(|low, _| low[0] = -5),
        expect!["dimension 0 is padded to a negative size"],
    );
    refused(
        pad(|low, _| low[0] = i64::MIN),
        expect!["the padding is -9223372036854775808; its magnitude must not exceed 2^60"],
    );
    refused(
        pad(|_, interior| interior[0] = usize::MAX),
        expect!["the dilated size is 18446744073709551616; its magnitude must not exceed 2^60"],
    );
    refused(
        pad(|low, _| low.push(0)),
        expect!["`edge_padding_low` has 3 items; it must have 2"],
    );
    refused(
        valid::pad().operand(1, "1xf32"),
        expect!["the padding value is tensor<1xf32>; it must be a scalar"],
    );
    refused(
        valid::pad().operand(1, "f64"),
        expect![[r#"
        the operand is tensor<2x3xf32> and the padding value tensor<f64>; they must
        have one element type"#]],
    );
}

#[test]
fn gathers_are_in_bounds() {
    let gather = |edit: fn(&mut halite_stablehlo::GatherAttributes)| {
        let program = valid::gather();
        attribute!(program, OpKind::Gather(attributes) => edit(attributes))
    };
    refused(
        gather(|g| g.offset_dims[0] = 2),
        expect!["`offset_dims` is [2]; dimensions must be below the rank, 2"],
    );
    refused(
        gather(|g| g.offset_dims.push(0)),
        expect![[r#"
        `offset_dims`, `collapsed_slice_dims` and `operand_batching_dims` have [2, 1,
        0] items; together they must have the rank of tensor<5x3xf32>"#]],
    );
    refused(
        gather(|g| g.collapsed_slice_dims[0] = 2),
        expect![[r#"
        `collapsed_slice_dims` is [2], `operand_batching_dims` is []; dimensions must
        be below the rank, 2"#]],
    );
    refused(
        gather(|g| g.collapsed_slice_dims[0] = 1),
        expect![[r#"
        `slice_sizes` is [1, 3]; that of dimension 1, which the result does not have,
        must be 1"#]],
    );
    refused(
        gather(|g| g.start_index_map.push(1)),
        expect!["`start_index_map` has 2 items; it must have 1"],
    );
    refused(
        gather(|g| g.index_vector_dim = 3),
        expect!["`index_vector_dim` is 3; it must not exceed the rank of tensor<7x1xi32>"],
    );
    refused(
        gather(|g| g.slice_sizes[1] = 4),
        expect!["`slice_sizes` is [1, 4]; they must not exceed the dimensions of tensor<5x3xf32>"],
    );
    refused(
        gather(|g| g.slice_sizes[0] = 0),
        expect!["`slice_sizes` is [0, 3], but the result has elements"],
    );
    refused(
        gather(|g| _ = g.slice_sizes.pop()),
        expect!["`slice_sizes` has 1 items; it must have 2"],
    );
    refused(
        valid::gather().operand(1, "7x1xf32"),
        expect![[r#"
        the element type is f32; its class must be one of: signed integer, unsigned
        integer"#]],
    );
    refused(
        valid::gather().operand(0, "0x3xf32"),
        expect!["`slice_sizes` is [1, 3]; they must not exceed the dimensions of tensor<0x3xf32>"],
    );
    let batched = |edit: fn(&mut halite_stablehlo::GatherAttributes)| {
        let program = valid::batched_gather();
        attribute!(program, OpKind::Gather(attributes) => edit(attributes))
    };
    refused(
        batched(|g| g.start_indices_batching_dims[0] = 0),
        expect!["batching dimension 0 of tensor<4x5x3xf32> and 0 of tensor<7x4xi32> differ"],
    );
    refused(
        batched(|g| g.start_indices_batching_dims[0] = 2),
        expect!["`start_indices_batching_dims` is [2]; dimensions must be below the rank, 2"],
    );
    refused(
        batched(|g| g.start_indices_batching_dims.clear()),
        expect!["`start_indices_batching_dims` has 0 items; it must have 1"],
    );
    refused(
        batched(|g| g.start_index_map[0] = 0),
        expect!["`start_index_map` is [0], `operand_batching_dims` is [0]; 0 occurs twice"],
    );
}

#[test]
fn scatters_are_in_bounds() {
    let scatter = |edit: fn(&mut halite_stablehlo::ScatterAttributes)| {
        let program = valid::scatter();
        attribute!(program, OpKind::Scatter(attributes) => edit(attributes))
    };
    refused(
        scatter(|s| s.update_window_dims[0] = 0),
        expect!["the update is tensor<7x2xf32>, with windows of [7]; they must not exceed [3]"],
    );
    refused(
        scatter(|s| s.update_window_dims[0] = 2),
        expect!["`update_window_dims` is [2]; dimensions must be below the rank, 2"],
    );
    refused(
        scatter(|s| s.inserted_window_dims.clear()),
        expect![[r#"
        `update_window_dims`, `inserted_window_dims` and `input_batching_dims` have [1,
        0, 0] items; together they must have the rank of tensor<5x3xf32>"#]],
    );
    refused(
        valid::scatter().operand(2, "7x4xf32"),
        expect!["the update is tensor<7x4xf32>, with windows of [4]; they must not exceed [3]"],
    );
    refused(
        valid::scatter().operand(2, "6x3xf32"),
        expect![[r#"
        the update is tensor<6x3xf32>; without `update_window_dims` its dimensions must
        be those of the indices, [7]"#]],
    );
    refused(
        valid::scatter().operand(2, "7x3x1xf32"),
        expect!["the update is tensor<7x3x1xf32>; it must have 2 dimensions"],
    );
    refused(
        valid::scatter().operand(2, "7x3xf64"),
        expect!["input tensor<5x3xf32> and update tensor<7x3xf64> must have one element type"],
    );
    refused(
        valid::scatter().edit(|op| _ = op.operands.pop()),
        expect!["it has 2 operands; it must have indices, and an update for each input"],
    );
    refused(
        valid::scatter().edit(|op| op.regions.clear()),
        expect!["region count is 0; it must be 1"],
    );
}
