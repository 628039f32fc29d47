//! `shard_map` and what stands in it: types, text, passes, mistakes.

use expect_test::{Expect, expect};
use halite_core::{DType, MeshShape, PartitionSpec, TensorType};
use halite_ir::{
    Axes, Binary, Graph, Groups, Interface, Op, Port, Reduction, ShardMap, Unary, Value, cost,
    infer, optimize, text, varying, verify,
};
use proptest::prelude::*;

fn f32(dims: &[usize]) -> TensorType {
    TensorType::new(DType::F32, dims)
}

fn axes(axes: &[(&str, usize)]) -> Axes {
    axes.iter()
        .map(|&(name, size)| (name.into(), size))
        .collect()
}

fn spec(text: &str) -> PartitionSpec {
    text.parse().unwrap()
}

fn push(graph: &mut Graph, op: Op, operands: &[Value]) -> Value {
    graph.push(op, operands, None).unwrap()[0]
}

fn over_model() -> Groups {
    Groups::Axes(axes(&[("model", 4)]))
}

/// Over two by four devices: `body` of one `local` part.
fn map(
    local: TensorType,
    taken: &str,
    given: &[&str],
    body: impl FnOnce(&mut Graph, Value) -> Vec<Value>,
) -> ShardMap {
    let mut graph = Graph::new();
    let x = graph.input(local);
    let outputs = body(&mut graph, x);
    graph.set_outputs(outputs);
    ShardMap {
        mesh: axes(&[("data", 2), ("model", 4)]),
        manual: vec!["data".into(), "model".into()],
        inputs: vec![spec(taken)],
        outputs: given.iter().map(|text| spec(text)).collect(),
        body: Box::new(graph),
    }
}

/// The graph of one shard_map of `x`.
fn around(map: ShardMap, x: TensorType) -> Graph {
    let mut graph = Graph::new();
    let x = graph.input(x);
    let outputs = graph.push(Op::ShardMap(map), &[x], None).unwrap().to_vec();
    graph.set_outputs(outputs);
    graph
}

fn interface(mesh: &[(&str, usize)], inputs: usize, outputs: usize) -> Interface {
    let port = || Port {
        name: None,
        spec: Some(PartitionSpec::replicated()),
    };
    Interface {
        mesh: Some(MeshShape::new(mesh.iter().copied()).unwrap()),
        inputs: (0..inputs).map(|_| port()).collect(),
        outputs: (0..outputs).map(|_| port()).collect(),
        locations: false,
        ..Interface::new("test")
    }
}

/// Each collective, and where the device is.
fn everything() -> Graph {
    let both = || Groups::Axes(axes(&[("model", 4), ("data", 2)]));
    let map = map(
        f32(&[4, 4]),
        "(data, model)",
        &[
            "(data)",
            "(data)",
            "((data, model))",
            "(None, (model, data))",
        ],
        |body, x| {
            let sum = push(
                body,
                Op::AllReduce {
                    kind: Reduction::Sum,
                    groups: over_model(),
                },
                &[x],
            );
            let gathered = push(
                body,
                Op::AllGather {
                    dim: 1,
                    groups: over_model(),
                },
                &[x],
            );
            let scattered = push(
                body,
                Op::ReduceScatter {
                    kind: Reduction::Max,
                    dim: 1,
                    groups: over_model(),
                },
                &[x],
            );
            let exchanged = push(
                body,
                Op::AllToAll {
                    split: 0,
                    concat: 1,
                    groups: over_model(),
                },
                &[x],
            );
            let moved = push(
                body,
                Op::CollectivePermute {
                    pairs: vec![(0, 1), (7, 0)],
                    groups: both(),
                },
                &[exchanged],
            );
            let index = push(body, Op::AxisIndex(axes(&[("data", 2), ("model", 4)])), &[]);
            let index = push(body, Op::Convert(DType::F32), &[index]);
            let index = push(
                body,
                Op::Broadcast {
                    dims: vec![1, 16],
                    mapping: vec![],
                },
                &[index],
            );
            let moved = push(body, Op::Binary(Binary::Add), &[moved, index]);
            vec![sum, gathered, scattered, moved]
        },
    );
    around(map, f32(&[8, 16]))
}

fn check(graph: &Graph, interface: &Interface, expected: Expect) {
    verify(graph).unwrap();
    expected.assert_eq(&text(graph, interface).unwrap());
}

