//! Programs that are lowered around faults of compilers.

use expect_test::{Expect, expect};
use halite_core::{DType, Faults, MeshShape, TensorType};
use halite_ir::{
    ConvolutionAttributes, ConvolutionDims, DotAttributes, Graph, Interface, Op, ScatterAttributes,
    Value, around_faults, legalize, verify,
};

use crate::graphs::{f32, push};

/// Checks the operations of a program for a mesh of this shape, without what is around them.
pub(crate) fn check(graph: &Graph, axes: &[(&str, usize)], expected: Expect) {
    let mesh = MeshShape::new(axes.iter().copied()).unwrap();
    let after = around_faults(graph.clone(), &Faults::ALL, &mesh);
    verify(&after).unwrap();
    assert_eq!(after.output_types(), graph.output_types());
    assert_eq!(&around_faults(graph.clone(), &Faults::NONE, &mesh), graph);
    let interface = Interface {
        mesh: Some(mesh),
        ..Interface::new("main")
    };
    let printed = legalize(&after, &interface).unwrap().to_text();
    let lines = printed
        .lines()
        .filter(|line| line.contains(" = stablehlo") || line.contains(" = sdy."));
    let lines: Vec<&str> = lines.map(str::trim).collect();
    expected.assert_eq(&lines.join("\n"));
}

/// A convolution of sequences of five elements by a kernel of two.
fn convolution(padding: (i64, i64), input_dilation: usize, groups: usize) -> Graph {
    let last = ConvolutionDims {
        batch: 0,
        feature: 2,
        spatial: vec![1],
    };
    let kernel = ConvolutionDims {
        batch: 2,
        feature: 1,
        spatial: vec![0],
    };
    let conv = ConvolutionAttributes {
        input: last.clone(),
        kernel,
        output: last,
        strides: vec![1],
        padding: vec![padding],
        input_dilation: vec![input_dilation],
        kernel_dilation: vec![1],
        reversal: vec![false],
        feature_groups: groups,
        batch_groups: 1,
        precision: Vec::new(),
    };
    let mut graph = Graph::new();
    let operands = [
        graph.input(f32(&[4, 5, 2])),
        graph.input(f32(&[2, 2 / groups, 2])),
    ];
    let result = push(&mut graph, Op::Convolution(conv, DType::F32), &operands);
    graph.set_outputs(vec![result]);
    graph
}

