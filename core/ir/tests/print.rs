//! What the text looks like. That compilers take it, and compute what it says, is tested where
//! there is a compiler.

use expect_test::{Expect, expect};
use halite_core::{DType, MeshShape, PartitionSpec, TensorType};
use halite_ir::{
    Attribute, Binary, Comparison, CustomCall, Dot, Extreme, Graph, Interface, Literal, Op, Port,
    Remat, Unary, Value, program, text,
};

fn check(graph: &Graph, interface: &Interface, expected: Expect) {
    expected.assert_eq(&text(graph, interface).unwrap());
}

fn plain() -> Interface {
    Interface {
        locations: false,
        ..Interface::new("test")
    }
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
    let types = [
        TensorType::new(DType::F32, [8, 3]),
        TensorType::new(DType::F32, [3, 2]),
    ];
    let layer = graph(types, |graph, [x, w]| {
        let dot = Dot {
            left_batch: vec![],
            right_batch: vec![],
            left_contract: vec![1],
            right_contract: vec![0],
            result: DType::F32,
        };
        let y = push(graph, Op::Dot(dot), &[x, w]);
        let zero = push(graph, Op::Constant(Literal::splat(0.0f32, [8, 2])), &[]);
        let y = push(graph, Op::Binary(Binary::Maximum), &[y, zero]);
        let arg = graph
            .push(
                Op::ArgReduce {
                    kind: Extreme::Max,
                    dim: 1,
                },
                &[y],
                None,
            )
            .unwrap()[1];
        vec![y, arg]
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
fn loops_and_branches_are_indented() {
    let types = [
        TensorType::scalar(DType::S32),
        TensorType::scalar(DType::S32),
    ];
    let condition = graph(types.clone(), |graph, [i, n]| {
        vec![push(graph, Op::Compare(Comparison::Lt), &[i, n])]
    });
    let body = graph(types.clone(), |graph, [i, n]| {
        let add = self::graph([TensorType::scalar(DType::S32)], |graph, [x]| {
            vec![push(graph, Op::Binary(Binary::Add), &[x, x])]
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

#[test]
fn scan_prints_as_while_over_a_counter() {
    let row = TensorType::new(DType::F32, [2]);
    let square = graph([row.clone()], |graph, [x]| {
        vec![push(graph, Op::Binary(Binary::Multiply), &[x, x])]
    });
    let turn = graph(
        [row.clone(), row.clone(), row.clone()],
        |graph, [sum, factor, x]| {
            let y = push(graph, Op::Binary(Binary::Multiply), &[x, factor]);
            let checkpoint = Op::Checkpoint {
                body: Box::new(square),
                remat: Remat::Full,
            };
            let y = push(graph, checkpoint, &[y]);
            let sum = push(graph, Op::Binary(Binary::Add), &[sum, y]);
            vec![sum, y]
        },
    );
    let scan = |length| Op::Scan {
        carried: 1,
        scanned: 1,
        length,
        reverse: length == 4,
        body: Box::new(turn.clone()),
    };
    let scans = graph(
        [
            row.clone(),
            row.clone(),
            TensorType::new(DType::F32, [4, 2]),
            TensorType::new(DType::F32, [0, 2]),
        ],
        |graph, [start, factor, xs, none]| {
            let backwards = graph
                .push(scan(4), &[start, factor, xs], None)
                .unwrap()
                .to_vec();
            let nothing = graph
                .push(scan(0), &[backwards[0], factor, none], None)
                .unwrap()
                .to_vec();
            [backwards, nothing].concat()
        },
    );
    check(
        &scans,
        &plain(),
        expect![[r#"
        module @test attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
          func.func public @main(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>, %arg2: tensor<4x2xf32>, %arg3: tensor<0x2xf32>) -> (tensor<2xf32>, tensor<4x2xf32>, tensor<2xf32>, tensor<0x2xf32>) {
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
            %21 = stablehlo.constant dense<0.0> : tensor<f32>
            %22 = stablehlo.broadcast_in_dim %21, dims = [] : (tensor<f32>) -> tensor<0x2xf32>
            return %6#1, %6#2, %6#1, %22 : tensor<2xf32>, tensor<4x2xf32>, tensor<2xf32>, tensor<0x2xf32>
          }
        }
    "#]],
    );
}

#[test]
fn text_has_mesh_shardings_aliases_locations() {
    let mesh = MeshShape::new([("data", 4), ("model", 2)]).unwrap();
    let ty = TensorType::new(DType::Bf16, [8, 6]);
    let mut graph = Graph::new();
    let (w, bias) = (graph.input(ty.clone()), graph.input(ty));
    let origin = std::panic::Location::caller();
    let sum = graph
        .push(Op::Binary(Binary::Add), &[w, bias], Some(origin))
        .unwrap()[0];
    // The mesh has no axis `sequence`.
    let same = push(
        &mut graph,
        Op::ShardingConstraint(PartitionSpec::from(["data", "sequence"])),
        &[sum],
    );
    graph.set_outputs(vec![same]);
    let spec = PartitionSpec::new([vec!["data", "model"]]);
    let port = |name: &str| Port {
        name: Some(name.to_string()),
        spec: Some(spec.clone()),
    };
    let interface = Interface {
        mesh: Some(mesh),
        inputs: vec![port("model.weight"), Port::default()],
        outputs: vec![port("next")],
        aliases: vec![(0, 0)],
        ..Interface::new("train step/2")
    };
    let written = text(&graph, &interface).unwrap().replace(
        &format!(":{}:{})", origin.line(), origin.column()),
        ":LINE:COLUMN)",
    );
    expect![[r#"
        module @train_step_2 attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
          sdy.mesh @mesh = <["data"=4, "model"=2]>
          func.func public @main(%arg0: tensor<8x6xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"data", "model"}, {}]>, tf.aliasing_output = 0 : i32} loc("model.weight"), %arg1: tensor<8x6xbf16>) -> (tensor<8x6xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"data", "model"}, {}]>}) {
            %0 = stablehlo.add %arg0, %arg1 : tensor<8x6xbf16> loc(#loc1)
            %1 = sdy.sharding_constraint %0 <@mesh, [{"data"}, {}]> : tensor<8x6xbf16>
            return %1 : tensor<8x6xbf16>
          }
        }
        #loc1 = loc("core/ir/tests/print.rs":LINE:COLUMN)
    "#]].assert_eq(&written);

    // The same graph on one device: nothing to say of shards.
    let single = Interface {
        mesh: None,
        inputs: vec![],
        outputs: vec![],
        locations: false,
        ..interface
    };
    check(
        &graph,
        &single,
        expect![[r#"
        module @train_step_2 attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
          func.func public @main(%arg0: tensor<8x6xbf16> {tf.aliasing_output = 0 : i32}, %arg1: tensor<8x6xbf16>) -> (tensor<8x6xbf16>) {
            %0 = stablehlo.add %arg0, %arg1 : tensor<8x6xbf16>
            return %0 : tensor<8x6xbf16>
          }
        }
    "#]],
    );
    assert_eq!(program(&graph, &single).unwrap().signature.donated, [0]);
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
        side_effect: false,
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
        side_effect: false,
    };
    let called = graph([], |graph, []| {
        graph
            .push(Op::CustomCall(twice), &[], None)
            .unwrap()
            .to_vec()
    });
    assert_eq!(
        text(&called, &plain()).unwrap_err().to_string(),
        "custom_call: `k` has an attribute `a` that is empty or appears twice"
    );
}

#[test]
fn interface_errors_have_the_numbers() {
    let ty = TensorType::new(DType::F32, [6]);
    let two = graph([ty.clone(), ty], |graph, [x, y]| {
        let z = push(graph, Op::Unary(Unary::IsFinite), &[y]);
        vec![x, z]
    });
    let mesh = Some(MeshShape::new([("data", 4)]).unwrap());
    let port = |spec: &PartitionSpec| Port {
        name: Some("x".to_string()),
        spec: Some(spec.clone()),
    };
    let split = PartitionSpec::first("data");
    let interfaces = [
        Interface {
            inputs: vec![Port::default()],
            ..plain()
        },
        Interface {
            aliases: vec![(2, 0)],
            ..plain()
        },
        Interface {
            aliases: vec![(0, 1)],
            ..plain()
        },
        Interface {
            aliases: vec![(0, 0), (0, 0)],
            ..plain()
        },
        Interface {
            aliases: vec![(0, 0), (1, 0)],
            ..plain()
        },
        Interface {
            replicas: 0,
            ..plain()
        },
        Interface {
            inputs: vec![port(&split), Port::default()],
            ..plain()
        },
        Interface {
            mesh: mesh.clone(),
            inputs: vec![port(&split), Port::default()],
            ..plain()
        },
        Interface {
            mesh: mesh.clone(),
            inputs: vec![port(&PartitionSpec::first("model")), Port::default()],
            ..plain()
        },
        Interface { mesh, ..plain() },
    ];
    let errors: Vec<String> = interfaces
        .iter()
        .map(|interface| program(&two, interface).unwrap_err().to_string())
        .collect();
    expect![[r#"
        print: program `test`: 1 input ports for 2 inputs of the graph
        print: program `test`: alias of input 2 and output 0; there are 2 inputs and 2 outputs
        print: program `test`: input 0 is f32[6] and output 1 is bool[6]; aliases must have equal types
        print: program `test`: input 0 is aliased twice
        print: program `test`: output 0 is aliased twice
        print: program `test`: 0 replicas; expected at least 1
        print: program `test`: input 0 (`x`): (data) of f32[6], and no mesh
        print: program `test`: input 0 (`x`): dimension 0 of f32[6] is split 4 ways by (data) on mesh(data=4), and 6 is not a multiple of 4
        print: program `test`: input 0 (`x`): (model) names axis `model`, which mesh(data=4) does not have
        print: program `test`: input 0: f32[6] on mesh(data=4) has no spec; set one, such as PartitionSpec::replicated()"#]].assert_eq(&errors.join("\n"));
}