#[test]
fn shard_map_prints_as_manual_computation() {
    let graph = everything();
    assert_eq!(
        graph.output_types(),
        [f32(&[8, 4]), f32(&[8, 16]), f32(&[32, 1]), f32(&[1, 128])]
    );
    check(
        &graph,
        &interface(&[("data", 2), ("model", 4)], 1, 4),
        expect![[r#"
        module @test attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
          sdy.mesh @mesh = <["data"=2, "model"=4]>
          func.func public @main(%arg0: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, tensor<32x1xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, tensor<1x128xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
            %1:4 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{"data"}, {"model"}]>] out_shardings=[<@mesh, [{"data"}, {}]>, <@mesh, [{"data"}, {}]>, <@mesh, [{"data", "model"}, {}]>, <@mesh, [{}, {"model", "data"}]>] manual_axes={"data", "model"} (%i0: tensor<4x4xf32>) {
              %2 = "stablehlo.all_reduce"(%i0) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, use_global_device_ids}> ({
                ^bb0(%i3: tensor<f32>, %i4: tensor<f32>):
                %5 = stablehlo.add %i3, %i4 : tensor<f32>
                stablehlo.return %5 : tensor<f32>
              }) : (tensor<4x4xf32>) -> tensor<4x4xf32>
              %6 = "stablehlo.all_gather"(%i0) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>, replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, use_global_device_ids}> : (tensor<4x4xf32>) -> tensor<4x16xf32>
              %7 = "stablehlo.reduce_scatter"(%i0) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>, replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, use_global_device_ids, scatter_dimension = 1 : i64}> ({
                ^bb0(%i8: tensor<f32>, %i9: tensor<f32>):
                %10 = stablehlo.maximum %i8, %i9 : tensor<f32>
                stablehlo.return %10 : tensor<f32>
              }) : (tensor<4x4xf32>) -> tensor<4x1xf32>
              %11 = "stablehlo.all_to_all"(%i0) <{concat_dimension = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 4, type = 1>, replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, split_count = 4 : i64, split_dimension = 0 : i64}> : (tensor<4x4xf32>) -> tensor<1x16xf32>
              %12 = "stablehlo.collective_permute"(%11) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>, source_target_pairs = dense<[[0, 4], [7, 0]]> : tensor<2x2xi64>}> : (tensor<1x16xf32>) -> tensor<1x16xf32>
              %13 = stablehlo.partition_id : tensor<ui32>
              %14 = stablehlo.convert %13 : (tensor<ui32>) -> tensor<i32>
              %15 = stablehlo.constant dense<4> : tensor<i32>
              %16 = stablehlo.divide %14, %15 : tensor<i32>
              %17 = stablehlo.constant dense<2> : tensor<i32>
              %18 = stablehlo.remainder %16, %17 : tensor<i32>
              %19 = stablehlo.constant dense<1> : tensor<i32>
              %20 = stablehlo.divide %14, %19 : tensor<i32>
              %21 = stablehlo.constant dense<4> : tensor<i32>
              %22 = stablehlo.remainder %20, %21 : tensor<i32>
              %23 = stablehlo.constant dense<4> : tensor<i32>
              %24 = stablehlo.multiply %18, %23 : tensor<i32>
              %25 = stablehlo.add %24, %22 : tensor<i32>
              %26 = stablehlo.convert %25 : (tensor<i32>) -> tensor<f32>
              %27 = stablehlo.broadcast_in_dim %26, dims = [] : (tensor<f32>) -> tensor<1x16xf32>
              %28 = stablehlo.add %12, %27 : tensor<1x16xf32>
              sdy.return %2, %6, %7, %28 : tensor<4x4xf32>, tensor<4x16xf32>, tensor<4x1xf32>, tensor<1x16xf32>
            } : (tensor<8x16xf32>) -> (tensor<8x4xf32>, tensor<8x16xf32>, tensor<32x1xf32>, tensor<1x128xf32>)
            return %1#0, %1#1, %1#2, %1#3 : tensor<8x4xf32>, tensor<8x16xf32>, tensor<32x1xf32>, tensor<1x128xf32>
          }
        }
    "#]],
    );
}

