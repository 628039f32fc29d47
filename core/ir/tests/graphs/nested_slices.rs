//! Slices of slices, whose starts compilers add before they are in range.

use expect_test::expect;
use halite_core::{DType, TensorType};
use halite_ir::{GatherAttributes, Graph, Op};

use crate::graphs::{f32, faults::check, push};

/// Of slices of slices: an element of a part of a vector, and a vector that is no part.
#[test]
fn slices_of_slices_are_clamped() {
    let mut graph = Graph::new();
    let (x, y) = (graph.input(f32(&[7])), graph.input(f32(&[7])));
    let start = TensorType::new(DType::S32, []);
    let [i, j] = [0, 1].map(|_| graph.input(start.clone()));
    let slice = |size| Op::DynamicSlice { sizes: vec![size] };
    let part = push(&mut graph, slice(5), &[x, i]);
    let part = push(&mut graph, Op::Convert(DType::F64), &[part]);
    let gather = GatherAttributes {
        offset_dims: vec![],
        collapsed_slice_dims: vec![0],
        operand_batching_dims: vec![],
        start_indices_batching_dims: vec![],
        start_index_map: vec![0],
        index_vector_dim: 0,
        slice_sizes: vec![1],
        indices_are_sorted: false,
    };
    let element = push(&mut graph, Op::Gather(gather), &[part, j]);
    let alone = push(&mut graph, slice(5), &[y, i]);
    graph.set_outputs(vec![element, alone]);
    check(
        &graph,
        &[("data", 1)],
        expect![[r#"
        %0 = stablehlo.constant dense<0> : tensor<i32>
        %1 = stablehlo.constant dense<2> : tensor<i32>
        %2 = stablehlo.clamp %0, %arg2, %1 : (tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<i32>
        %3 = stablehlo.dynamic_slice %arg0, %2, sizes = [5] : (tensor<7xf32>, tensor<i32>) -> tensor<5xf32>
        %4 = stablehlo.convert %3 : (tensor<5xf32>) -> tensor<5xf64>
        %5 = stablehlo.constant dense<0> : tensor<i32>
        %6 = stablehlo.constant dense<4> : tensor<i32>
        %7 = stablehlo.clamp %5, %arg3, %6 : (tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<i32>
        %9 = stablehlo.dynamic_slice %arg1, %arg2, sizes = [5] : (tensor<7xf32>, tensor<i32>) -> tensor<5xf32>"#]],
    );
}
