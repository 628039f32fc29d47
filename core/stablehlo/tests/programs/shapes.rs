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
        expect!["dimension 2 of tensor<2x3xi32>, whose dimensions are 0 to 1"],
    );
    let broadcast = valid::broadcast_in_dim;
    refused(
        broadcast().operand(0, "2x1xf32"),
        expect![[r#"
            dimension 0 of tensor<2x1xf32> is 2, dimension 2 of tensor<2x4x3xf32> is 3;
            only a dimension of 1 is repeated"#]],
    );
    let set = |dims: Vec<usize>| {
        let program = broadcast();
        attribute!(program, OpKind::BroadcastInDim { mapping } => *mapping = dims)
    };
    refused(
        set(vec![2]),
        expect!["1 mapped dimensions [2] for tensor<3x1xf32>, which has 2 dimensions"],
    );
    refused(
        set(vec![2, 2]),
        expect!["mapped dimension 2 of tensor<2x4x3xf32> appears twice in [2, 2]"],
    );
    refused(
        set(vec![2, usize::MAX]),
        expect![[r#"
            mapped dimension 18446744073709551615 of tensor<2x4x3xf32>, whose dimensions
            are 0 to 2"#]],
    );
    refused(
        program(OpKind::Reshape, "2x3xf32", "4xf32"),
        expect!["tensor<2x3xf32> has 6 elements, tensor<4xf32> has 4; a reshape keeps them all"],
    );
    refused(
        valid::transpose().result(0, "2x3x4xf32"),
        expect!["result 0 is tensor<2x3x4xf32>; it must be tensor<4x2x3xf32>"],
    );
    refused(
        program(OpKind::Reverse { dims: vec![0, 0] }, "2xf32", "2xf32"),
        expect!["dimension 0 of tensor<2xf32> appears twice in [0, 0]"],
    );
    refused(
        valid::concatenate().operand(1, "3x1xf32"),
        expect![[r#"
            tensor<2x3xf32> and tensor<3x1xf32> along dimension 1: the element type and all
            other dimensions must be equal"#]],
    );
    refused(
        program(OpKind::Concatenate { dim: 0 }, "", "0xf32"),
        expect!["takes one operand or more, got none"],
    );
    refused(
        program(OpKind::GetDimensionSize { dim: 1 }, "2xf32", "i32"),
        expect!["dimension 1 of tensor<2xf32>, whose only dimension is 0"],
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
        expect!["0..7 of dimension 1 of tensor<5x6xf32>, whose indices are 0..6"],
    );
    refused(
        slice(|starts, _, _| starts[0] = 5),
        expect!["5..4 of dimension 0 of tensor<5x6xf32>, whose indices are 0..5"],
    );
    refused(
        slice(|_, _, strides| strides[0] = 0),
        expect!["strides [0, 4]: number 0 is 0, it must be 1 or more"],
    );
    refused(
        slice(|_, _, strides| _ = strides.pop()),
        expect!["1 strides [1] for tensor<5x6xf32>, which has 2 dimensions"],
    );
    refused(
        valid::slice().result(0, "3x3xf32"),
        expect!["result 0 is tensor<3x3xf32>; it must be tensor<3x2xf32>"],
    );
    refused(
        valid::dynamic_slice().operand(2, "i64"),
        expect![[r#"
            start indices are 2 (tensor<i32>, tensor<i64>); tensor<5x6xf32> takes 2 integer
            scalars of one type"#]],
    );
    refused(
        valid::dynamic_slice().edit(|op| _ = op.operands.pop()),
        expect![[r#"
            start indices are 1 (tensor<i32>); tensor<5x6xf32> takes 2 integer scalars of
            one type"#]],
    );
    refused(
        attribute!(valid::dynamic_slice(), OpKind::DynamicSlice { sizes } => sizes[0] = 6),
        expect!["dimension 0 of the slice tensor<6x6xf32> is 6, of tensor<5x6xf32> only 5"],
    );
    refused(
        valid::dynamic_update_slice().operand(1, "6x6xf32"),
        expect!["dimension 0 of the update tensor<6x6xf32> is 6, of tensor<5x6xf32> only 5"],
    );
    refused(
        valid::dynamic_update_slice().edit(|op| op.operands.truncate(1)),
        expect!["takes an operand, an update and start indices, got 1 (tensor<5x6xf32>)"],
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
        expect![[r#"
            dimension 0 of tensor<2x3xf32>, padded by -5 before, 2 after, 0 between: it
            would have size -1"#]],
    );
    refused(
        pad(|low, _| low[0] = i64::MIN),
        expect![[r#"
            dimension 0 of tensor<2x3xf32>, padded by -9223372036854775808 before, 2 after,
            0 between: the padding is -9223372036854775808; its magnitude must not exceed
            2^60"#]],
    );
    refused(
        pad(|_, interior| interior[0] = usize::MAX),
        expect![[r#"
            interior paddings [18446744073709551615, 2]: number 0 is 18446744073709551615,
            it must be at most 9223372036854775807"#]],
    );
    refused(
        pad(|low, _| low.push(0)),
        expect!["3 low paddings [1, -1, 0] for tensor<2x3xf32>, which has 2 dimensions"],
    );
    refused(
        valid::pad().operand(1, "1xf32"),
        expect!["the padding value is tensor<1xf32>, for tensor<2x3xf32> it must be tensor<f32>"],
    );
    refused(
        valid::pad().operand(1, "f64"),
        expect!["the padding value is tensor<f64>, for tensor<2x3xf32> it must be tensor<f32>"],
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
        expect!["window dimensions [2] must be ascending and below 2"],
    );
    refused(
        gather(|g| g.offset_dims.push(0)),
        expect!["window dimensions [1, 0] are 2, windows of tensor<5x3xf32> have 1 dimensions"],
    );
    refused(
        gather(|g| g.collapsed_slice_dims[0] = 2),
        expect!["dropped dimension 2 of tensor<5x3xf32>, whose dimensions are 0 to 1"],
    );
    refused(
        gather(|g| g.collapsed_slice_dims[0] = 1),
        expect![[r#"
            slice size 3 in dimension 1 of tensor<5x3xf32>, which is collapsed; it must be
            1"#]],
    );
    refused(
        gather(|g| g.start_index_map.push(1)),
        expect![[r#"
            each index of tensor<7x1xi32> has 1 components, and 2 dimensions [0, 1] of
            tensor<5x3xf32> are indexed"#]],
    );
    refused(
        gather(|g| g.index_vector_dim = 3),
        expect!["index vector dimension 3 of the indices tensor<7x1xi32>; it must be at most 2"],
    );
    refused(
        gather(|g| g.slice_sizes[1] = 4),
        expect!["slice size 4 in dimension 1 of tensor<5x3xf32>, which has 3"],
    );
    refused(
        gather(|g| g.slice_sizes[0] = 0),
        expect!["slice sizes [0, 3] of tensor<5x3xf32> have no elements, and the result has"],
    );
    refused(
        gather(|g| _ = g.slice_sizes.pop()),
        expect!["1 slice sizes [1] for tensor<5x3xf32>, which has 2 dimensions"],
    );
    refused(
        valid::gather().operand(1, "7x1xf32"),
        expect!["the indices are tensor<7x1xf32>; they must be integers"],
    );
    refused(
        valid::gather().operand(0, "0x3xf32"),
        expect!["slice size 1 in dimension 0 of tensor<0x3xf32>, which has 0"],
    );
    let batched = |edit: fn(&mut halite_stablehlo::GatherAttributes)| {
        let program = valid::batched_gather();
        attribute!(program, OpKind::Gather(attributes) => edit(attributes))
    };
    refused(
        batched(|g| g.start_indices_batching_dims[0] = 0),
        expect![[r#"
            batching dimension 0 of tensor<4x5x3xf32> is 4, dimension 0 of the indices
            tensor<7x4xi32> is 7"#]],
    );
    refused(
        batched(|g| g.start_indices_batching_dims[0] = 2),
        expect!["batching dimension 2 of tensor<7x4xi32>, whose dimensions are 0 to 1"],
    );
    refused(
        batched(|g| g.start_indices_batching_dims.clear()),
        expect![[r#"
            batching dimensions [0] of tensor<4x5x3xf32> and [] of the indices
            tensor<7x4xi32> are paired"#]],
    );
    refused(
        batched(|g| g.start_index_map[0] = 0),
        expect![[r#"
            dimension 0 of tensor<4x5x3xf32> is batched, and so is neither dropped nor
            indexed"#]],
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
        expect![[r#"
            dimension 0 of the updates tensor<7x2xf32> is a window of 7, dimension 1 of
            tensor<5x3xf32> has 3"#]],
    );
    refused(
        scatter(|s| s.update_window_dims[0] = 2),
        expect!["window dimensions [2] must be ascending and below 2"],
    );
    refused(
        scatter(|s| s.inserted_window_dims.clear()),
        expect!["window dimensions [1] are 1, windows of tensor<5x3xf32> have 2 dimensions"],
    );
    refused(
        valid::scatter().operand(2, "7x4xf32"),
        expect![[r#"
            dimension 1 of the updates tensor<7x4xf32> is a window of 4, dimension 1 of
            tensor<5x3xf32> has 3"#]],
    );
    refused(
        valid::scatter().operand(2, "6x3xf32"),
        expect![[r#"
            dimension 0 of the updates tensor<6x3xf32> is 6, the indices tensor<7x1xi32>
            imply 7"#]],
    );
    refused(
        valid::scatter().operand(2, "7x3x1xf32"),
        expect![[r#"
            the updates tensor<7x3x1xf32> have 3 dimensions, the indices tensor<7x1xi32>
            give 1 and windows of tensor<5x3xf32> 1"#]],
    );
    refused(
        valid::scatter().operand(2, "7x3xf64"),
        expect!["the updates tensor<7x3xf64> and tensor<5x3xf32> must have the same element type"],
    );
    refused(
        valid::scatter().edit(|op| _ = op.operands.pop()),
        expect!["takes inputs, indices, and updates for each input, got 2 operands"],
    );
    refused(
        valid::scatter().edit(|op| op.regions.clear()),
        expect!["region count is 0; it must be 1"],
    );
}