#[test]
fn axes_that_are_left_to_the_compiler_stay_open() {
    let map = map(f32(&[8, 4]), "(None, model)", &["()"], |body, x| {
        vec![push(
            body,
            Op::AllReduce {
                kind: Reduction::Sum,
                groups: over_model(),
            },
            &[x],
        )]
    });
    let graph = around(
        ShardMap {
            manual: vec!["model".into()],
            ..map
        },
        f32(&[8, 16]),
    );
    check(
        &graph,
        &interface(&[("data", 2), ("model", 4)], 1, 1),
        expect![[r#"
        module @test attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
          sdy.mesh @mesh = <["data"=2, "model"=4]>
          func.func public @main(%arg0: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
            %1 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{?}, {"model", ?}]>] out_shardings=[<@mesh, [{?}, {?}]>] manual_axes={"model"} (%i0: tensor<8x4xf32>) {
              %2 = "stablehlo.all_reduce"(%i0) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, use_global_device_ids}> ({
                ^bb0(%i3: tensor<f32>, %i4: tensor<f32>):
                %5 = stablehlo.add %i3, %i4 : tensor<f32>
                stablehlo.return %5 : tensor<f32>
              }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
              sdy.return %2 : tensor<8x4xf32>
            } : (tensor<8x16xf32>) -> tensor<8x4xf32>
            return %1 : tensor<8x4xf32>
          }
        }
    "#]],
    );
}

