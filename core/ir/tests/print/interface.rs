//! Inputs, outputs, meshes and aliases in the text, and errors of the interface.

use std::panic::Location;

use expect_test::expect;
use halite_core::{DType, MeshShape, PartitionSpec, TensorType};
use halite_ir::{BinaryOp, Graph, Interface, Op, Port, UnaryOp, program};

use crate::legalize::read_back;
use crate::print::{check, graph, plain, push};

/// A sum computed at `origin`, with names, shardings and an alias.
fn train_step(origin: &'static Location<'static>) -> (Graph, Interface) {
    let mesh = MeshShape::new([("data", 4), ("model", 2)]).unwrap();
    let ty = TensorType::new(DType::Bf16, [8, 6]);
    let mut graph = Graph::new();
    let (w, bias) = (graph.input(ty.clone()), graph.input(ty));
    let sum = graph
        .push(Op::Binary(BinaryOp::Add), &[w, bias], Some(origin))
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
    (graph, interface)
}

#[test]
fn one_function_is_called_once() {
    let add = |outputs: usize| {
        graph([TensorType::new(DType::F32, [2])], |graph, [x]| {
            vec![push(graph, Op::Binary(BinaryOp::Add), &[x, x]); outputs]
        })
    };
    let interface = Interface {
        one_function: true,
        aliases: vec![(0, 0)],
        ..plain()
    };
    check(
        &add(2),
        &interface,
        expect![[r#"
            module @test attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
              func.func public @main(%arg0: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> (tensor<2xf32>, tensor<2xf32>) {
                %0:3 = func.call @function(%arg0) {mhlo.frontend_attributes = {inlineable = "false", xla_cpu_small_call = "true"}} : (tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
                return %0#0, %0#1 : tensor<2xf32>, tensor<2xf32>
              }
              func.func private @function(%arg0: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
                %1 = stablehlo.add %arg0, %arg0 : tensor<2xf32>
                return %1, %1, %arg0 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
              }
            }
        "#]],
    );
    check(
        &add(1),
        &interface,
        expect![[r#"
            module @test attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
              func.func public @main(%arg0: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> (tensor<2xf32>) {
                %0:2 = func.call @function(%arg0) {mhlo.frontend_attributes = {inlineable = "false", xla_cpu_small_call = "true"}} : (tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)
                return %0#0 : tensor<2xf32>
              }
              func.func private @function(%arg0: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
                %1 = stablehlo.add %arg0, %arg0 : tensor<2xf32>
                return %1, %arg0 : tensor<2xf32>, tensor<2xf32>
              }
            }
        "#]],
    );
}

#[test]
fn text_has_mesh_shardings_aliases_locations() {
    let origin = Location::caller();
    let (graph, interface) = train_step(origin);
    let written = read_back(&graph, &interface).replace(
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
        #loc1 = loc("core/ir/tests/print/interface.rs":LINE:COLUMN)
    "#]].assert_eq(&written);
}

#[test]
fn text_for_one_device_has_no_shardings() {
    let (graph, interface) = train_step(Location::caller());
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
fn interface_errors_have_the_numbers() {
    let ty = TensorType::new(DType::F32, [6]);
    let two = graph([ty.clone(), ty], |graph, [x, y]| {
        let z = push(graph, Op::Unary(UnaryOp::IsFinite), &[y]);
        vec![x, z]
    });
    let mesh = Some(MeshShape::new([("data", 4)]).unwrap());
    let port = |axis: &str| Port {
        name: Some("x".to_string()),
        spec: Some(PartitionSpec::first(axis)),
    };
    let with = |change: &dyn Fn(&mut Interface)| {
        let mut interface = plain();
        change(&mut interface);
        interface
    };
    let interfaces = [
        with(&|it| it.inputs = vec![Port::default()]),
        with(&|it| it.aliases = vec![(2, 0)]),
        with(&|it| it.aliases = vec![(0, 1)]),
        with(&|it| it.aliases = vec![(0, 0), (0, 0)]),
        with(&|it| it.aliases = vec![(0, 0), (1, 0)]),
        with(&|it| it.replicas = 0),
        with(&|it| it.inputs = vec![port("data"), Port::default()]),
        with(&|it| {
            it.inputs = vec![port("data"), Port::default()];
            it.mesh = mesh.clone();
        }),
        with(&|it| {
            it.inputs = vec![port("model"), Port::default()];
            it.mesh = mesh.clone();
        }),
        with(&|it| it.mesh = mesh.clone()),
    ];
    let errors: Vec<String> = interfaces
        .iter()
        .map(|interface| program(&two, interface).unwrap_err().to_string())
        .collect();
    expect![[r#"
        lower: program `test`: 1 input ports for 2 inputs of the graph
        lower: program `test`: alias of input 2 and output 0; there are 2 inputs and 2 outputs
        lower: program `test`: input 0 is f32[6] and output 1 is bool[6]; aliases must have equal types
        lower: program `test`: input 0 is aliased twice
        lower: program `test`: output 0 is aliased twice
        lower: program `test`: 0 replicas; expected at least 1
        lower: program `test`: input 0 (`x`): (data) of f32[6], and no mesh
        lower: program `test`: input 0 (`x`): dimension 0 of f32[6] is split 4 ways by (data) on mesh(data=4), and 6 is not a multiple of 4
        lower: program `test`: input 0 (`x`): (model) names axis `model`, which mesh(data=4) does not have
        lower: program `test`: input 0: f32[6] on mesh(data=4) has no spec; set one, such as PartitionSpec::replicated()"#]].assert_eq(&errors.join("\n"));
}
