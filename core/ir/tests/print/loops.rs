//! Text of loops and branches.

use expect_test::expect;
use halite_core::{DType, TensorType};
use halite_ir::{BinaryOp, ComparisonDirection, Graph, Op, Remat};

use crate::print::{check, f32, graph, plain, push};

#[test]
fn loops_and_branches_are_indented() {
    let types = [
        TensorType::scalar(DType::S32),
        TensorType::scalar(DType::S32),
    ];
    let condition = graph(types.clone(), |graph, [i, n]| {
        vec![push(graph, Op::Compare(ComparisonDirection::Lt), &[i, n])]
    });
    let body = graph(types.clone(), |graph, [i, n]| {
        let add = self::graph([TensorType::scalar(DType::S32)], |graph, [x]| {
            vec![push(graph, Op::Binary(BinaryOp::Add), &[x, x])]
        });
        let keep = self::graph([TensorType::scalar(DType::S32)], |_, [x]| vec![x]);
        vec![push(
            graph,
            Op::Case {
                branches: vec![add, keep],
            },
            &[n, i],
        )]
    });
    let looped = graph(types, |graph, [i, n]| {
        vec![push(
            graph,
            Op::While {
                carried: 1,
                condition: Box::new(condition),
                body: Box::new(body),
            },
            &[i, n],
        )]
    });
    check(
        &looped,
        &plain(),
        expect![[r#"
        module @test attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
          func.func public @main(%arg0: tensor<i32>, %arg1: tensor<i32>) -> (tensor<i32>) {
            %1 = stablehlo.while(%i0 = %arg0) : tensor<i32>
             cond {
              %2 = stablehlo.compare LT, %i0, %arg1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
              stablehlo.return %2 : tensor<i1>
             } do {
              %3 = "stablehlo.case"(%arg1) ({
                %4 = stablehlo.add %i0, %i0 : tensor<i32>
                stablehlo.return %4 : tensor<i32>
              }, {
                stablehlo.return %i0 : tensor<i32>
              }) : (tensor<i32>) -> tensor<i32>
              stablehlo.return %3 : tensor<i32>
             }
            return %1 : tensor<i32>
          }
        }
    "#]],
    );
}

/// A scan over `length` rows that adds `square(row * factor)` to a sum, in reverse.
fn sum_of_squares(length: usize) -> Graph {
    let row = || f32(&[2]);
    let square = graph([row()], |graph, [x]| {
        vec![push(graph, Op::Binary(BinaryOp::Multiply), &[x, x])]
    });
    let iteration = graph([row(), row(), row()], |graph, [sum, factor, x]| {
        let y = push(graph, Op::Binary(BinaryOp::Multiply), &[x, factor]);
        let checkpoint = Op::Checkpoint {
            body: Box::new(square),
            remat: Remat::Full,
        };
        let y = push(graph, checkpoint, &[y]);
        let sum = push(graph, Op::Binary(BinaryOp::Add), &[sum, y]);
        vec![sum, y]
    });
    let scan = Op::Scan {
        carried: 1,
        scanned: 1,
        length,
        reverse: true,
        residuals: 0,
        body: Box::new(iteration),
    };
    graph([row(), row(), f32(&[length, 2])], |graph, operands| {
        graph.push(scan, &operands, None).unwrap().to_vec()
    })
}

#[test]
fn scan_prints_as_while_over_a_counter() {
    check(
        &sum_of_squares(4),
        &plain(),
        expect![[r#"
        module @test attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
          func.func public @main(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>, %arg2: tensor<4x2xf32>) -> (tensor<2xf32>, tensor<4x2xf32>) {
            %0 = stablehlo.constant dense<0.0> : tensor<f32>
            %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4x2xf32>
            %2 = stablehlo.constant dense<0> : tensor<i32>
            %6:3 = stablehlo.while(%i3 = %2, %i4 = %arg0, %i5 = %1) : tensor<i32>, tensor<2xf32>, tensor<4x2xf32>
             cond {
              %7 = stablehlo.constant dense<4> : tensor<i32>
              %8 = stablehlo.compare LT, %i3, %7, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
              stablehlo.return %8 : tensor<i1>
             } do {
              %9 = stablehlo.constant dense<0> : tensor<i32>
              %10 = stablehlo.constant dense<3> : tensor<i32>
              %11 = stablehlo.subtract %10, %i3 : tensor<i32>
              %12 = stablehlo.dynamic_slice %arg2, %11, %9, sizes = [1, 2] : (tensor<4x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
              %13 = stablehlo.reshape %12 : (tensor<1x2xf32>) -> tensor<2xf32>
              %14 = stablehlo.multiply %13, %arg1 : tensor<2xf32>
              %15 = stablehlo.multiply %14, %14 : tensor<2xf32>
              %16 = stablehlo.add %i4, %15 : tensor<2xf32>
              %17 = stablehlo.constant dense<1> : tensor<i32>
              %18 = stablehlo.add %i3, %17 : tensor<i32>
              %19 = stablehlo.reshape %15 : (tensor<2xf32>) -> tensor<1x2xf32>
              %20 = stablehlo.dynamic_update_slice %i5, %19, %11, %9 : (tensor<4x2xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<4x2xf32>
              stablehlo.return %18, %16, %20 : tensor<i32>, tensor<2xf32>, tensor<4x2xf32>
             }
            return %6#1, %6#2 : tensor<2xf32>, tensor<4x2xf32>
          }
        }
    "#]],
    );
}

#[test]
fn scan_without_iterations_prints_no_loop() {
    check(
        &sum_of_squares(0),
        &plain(),
        expect![[r#"
        module @test attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
          func.func public @main(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>, %arg2: tensor<0x2xf32>) -> (tensor<2xf32>, tensor<0x2xf32>) {
            %0 = stablehlo.constant dense<0.0> : tensor<f32>
            %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<0x2xf32>
            return %arg0, %1 : tensor<2xf32>, tensor<0x2xf32>
          }
        }
    "#]],
    );
}