#[test]
fn on_one_device_it_is_its_body() {
    let mut body = Graph::new();
    let x = body.input(f32(&[4]));
    let alone = axes(&[("model", 1)]);
    let index = push(&mut body, Op::AxisIndex(alone.clone()), &[]);
    let sum = push(
        &mut body,
        Op::AllReduce {
            kind: Reduction::Sum,
            groups: Groups::Axes(alone.clone()),
        },
        &[x],
    );
    body.set_outputs(vec![sum, index]);
    let map = ShardMap {
        mesh: alone,
        manual: vec!["model".into()],
        inputs: vec![spec("(model)")],
        outputs: vec![spec("(model)"), spec("()")],
        body: Box::new(body),
    };
    let graph = around(map, f32(&[4]));
    check(
        &graph,
        &Interface {
            locations: false,
            ..Interface::new("test")
        },
        expect![[r#"
        module @test attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
          func.func public @main(%arg0: tensor<4xf32>) -> (tensor<4xf32>, tensor<i32>) {
            %0 = stablehlo.constant dense<0> : tensor<i32>
            %1 = "stablehlo.all_reduce"(%arg0) <{replica_groups = dense<[[0]]> : tensor<1x1xi64>}> ({
              ^bb0(%i2: tensor<f32>, %i3: tensor<f32>):
              %4 = stablehlo.add %i2, %i3 : tensor<f32>
              stablehlo.return %4 : tensor<f32>
            }) : (tensor<4xf32>) -> tensor<4xf32>
            return %1, %0 : tensor<4xf32>, tensor<i32>
          }
        }
    "#]],
    );
    check(
        &graph,
        &interface(&[("model", 1)], 1, 2),
        expect![[r#"
        module @test attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
          func.func public @main(%arg0: tensor<4xf32>) -> (tensor<4xf32>, tensor<i32>) {
            %0 = stablehlo.constant dense<0> : tensor<i32>
            %1 = "stablehlo.all_reduce"(%arg0) <{replica_groups = dense<[[0]]> : tensor<1x1xi64>}> ({
              ^bb0(%i2: tensor<f32>, %i3: tensor<f32>):
              %4 = stablehlo.add %i2, %i3 : tensor<f32>
              stablehlo.return %4 : tensor<f32>
            }) : (tensor<4xf32>) -> tensor<4xf32>
            return %1, %0 : tensor<4xf32>, tensor<i32>
          }
        }
    "#]],
    );
}

#[test]
fn passes_simplify_the_body() {
    let map = map(
        f32(&[4, 4]),
        "(data, model)",
        &["(data, model)"],
        |body, x| {
            let one = push(
                body,
                Op::Constant(halite_ir::Literal::splat(1.0f32, [4, 4])),
                &[],
            );
            let same = push(body, Op::Binary(Binary::Multiply), &[x, one]);
            push(
                body,
                Op::AllReduce {
                    kind: Reduction::Sum,
                    groups: over_model(),
                },
                &[x],
            ); // not used
            let a = push(body, Op::Unary(Unary::Tanh), &[same]);
            let b = push(body, Op::Unary(Unary::Tanh), &[x]);
            vec![push(body, Op::Binary(Binary::Add), &[a, b])]
        },
    );
    let graph = optimize(&around(map, f32(&[8, 16])));
    verify(&graph).unwrap();
    let Op::ShardMap(map) = &graph.nodes()[0].op else {
        panic!("it is still there")
    };
    let ops: Vec<&str> = map.body.nodes().iter().map(|node| node.op.name()).collect();
    assert_eq!(ops, ["tanh", "add"]);
    // Each of eight devices does 16 additions.
    assert_eq!(cost(&graph).elementwise, 8.0 * 16.0);
}

#[test]
fn errors_have_the_numbers() {
    let good = || {
        map(f32(&[4, 4]), "(data, model)", &["(data, model)"], |_, x| {
            vec![x]
        })
    };
    let with = |op: fn(&mut Graph, Value) -> Value| {
        map(
            f32(&[4, 4]),
            "(data, model)",
            &["(data, model)"],
            |body, x| vec![op(body, x)],
        )
    };
    let cases: Vec<(ShardMap, TensorType)> = vec![
        (good(), f32(&[8, 18])),
        (good(), f32(&[8])),
        (good(), f32(&[8, 32])),
        (
            ShardMap {
                mesh: axes(&[]),
                ..good()
            },
            f32(&[8, 16]),
        ),
        (
            ShardMap {
                mesh: axes(&[("data", 0), ("model", 4)]),
                ..good()
            },
            f32(&[8, 16]),
        ),
        (
            ShardMap {
                mesh: axes(&[("data", usize::MAX), ("model", 4)]),
                ..good()
            },
            f32(&[8, 16]),
        ),
        (
            ShardMap {
                mesh: axes(&[("data", 2), ("data", 4)]),
                ..good()
            },
            f32(&[8, 16]),
        ),
        (
            ShardMap {
                manual: vec![],
                ..good()
            },
            f32(&[8, 16]),
        ),
        (
            ShardMap {
                manual: vec!["model".into(), "data".into()],
                ..good()
            },
            f32(&[8, 16]),
        ),
        (
            ShardMap {
                manual: vec!["model".into()],
                ..good()
            },
            f32(&[8, 16]),
        ),
        (
            ShardMap {
                inputs: vec![],
                ..good()
            },
            f32(&[8, 16]),
        ),
        (
            ShardMap {
                outputs: vec![],
                ..good()
            },
            f32(&[8, 16]),
        ),
        (
            ShardMap {
                outputs: vec![spec("(data, data)")],
                ..good()
            },
            f32(&[8, 16]),
        ),
        (
            with(|body, x| {
                push(
                    body,
                    Op::AllReduce {
                        kind: Reduction::Sum,
                        groups: Groups::Axes(axes(&[("model", 2)])),
                    },
                    &[x],
                )
            }),
            f32(&[8, 16]),
        ),
        (
            with(|body, x| {
                push(
                    body,
                    Op::AllReduce {
                        kind: Reduction::Sum,
                        groups: Groups::Axes(axes(&[("rows", 2)])),
                    },
                    &[x],
                )
            }),
            f32(&[8, 16]),
        ),
        (
            with(|body, x| {
                push(
                    body,
                    Op::AllReduce {
                        kind: Reduction::Sum,
                        groups: vec![vec![0, 8]].into(),
                    },
                    &[x],
                )
            }),
            f32(&[8, 16]),
        ),
        (
            with(|body, x| {
                push(
                    body,
                    Op::AllReduce {
                        kind: Reduction::Sum,
                        groups: vec![vec![0, 1], vec![2, 3]].into(),
                    },
                    &[x],
                )
            }),
            f32(&[8, 16]),
        ),
        (
            with(|body, x| push(body, Op::ShardingConstraint(spec("(data)")), &[x])),
            f32(&[8, 16]),
        ),
        (
            with(|body, x| {
                let inner = map(f32(&[2, 1]), "(data, model)", &["(data, model)"], |_, x| {
                    vec![x]
                });
                push(body, Op::ShardMap(inner), &[x])
            }),
            f32(&[8, 16]),
        ),
    ];
    let told: Vec<String> = cases
        .into_iter()
        .map(|(map, ty)| infer(&Op::ShardMap(map), &[&ty]).unwrap_err().to_string() + "\n")
        .collect();
    expect![[r#"
        shard_map: operand 0: dimension 1 of f32[8, 18] is split 4 ways by (data, model) over mesh(data=2, model=4), and 18 is not a multiple of 4
        shard_map: operand 0: (data, model) has 2 dimensions, f32[8] has 1
        shard_map: the body takes [f32[4, 4]], the operands are [f32[4, 8]]; number 0 is f32[4, 4] and f32[4, 8]
        shard_map: no axis is named; name one of the mesh or more
        shard_map: (data=0, model=4) has no devices, or more than can be counted
        shard_map: (data=18446744073709551615, model=4) has no devices, or more than can be counted
        shard_map: axis `data` appears twice in (data=2, data=4)
        shard_map: no axis of (data=2, model=4) is manual; name one or more
        shard_map: manual axes ["model", "data"] are not axes of (data=2, model=4), in its order
        shard_map: operand 0: (data, model) names axis `data`, which is none of the manual axes (model=4)
        shard_map: 0 specs for 1 operands; there must be one for each
        shard_map: 0 specs for 1 results; there must be one for each
        shard_map: result 0: (data, data) uses axis `data` twice; an axis can split one dimension
        shard_map: node 0 of the body, all_reduce: axis `model` is declared with 2 devices; the mesh has 4
        shard_map: node 0 of the body, all_reduce: no manual axis `rows`; the manual axes are (data=2, model=4)
        shard_map: node 0 of the body, all_reduce: device 8 takes part, there are 8, from 0
        shard_map: node 0 of the body, all_reduce: groups [[0, 1], [2, 3]] lack devices [4, 5, 6, 7]; each of 8 devices must be in one group
        shard_map: node 0 of the body, sharding_constraint: (data) names axis `data`, which is manual here; the shard of one device is not split further
        shard_map: node 0 of the body, shard_map: a shard_map within a shard_map; use the collectives of the outer one
    "#]].assert_eq(&told.concat());
    for (axes, problem) in [
        (axes(&[]), "no axis is named; name one of the mesh or more"),
        (
            axes(&[("a", 2), ("a", 2)]),
            "axis `a` appears twice in (a=2, a=2)",
        ),
        (
            axes(&[("a", usize::MAX), ("b", 2)]),
            "has no devices, or more than can be counted",
        ),
    ] {
        let error = infer(&Op::AxisIndex(axes), &[]).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn printing_rejects_another_mesh() {
    let graph = everything();
    let refused = |interface: &Interface| text(&graph, interface).unwrap_err().to_string();
    assert_eq!(
        refused(&Interface::new("test")),
        "shard_map: it is over mesh(data=2, model=4), the program is for one device"
    );
    assert_eq!(
        refused(&interface(&[("model", 4), ("data", 2)], 1, 4)),
        "shard_map: it is over mesh(data=2, model=4), the program is for mesh(model=4, data=2)"
    );
    let outside = |op: Op| {
        let mut graph = Graph::new();
        let x = graph.input(f32(&[8]));
        let operands = if matches!(op, Op::AxisIndex(_)) {
            vec![]
        } else {
            vec![x]
        };
        let y = push(&mut graph, op, &operands);
        graph.set_outputs(vec![y]);
        let errors = [
            interface(&[("data", 2), ("model", 4)], 1, 1),
            Interface {
                replicas: 8,
                ..Interface::new("test")
            },
        ];
        errors.map(|interface| text(&graph, &interface).unwrap_err().to_string())
    };
    for error in outside(Op::AllReduce {
        kind: Reduction::Sum,
        groups: over_model(),
    })
    .iter()
    .chain(&outside(Op::AxisIndex(axes(&[("model", 4)]))))
    {
        assert!(error.contains("shard_map"), "{error}");
    }
}

#[test]
fn variance_follows_the_axes_of_inputs() {
    let varies = |body: fn(&mut Graph, Value) -> Value| {
        let map = map(f32(&[4]), "(model)", &["(data, model)"], |graph, x| {
            vec![body(graph, x)]
        });
        varying(&map).outputs[0]
            .iter()
            .map(|axis| axis.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(varies(|_, x| x), ["model"]);
    assert_eq!(
        varies(|body, x| push(
            body,
            Op::AllReduce {
                kind: Reduction::Sum,
                groups: over_model()
            },
            &[x]
        )),
        [""; 0]
    );
    assert_eq!(
        varies(|body, _| push(body, Op::PartitionId, &[])),
        ["data", "model"]
    );
    assert_eq!(
        varies(|body, _| push(body, Op::AxisIndex(axes(&[("data", 2)])), &[])),
        ["data"]
    );

    assert_eq!(
        varies(|body, x| push(
            body,
            Op::AllReduce {
                kind: Reduction::Sum,
                groups: lists()
            },
            &[x]
        )),
        [""; 0]
    );

    assert_eq!(
        varies(|body, x| push(
            body,
            Op::AllReduce {
                kind: Reduction::Sum,
                groups: halves()
            },
            &[x]
        )),
        ["data", "model"]
    );
    fn lists() -> Groups {
        vec![vec![0, 1, 2, 3, 4, 5, 6, 7]].into()
    }
    fn halves() -> Groups {
        vec![vec![0, 4, 2, 6], vec![1, 5, 3, 7]].into()
    }
}

/// A spec that puts each of three axes into one of the dimensions, or none.
fn scattered(places: &[usize], rank: usize) -> PartitionSpec {
    let mut dims = vec![vec![]; rank];
    for (place, axis) in places.iter().zip(["a", "b", "c"]) {
        if let Some(dim) = dims.get_mut(*place) {
            dim.push(axis);
        }
    }
    PartitionSpec::new(dims)
}

proptest! {
    #[test]
    fn a_part_is_what_a_device_of_a_mesh_holds(
        sizes in prop::collection::vec(1usize..5, 3), dims in prop::collection::vec(0usize..25, 0..4),
        places in prop::collection::vec(0usize..5, 3),
    ) {
        let mesh_axes = axes(&[("a", sizes[0]), ("b", sizes[1]), ("c", sizes[2])]);
        let mesh = MeshShape::new(mesh_axes.clone()).unwrap();
        let (ty, spec) = (f32(&dims), scattered(&places, dims.len()));
        let held = spec.shard_type(&mesh, &ty).ok();
        let local = held.clone().unwrap_or_else(|| ty.clone());
        let mut body = Graph::new();
        let x = body.input(local);
        body.set_outputs(vec![x]);
        let map = ShardMap {
            mesh: mesh_axes,
            manual: vec!["a".into(), "b".into(), "c".into()],
            inputs: vec![spec.clone()],
            outputs: vec![spec],
            body: Box::new(body),
        };
        // What devices hold, put together, is what it was cut from.
        prop_assert_eq!(infer(&Op::ShardMap(map), &[&ty]).ok(), held.map(|_| vec![ty]));
    }

    #[test]
    fn nothing_panics(
        sizes in prop::collection::vec(prop::sample::select(vec![0, 1, 2, 3, usize::MAX]), 3),
        dims in prop::collection::vec(prop::sample::select(vec![0, 1, 6, usize::MAX]), 0..4),
        places in prop::collection::vec(0usize..5, 3), manual in prop::collection::vec(0usize..4, 0..3),
        pairs in prop::collection::vec((0usize..9, 0usize..9), 0..4), lists in prop::collection::vec(prop::collection::vec(0usize..9, 0..3), 0..3),
    ) {
        let names = ["a", "b", "c", "d"];
        let all = axes(&[("a", sizes[0]), ("b", sizes[1]), ("c", sizes[2])]);
        let ty = f32(&dims);
        let spec = scattered(&places, dims.len());
        for groups in [Groups::All, Groups::from(lists), Groups::Axes(all.clone())] {
            let mut body = Graph::new();
            let x = body.input(ty.clone());
            let pushed = body.push(Op::CollectivePermute { pairs: pairs.clone(), groups: groups.clone() }, &[x], None).map(|results| results[0]);
            body.set_outputs(vec![pushed.unwrap_or(x)]);
            let map = ShardMap {
                mesh: all.clone(),
                manual: manual.iter().map(|&axis| names[axis].into()).collect(),
                inputs: vec![spec.clone()],
                outputs: vec![spec.clone()],
                body: Box::new(body),
            };
            let _ = infer(&Op::ShardMap(map), &[&ty]);
            let _ = infer(&Op::AllGather { dim: places[0], groups: groups.clone() }, &[&ty]);
            let _ = infer(&Op::AllToAll { split: places[0], concat: places[1], groups: groups.clone() }, &[&ty]);
            let _ = infer(&Op::ReduceScatter { kind: Reduction::Sum, dim: places[0], groups }, &[&ty]);
        }
    }
}
