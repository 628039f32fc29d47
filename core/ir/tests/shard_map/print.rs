//! Text of `shard_map` and collectives.

use expect_test::{Expect, expect};
use halite_core::DType;
use halite_ir::{BinaryOp, Graph, Groups, Interface, Op, Reduction, ShardMap, legalize, verify};

use crate::legalize::read_back;
use crate::shard_map::{all_reduce, around, axes, f32, interface, map, over_model, push, spec};

/// Collectives of all kinds, and the device's index.
fn everything() -> Graph {
    let specs = [
        "(data)",
        "(data)",
        "((data, model))",
        "(None, (model, data))",
    ];
    let map = map(f32(&[4, 4]), "(data, model)", &specs, |body, x| {
        let gather = Op::AllGather {
            dim: 1,
            groups: over_model(),
        };
        let scatter = Op::ReduceScatter {
            kind: Reduction::Max,
            dim: 1,
            groups: over_model(),
        };
        let exchange = Op::AllToAll {
            split: 0,
            concat: 1,
            groups: over_model(),
        };
        let permute = Op::CollectivePermute {
            pairs: vec![(0, 1), (7, 0)],
            groups: Groups::Axes(axes(&[("model", 4), ("data", 2)])),
        };
        let broadcast = Op::Broadcast {
            dims: vec![1, 16],
            mapping: vec![],
        };
        let reduced = [all_reduce(over_model()), gather, scatter].map(|op| push(body, op, &[x]));
        let exchanged = push(body, exchange, &[x]);
        let moved = push(body, permute, &[exchanged]);
        let index = push(body, Op::AxisIndex(axes(&[("data", 2), ("model", 4)])), &[]);
        let index = push(body, Op::Convert(DType::F32), &[index]);
        let index = push(body, broadcast, &[index]);
        let moved = push(body, Op::Binary(BinaryOp::Add), &[moved, index]);
        [&reduced[..], &[moved]].concat()
    });
    around(map, f32(&[8, 16]))
}

fn check(graph: &Graph, interface: &Interface, expected: Expect) {
    verify(graph).unwrap();
    expected.assert_eq(&read_back(graph, interface));
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
        vec![push(body, all_reduce(over_model()), &[x])]
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
    let sum = push(&mut body, all_reduce(Groups::Axes(alone.clone())), &[x]);
    body.set_outputs(vec![sum, index]);
    let map = ShardMap {
        mesh: alone,
        manual: vec!["model".into()],
        inputs: vec![spec("(model)")],
        outputs: vec![spec("(model)"), spec("()")],
        body: Box::new(body),
    };
    let graph = around(map, f32(&[4]));
    let no_mesh = Interface {
        locations: false,
        ..Interface::new("test")
    };
    let of_one_device = interface(&[("model", 1)], 1, 2);
    assert_eq!(
        legalize(&graph, &no_mesh).unwrap(),
        legalize(&graph, &of_one_device).unwrap()
    );
    check(
        &graph,
        &of_one_device,
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
fn lowering_rejects_another_mesh() {
    let graph = everything();
    let refused = |interface: &Interface| legalize(&graph, interface).unwrap_err().to_string();
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
        errors.map(|interface| legalize(&graph, &interface).unwrap_err().to_string())
    };
    for error in outside(all_reduce(over_model()))
        .iter()
        .chain(&outside(Op::AxisIndex(axes(&[("model", 4)]))))
    {
        assert!(error.contains("shard_map"), "{error}");
    }
}
