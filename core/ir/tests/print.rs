//! Form of the text. Tests with a compiler check that it is valid and computes the right values.

mod interface;
mod loops;

use expect_test::{Expect, expect};
use halite_core::{DType, TensorType};
use halite_ir::{
    Attribute, BinaryOp, ConvolutionAttributes, ConvolutionDims, CustomCall, DotAttributes,
    Extreme, Graph, Interface, Literal, Op, Value, legalize,
};

use crate::legalize::read_back;

fn check(graph: &Graph, interface: &Interface, expected: Expect) {
    expected.assert_eq(&read_back(graph, interface));
}

fn plain() -> Interface {
    Interface {
        locations: false,
        ..Interface::new("test")
    }
}

fn f32(dims: &[usize]) -> TensorType {
    TensorType::new(DType::F32, dims)
}

fn push(graph: &mut Graph, op: Op, operands: &[Value]) -> Value {
    graph.push(op, operands, None).unwrap()[0]
}

fn graph<const N: usize>(
    inputs: [TensorType; N],
    body: impl FnOnce(&mut Graph, [Value; N]) -> Vec<Value>,
) -> Graph {
    let mut graph = Graph::new();
    let inputs = inputs.map(|ty| graph.input(ty));
    let outputs = body(&mut graph, inputs);
    graph.set_outputs(outputs);
    graph
}

#[test]
fn a_layer_reads_like_stablehlo() {
    let types = [f32(&[8, 3]), f32(&[3, 2])];
    let layer = graph(types, |graph, [x, w]| {
        let dot = DotAttributes {
            lhs_batching: vec![],
            rhs_batching: vec![],
            lhs_contracting: vec![1],
            rhs_contracting: vec![0],
            ..DotAttributes::default()
        };
        let y = push(graph, Op::Dot(dot, DType::F32), &[x, w]);
        let zero = push(graph, Op::Constant(Literal::splat(0.0f32, [8, 2])), &[]);
        let y = push(graph, Op::Binary(BinaryOp::Maximum), &[y, zero]);
        let argmax = Op::ArgReduce {
            kind: Extreme::Max,
            dim: 1,
        };
        let index = graph.push(argmax, &[y], None).unwrap()[1];
        vec![y, index]
    });
    check(
        &layer,
        &plain(),
        expect![[r#"
        module @test attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
          func.func public @main(%arg0: tensor<8x3xf32>, %arg1: tensor<3x2xf32>) -> (tensor<8x2xf32>, tensor<8xi32>) {
            %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<8x3xf32>, tensor<3x2xf32>) -> tensor<8x2xf32>
            %1 = stablehlo.constant dense<0.0> : tensor<8x2xf32>
            %2 = stablehlo.maximum %0, %1 : tensor<8x2xf32>
            %3 = stablehlo.iota dim = 1 : tensor<8x2xi32>
            %4 = stablehlo.constant dense<0xFF800000> : tensor<f32>
            %5 = stablehlo.constant dense<0> : tensor<i32>
            %6:2 = stablehlo.reduce(%2 init: %4), (%3 init: %5) across dimensions = [1] : (tensor<8x2xf32>, tensor<8x2xi32>, tensor<f32>, tensor<i32>) -> (tensor<8xf32>, tensor<8xi32>)
             reducer(%i7: tensor<f32>, %i8: tensor<f32>) (%i9: tensor<i32>, %i10: tensor<i32>) {
              %11 = stablehlo.compare GT, %i7, %i8, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
              %12 = stablehlo.compare EQ, %i7, %i8, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
              %13 = stablehlo.compare NE, %i7, %i7, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
              %14 = stablehlo.compare NE, %i8, %i8, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
              %15 = stablehlo.compare EQ, %i8, %i8, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
              %16 = stablehlo.and %13, %15 : tensor<i1>
              %17 = stablehlo.or %11, %16 : tensor<i1>
              %18 = stablehlo.and %13, %14 : tensor<i1>
              %19 = stablehlo.or %12, %18 : tensor<i1>
              %20 = stablehlo.compare LT, %i9, %i10, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
              %21 = stablehlo.and %19, %20 : tensor<i1>
              %22 = stablehlo.or %17, %21 : tensor<i1>
              %23 = stablehlo.select %22, %i7, %i8 : tensor<i1>, tensor<f32>
              %24 = stablehlo.select %22, %i9, %i10 : tensor<i1>, tensor<i32>
              stablehlo.return %23, %24 : tensor<f32>, tensor<i32>
            }
            return %2, %6#1 : tensor<8x2xf32>, tensor<8xi32>
          }
        }
    "#]],
    );
}