#[test]
fn negative_padding_is_a_slice() {
    check(
        &convolution((-2, 1), 1, 1),
        &[],
        expect![[r#"
        %0 = stablehlo.slice %arg0 [0:4, 2:5, 0:2] : (tensor<4x5x2xf32>) -> tensor<4x3x2xf32>
        %1 = stablehlo.convolution(%0, %arg1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad = [[0, 1]], lhs_dilate = [1], rhs_dilate = [1], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<4x3x2xf32>, tensor<2x2x2xf32>) -> tensor<4x3x2xf32>"#]],
    );
    check(
        &convolution((1, -2), 1, 1),
        &[],
        expect![[r#"
        %0 = stablehlo.slice %arg0 [0:4, 0:3, 0:2] : (tensor<4x5x2xf32>) -> tensor<4x3x2xf32>
        %1 = stablehlo.convolution(%0, %arg1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad = [[1, 0]], lhs_dilate = [1], rhs_dilate = [1], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<4x3x2xf32>, tensor<2x2x2xf32>) -> tensor<4x3x2xf32>"#]],
    );
    // Padding that is not negative stays.
    check(
        &convolution((1, 2), 1, 1),
        &[],
        expect![
            "%0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad = [[1, 2]], lhs_dilate = [1], rhs_dilate = [1], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<4x5x2xf32>, tensor<2x2x2xf32>) -> tensor<4x7x2xf32>"
        ],
    );
}

/// Five elements with one gap between each are nine; without three of them, there is a gap first.
#[test]
fn dilated_inputs_are_cut_between_elements() {
    check(
        &convolution((-3, 1), 2, 1),
        &[],
        expect![[r#"
        %0 = stablehlo.slice %arg0 [0:4, 2:5, 0:2] : (tensor<4x5x2xf32>) -> tensor<4x3x2xf32>
        %1 = stablehlo.convolution(%0, %arg1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad = [[1, 1]], lhs_dilate = [2], rhs_dilate = [1], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<4x3x2xf32>, tensor<2x2x2xf32>) -> tensor<4x6x2xf32>"#]],
    );
}

#[test]
fn input_that_is_cut_away_is_zeros() {
    check(
        &convolution((-7, 6), 1, 1),
        &[],
        expect![[r#"
        %0 = stablehlo.constant dense<0.0> : tensor<4x4x2xf32>
        %1 = stablehlo.convolution(%0, %arg1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad = [[0, 0]], lhs_dilate = [1], rhs_dilate = [1], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<4x4x2xf32>, tensor<2x2x2xf32>) -> tensor<4x3x2xf32>"#]],
    );
}

#[test]
fn spatial_dimensions_are_not_sharded() {
    check(
        &convolution((0, 0), 1, 1),
        &[("data", 2)],
        expect![[r#"
        %0 = sdy.sharding_constraint %arg0 <@mesh, [{?}, {}, {?}]> : tensor<4x5x2xf32>
        %1 = sdy.sharding_constraint %arg1 <@mesh, [{}, {?}, {?}]> : tensor<2x2x2xf32>
        %2 = stablehlo.convolution(%0, %1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad = [[0, 0]], lhs_dilate = [1], rhs_dilate = [1], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<4x5x2xf32>, tensor<2x2x2xf32>) -> tensor<4x4x2xf32>
        %3 = sdy.sharding_constraint %2 <@mesh, [{?}, {}, {?}]> : tensor<4x4x2xf32>"#]],
    );
    check(
        &convolution((0, 0), 1, 2),
        &[("data", 2)],
        expect![[r#"
        %0 = sdy.sharding_constraint %arg0 <@mesh, [{?}, {}, {}]> : tensor<4x5x2xf32>
        %1 = sdy.sharding_constraint %arg1 <@mesh, [{}, {}, {}]> : tensor<2x1x2xf32>
        %2 = stablehlo.convolution(%0, %1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad = [[0, 0]], lhs_dilate = [1], rhs_dilate = [1], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64} : (tensor<4x5x2xf32>, tensor<2x1x2xf32>) -> tensor<4x4x2xf32>
        %3 = sdy.sharding_constraint %2 <@mesh, [{?}, {}, {}]> : tensor<4x4x2xf32>"#]],
    );
}

#[test]
fn padded_dimensions_are_not_sharded() {
    let mut graph = Graph::new();
    let (x, zero) = (graph.input(f32(&[4, 6])), graph.input(f32(&[])));
    let pad = Op::Pad {
        low: vec![0, 1],
        high: vec![0, 0],
        interior: vec![0, 0],
    };
    let result = push(&mut graph, pad, &[x, zero]);
    graph.set_outputs(vec![result]);
    check(
        &graph,
        &[("data", 2)],
        expect![[r#"
        %0 = sdy.sharding_constraint %arg0 <@mesh, [{?}, {}]> : tensor<4x6xf32>
        %1 = stablehlo.pad %0, %arg1, low = [0, 1], high = [0, 0], interior = [0, 0] : (tensor<4x6xf32>, tensor<f32>) -> tensor<4x7xf32>
        %2 = sdy.sharding_constraint %1 <@mesh, [{?}, {}]> : tensor<4x7xf32>"#]],
    );
    check(
        &graph,
        &[("data", 1)],
        expect![
            "%0 = stablehlo.pad %arg0, %arg1, low = [0, 1], high = [0, 0], interior = [0, 0] : (tensor<4x6xf32>, tensor<f32>) -> tensor<4x7xf32>"
        ],
    );
}

#[test]
fn starts_of_slices_are_clamped() {
    let mut graph = Graph::new();
    let x = graph.input(f32(&[300]));
    let start = graph.input(TensorType::new(DType::U8, []));
    let slice = |size| Op::DynamicSlice { sizes: vec![size] };
    let results = vec![
        push(&mut graph, slice(200), &[x, start]),
        push(&mut graph, slice(2), &[x, start]),
    ];
    graph.set_outputs(results);
    check(
        &graph,
        &[("data", 2)],
        expect![[r#"
        %0 = stablehlo.constant dense<0> : tensor<ui8>
        %1 = stablehlo.constant dense<100> : tensor<ui8>
        %2 = stablehlo.clamp %0, %arg1, %1 : (tensor<ui8>, tensor<ui8>, tensor<ui8>) -> tensor<ui8>
        %3 = stablehlo.dynamic_slice %arg0, %2, sizes = [200] : (tensor<300xf32>, tensor<ui8>) -> tensor<200xf32>
        %4 = stablehlo.constant dense<0> : tensor<ui8>
        %5 = stablehlo.constant dense<255> : tensor<ui8>
        %6 = stablehlo.clamp %4, %arg1, %5 : (tensor<ui8>, tensor<ui8>, tensor<ui8>) -> tensor<ui8>
        %7 = stablehlo.dynamic_slice %arg0, %6, sizes = [2] : (tensor<300xf32>, tensor<ui8>) -> tensor<2xf32>"#]],
    );
}

/// A product of batches of matrices.
fn product() -> Graph {
    let mut graph = Graph::new();
    let operands = [graph.input(f32(&[4, 5, 2])), graph.input(f32(&[4, 2, 3]))];
    let dot = DotAttributes {
        lhs_batching: vec![0],
        rhs_batching: vec![0],
        lhs_contracting: vec![2],
        rhs_contracting: vec![1],
        ..DotAttributes::default()
    };
    let result = push(&mut graph, Op::Dot(dot, DType::F32), &operands);
    graph.set_outputs(vec![result]);
    graph
}

#[test]
fn products_are_sharded_as_their_operands() {
    check(
        &product(),
        &[("data", 4), ("one", 1)],
        expect![
            "%0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<4x5x2xf32>, tensor<4x2x3xf32>) -> tensor<4x5x3xf32>"
        ],
    );
    check(
        &product(),
        &[("data", 2), ("model", 2)],
        expect![[r#"
        %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<4x5x2xf32>, tensor<4x2x3xf32>) -> tensor<4x5x3xf32>
        %1 = sdy.propagation_barrier %0 allowed_direction=FORWARD : tensor<4x5x3xf32>"#]],
    );
    check(
        &product(),
        &[("data", 2), ("model", 2), ("time", 2)],
        expect![[r#"
        %0 = sdy.sharding_constraint %arg1 <@mesh, [{?}, {}, {?}]> : tensor<4x2x3xf32>
        %1 = stablehlo.dot_general %arg0, %0, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<4x5x2xf32>, tensor<4x2x3xf32>) -> tensor<4x5x3xf32>
        %2 = sdy.propagation_barrier %1 allowed_direction=FORWARD : tensor<4x5x3xf32>"#]],
    );
}

/// A convolution of images of two features in batch groups, for the gradient of a kernel if it has no
/// reversal. `kernel` changes what it convolves with.
fn grouped(reversal: bool, kernel: impl FnOnce(&mut Graph, Value) -> Value) -> Graph {
    let mut graph = convolution((0, 0), 1, 1);
    let Op::Convolution(mut conv, dtype) = graph.nodes()[0].op.clone() else {
        unreachable!("a convolution")
    };
    conv.batch_groups = 2;
    conv.reversal = vec![reversal];
    graph = Graph::new();
    let operands = [graph.input(f32(&[4, 5, 2])), graph.input(f32(&[2, 2, 2]))];
    let by = kernel(&mut graph, operands[1]);
    let result = push(&mut graph, Op::Convolution(conv, dtype), &[operands[0], by]);
    graph.set_outputs(vec![result]);
    graph
}

#[test]
fn batch_groups_of_reversed_kernels_are_feature_groups() {
    check(
        &grouped(true, |_, kernel| kernel),
        &[],
        expect![[r#"
        %0 = stablehlo.reshape %arg0 : (tensor<4x5x2xf32>) -> tensor<2x2x5x2xf32>
        %1 = stablehlo.transpose %0, dims = [1, 2, 0, 3] : (tensor<2x2x5x2xf32>) -> tensor<2x5x2x2xf32>
        %2 = stablehlo.reshape %1 : (tensor<2x5x2x2xf32>) -> tensor<2x5x4xf32>
        %3 = stablehlo.reverse %arg1, dims = [0] : tensor<2x2x2xf32>
        %4 = stablehlo.convolution(%2, %3) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad = [[0, 0]], lhs_dilate = [1], rhs_dilate = [1], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64} : (tensor<2x5x4xf32>, tensor<2x2x2xf32>) -> tensor<2x4x2xf32>"#]],
    );
    let reverse = |graph: &mut Graph, kernel| push(graph, Op::Reverse { dims: vec![0] }, &[kernel]);
    check(
        &grouped(false, reverse),
        &[],
        expect![[r#"
        %0 = stablehlo.reverse %arg1, dims = [0] : tensor<2x2x2xf32>
        %1 = stablehlo.reshape %arg0 : (tensor<4x5x2xf32>) -> tensor<2x2x5x2xf32>
        %2 = stablehlo.transpose %1, dims = [1, 2, 0, 3] : (tensor<2x2x5x2xf32>) -> tensor<2x5x2x2xf32>
        %3 = stablehlo.reshape %2 : (tensor<2x5x2x2xf32>) -> tensor<2x5x4xf32>
        %4 = stablehlo.convolution(%3, %0) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad = [[0, 0]], lhs_dilate = [1], rhs_dilate = [1], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64} : (tensor<2x5x4xf32>, tensor<2x2x2xf32>) -> tensor<2x4x2xf32>"#]],
    );
    // The gradient of a kernel stays as it is.
    check(
        &grouped(false, |_, kernel| kernel),
        &[],
        expect![
            "%0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad = [[0, 0]], lhs_dilate = [1], rhs_dilate = [1], reverse = [false]} {batch_group_count = 2 : i64, feature_group_count = 1 : i64} : (tensor<4x5x2xf32>, tensor<2x2x2xf32>) -> tensor<2x4x2xf32>"
        ],
    );
}

#[test]
fn integers_are_convolved_by_products() {
    let conv = convolution((1, 0), 1, 1);
    let op = conv.nodes()[0].op.clone();
    let Op::Convolution(conv, _) = op else {
        unreachable!("a convolution")
    };
    let mut graph = Graph::new();
    let operands =
        [&[4, 5, 2], &[2, 2, 2]].map(|dims| graph.input(TensorType::new(DType::S8, dims)));
    let result = push(&mut graph, Op::Convolution(conv, DType::S32), &operands);
    graph.set_outputs(vec![result]);
    check(
        &graph,
        &[],
        expect![[r#"
        %0 = stablehlo.constant dense<0> : tensor<i8>
        %1 = stablehlo.pad %arg0, %0, low = [0, 1, 0], high = [0, 0, 0], interior = [0, 0, 0] : (tensor<4x5x2xi8>, tensor<i8>) -> tensor<4x6x2xi8>
        %2 = stablehlo.reshape %1 : (tensor<4x6x2xi8>) -> tensor<4x6x1x2xi8>
        %3 = stablehlo.reshape %arg1 : (tensor<2x2x2xi8>) -> tensor<2x2x1x2xi8>
        %4 = stablehlo.slice %2 [0:4, 0:5, 0:1, 0:2] : (tensor<4x6x1x2xi8>) -> tensor<4x5x1x2xi8>
        %5 = stablehlo.slice %3 [0:1, 0:2, 0:1, 0:2] : (tensor<2x2x1x2xi8>) -> tensor<1x2x1x2xi8>
        %6 = stablehlo.reshape %5 : (tensor<1x2x1x2xi8>) -> tensor<2x1x2xi8>
        %7 = stablehlo.dot_general %4, %6, batching_dims = [2] x [1], contracting_dims = [3] x [0] : (tensor<4x5x1x2xi8>, tensor<2x1x2xi8>) -> tensor<1x4x5x2xi32>
        %8 = stablehlo.slice %2 [0:4, 1:6, 0:1, 0:2] : (tensor<4x6x1x2xi8>) -> tensor<4x5x1x2xi8>
        %9 = stablehlo.slice %3 [1:2, 0:2, 0:1, 0:2] : (tensor<2x2x1x2xi8>) -> tensor<1x2x1x2xi8>
        %10 = stablehlo.reshape %9 : (tensor<1x2x1x2xi8>) -> tensor<2x1x2xi8>
        %11 = stablehlo.dot_general %8, %10, batching_dims = [2] x [1], contracting_dims = [3] x [0] : (tensor<4x5x1x2xi8>, tensor<2x1x2xi8>) -> tensor<1x4x5x2xi32>
        %12 = stablehlo.add %7, %11 : tensor<1x4x5x2xi32>
        %13 = stablehlo.transpose %12, dims = [1, 2, 0, 3] : (tensor<1x4x5x2xi32>) -> tensor<4x5x1x2xi32>
        %14 = stablehlo.reshape %13 : (tensor<4x5x1x2xi32>) -> tensor<4x5x2xi32>"#]],
    );
}

/// A scatter of rows of a table, or of windows of two of its elements.
fn scatter(windows: bool) -> Graph {
    let mut graph = Graph::new();
    let operands = [
        graph.input(f32(&[7, 3])),
        graph.input(TensorType::new(DType::U8, [4])),
        graph.input(f32(if windows { &[4, 2, 3] } else { &[4, 3] })),
    ];
    let scatter = ScatterAttributes {
        update_window_dims: if windows { vec![1, 2] } else { vec![1] },
        inserted_window_dims: if windows { vec![] } else { vec![0] },
        input_batching_dims: vec![],
        scatter_indices_batching_dims: vec![],
        scatter_dims_to_operand_dims: vec![0],
        index_vector_dim: 1,
        unique_indices: false,
        indices_are_sorted: false,
    };
    let result = push(&mut graph, Op::Scatter(scatter, None), &operands);
    graph.set_outputs(vec![result]);
    graph
}

#[test]
fn last_of_equal_indices_wins() {
    check(
        &scatter(false),
        &[],
        expect![[r#"
        %0 = stablehlo.iota dim = 0 : tensor<4xui32>
        %1 = stablehlo.constant dense<1> : tensor<4xui32>
        %2 = stablehlo.add %0, %1 : tensor<4xui32>
        %3 = stablehlo.reshape %2 : (tensor<4xui32>) -> tensor<4x1xui32>
        %4 = stablehlo.constant dense<0> : tensor<7x1xui32>
        %8 = stablehlo.maximum %i6, %i7 : tensor<ui32>
        %10 = stablehlo.compare EQ, %9, %3, UNSIGNED : (tensor<4x1xui32>, tensor<4x1xui32>) -> tensor<4x1xi1>
        %11 = stablehlo.reshape %10 : (tensor<4x1xi1>) -> tensor<4xi1>
        %12 = stablehlo.broadcast_in_dim %11, dims = [0] : (tensor<4xi1>) -> tensor<4xi1>
        %13 = stablehlo.convert %arg1 : (tensor<4xui8>) -> tensor<4xi32>
        %14 = stablehlo.constant dense<-1> : tensor<4xi32>
        %15 = stablehlo.select %12, %13, %14 : tensor<4xi1>, tensor<4xi32>"#]],
    );
    check(
        &scatter(true),
        &[],
        expect![[r#"
        %0 = stablehlo.iota dim = 0 : tensor<24xui32>
        %1 = stablehlo.constant dense<1> : tensor<24xui32>
        %2 = stablehlo.add %0, %1 : tensor<24xui32>
        %3 = stablehlo.reshape %2 : (tensor<24xui32>) -> tensor<4x2x3xui32>
        %4 = stablehlo.constant dense<0> : tensor<7x3xui32>
        %8 = stablehlo.maximum %i6, %i7 : tensor<ui32>
        %9 = stablehlo.constant dense<0> : tensor<7x3xui32>
        %10 = stablehlo.constant dense<1> : tensor<7x3xui32>
        %11 = stablehlo.compare NE, %5, %9, UNSIGNED : (tensor<7x3xui32>, tensor<7x3xui32>) -> tensor<7x3xi1>
        %12 = stablehlo.subtract %5, %10 : tensor<7x3xui32>
        %13 = stablehlo.reshape %arg2 : (tensor<4x2x3xf32>) -> tensor<24xf32>
        %15 = stablehlo.select %11, %14, %arg0 : tensor<7x3xi1>, tensor<7x3xf32>"#]],
    );
}