#[test]
fn constants_print_exactly() {
    let floats = graph([], |graph, []| {
        let values = [
            0.0f32,
            -0.0,
            1.0,
            -2.5,
            0.1,
            1e-7,
            3e38,
            f32::NAN,
            f32::NEG_INFINITY,
            1.0 / 3.0,
            16_777_216.0,
        ];
        let literal = Literal::new(&values, [values.len()]).unwrap();
        let long = Literal::new(&(0..20i16).collect::<Vec<_>>(), [4, 5]).unwrap();
        let empty = Literal::new::<f64>(&[], [0, 3]).unwrap();
        let bools = Literal::new(&[true, false], [2]).unwrap();
        let many = Literal::new(&[true, false, true, false], [2, 2]).unwrap();
        [
            literal,
            long,
            empty,
            bools,
            many,
            Literal::splat(7u64, [2, 2]),
        ]
        .map(|literal| push(graph, Op::Constant(literal), &[]))
        .to_vec()
    });
    check(
        &floats,
        &plain(),
        expect![[r#"
            module @test attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
              func.func public @main() -> (tensor<11xf32>, tensor<4x5xi16>, tensor<0x3xf64>, tensor<2xi1>, tensor<2x2xi1>, tensor<2x2xui64>) {
                %0 = stablehlo.constant dense<[0.0, -0.0, 1.0, -2.5, 0.1, 1.0e-7, 3.0e38, 0x7FC00000, 0xFF800000, 0.33333334, 16777216.0]> : tensor<11xf32>
                %1 = stablehlo.constant dense<"0x00000100020003000400050006000700080009000A000B000C000D000E000F001000110012001300"> : tensor<4x5xi16>
                %2 = stablehlo.constant dense<> : tensor<0x3xf64>
                %3 = stablehlo.constant dense<[true, false]> : tensor<2xi1>
                %4 = stablehlo.constant dense<"0x01000100"> : tensor<2x2xui8>
                %5 = stablehlo.convert %4 : (tensor<2x2xui8>) -> tensor<2x2xi1>
                %6 = stablehlo.constant dense<7> : tensor<2x2xui64>
                return %0, %1, %2, %3, %5, %6 : tensor<11xf32>, tensor<4x5xi16>, tensor<0x3xf64>, tensor<2xi1>, tensor<2x2xi1>, tensor<2x2xui64>
              }
            }
        "#]],
    );
}

#[test]
fn custom_call_attributes_are_typed() {
    let call = CustomCall {
        target: "my.kernel".to_string(),
        attributes: vec![
            ("scale".to_string(), Attribute::Float(0.5)),
            ("steps".to_string(), Attribute::Int(-3)),
            ("fast".to_string(), Attribute::Bool(true)),
            (
                "note".to_string(),
                Attribute::Str("say \"hä\"\n".to_string()),
            ),
        ],
        results: vec![
            TensorType::scalar(DType::F32),
            TensorType::scalar(DType::S8),
        ],
        ..CustomCall::default()
    };
    let called = graph([TensorType::scalar(DType::F32)], |graph, [x]| {
        graph
            .push(Op::CustomCall(call), &[x], None)
            .unwrap()
            .to_vec()
    });
    check(
        &called,
        &plain(),
        expect![[r#"
        module @test attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
          func.func public @main(%arg0: tensor<f32>) -> (tensor<f32>, tensor<i8>) {
            %0:2 = stablehlo.custom_call @"my.kernel"(%arg0) {api_version = 4 : i32, has_side_effect = false, backend_config = {"scale" = 0.5 : f64, "steps" = -3 : i64, "fast" = true, "note" = "say \"h\C3\A4\"\0A"}} : (tensor<f32>) -> (tensor<f32>, tensor<i8>)
            return %0#0, %0#1 : tensor<f32>, tensor<i8>
          }
        }
    "#]],
    );
    let twice = CustomCall {
        target: "k".to_string(),
        attributes: vec![
            ("a".to_string(), Attribute::Int(1)),
            ("a".to_string(), Attribute::Int(2)),
        ],
        results: vec![],
        ..CustomCall::default()
    };
    let called = graph([], |graph, []| {
        graph
            .push(Op::CustomCall(twice), &[], None)
            .unwrap()
            .to_vec()
    });
    assert_eq!(
        legalize(&called, &plain()).unwrap_err().to_string(),
        "custom_call: `k` has an attribute `a` that is empty or appears twice"
    );
}

/// On a device that rounds operands of `f32`, those of other types are left as they are.
#[test]
fn full_products_are_asked_for_in_f32_alone() {
    let of = |dtype, full_products| {
        let ty = |dims: &[usize]| TensorType::new(dtype, dims);
        let types = [ty(&[4, 4]), ty(&[1, 5, 2]), ty(&[3, 2, 2])];
        let graph = graph(types, |graph, [x, image, kernel]| {
            let dot = DotAttributes {
                lhs_batching: vec![],
                rhs_batching: vec![],
                lhs_contracting: vec![1],
                rhs_contracting: vec![0],
                ..DotAttributes::default()
            };
            let dims = |batch, feature, spatial| ConvolutionDims {
                batch,
                feature,
                spatial: vec![spatial],
            };
            let convolution = ConvolutionAttributes {
                input: dims(0, 2, 1),
                kernel: dims(2, 1, 0),
                output: dims(0, 2, 1),
                strides: vec![1],
                padding: vec![(0, 0)],
                input_dilation: vec![1],
                kernel_dilation: vec![1],
                reversal: vec![false],
                feature_groups: 1,
                batch_groups: 1,
                precision: Vec::new(),
            };
            vec![
                push(graph, Op::Dot(dot, dtype), &[x, x]),
                push(graph, Op::Convolution(convolution, dtype), &[image, kernel]),
            ]
        });
        let interface = Interface {
            full_products,
            ..plain()
        };
        read_back(&graph, &interface).matches("HIGHEST").count()
    };
    assert_eq!(of(DType::F32, true), 4);
    assert_eq!(of(DType::F32, false), 0);
    assert_eq!(of(DType::Bf16, true), 0);
    assert_eq!(of(DType::F64, true), 0);
}
