//! Programs over several partitions: manual computations and their collectives.

use halite_core::{HostArray, Program, Result};

use crate::common::devices::{SUM, client, launch, program, read};

#[test]
fn manual_computation_runs_on_each_shard() {
    let code = r#"
      module @test attributes {mhlo.num_partitions = 4 : i32} {
        sdy.mesh @mesh = <["x"=2, "y"=2]>
        func.func public @main(
            %x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}]>})
            -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}]>}) {
          %0 = sdy.manual_computation(%x)
              in_shardings=[<@mesh, [{"x", "y"}]>] out_shardings=[<@mesh, [{"x", "y"}]>]
              manual_axes={"x", "y"} (%a: tensor<1xf32>) {
            %1 = "stablehlo.all_reduce"(%a) ({
              ^bb0(%p: tensor<f32>, %q: tensor<f32>):
                %s = stablehlo.add %p, %q : tensor<f32>
                stablehlo.return %s : tensor<f32>
            }) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
                replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>,
                use_global_device_ids} : (tensor<1xf32>) -> tensor<1xf32>
            sdy.return %1 : tensor<1xf32>
          } : (tensor<4xf32>) -> tensor<4xf32>
          return %0 : tensor<4xf32>
        }
      }"#;
    let program = Program {
        partitions: 4,
        ..program(code, &[1], &[1])
    };
    let args: Vec<_> = [1.0f32, 2.0, 10.0, 20.0]
        .map(|value| HostArray::from_slice(&[value], [1]).unwrap())
        .into();
    let outputs = launch(&client(4), &program, &args).unwrap();
    let sums: Vec<_> = outputs
        .iter()
        .map(|buffer| read(buffer).unwrap()[0])
        .collect();
    assert_eq!(sums, [3.0, 3.0, 30.0, 30.0]);
}

/// Of an unreduced input the shards add up to it; an unreduced output is the sum of its shards.
#[test]
fn unreduced_axes_are_sums() {
    let code = r#"
      module @test attributes {mhlo.num_partitions = 4 : i32} {
        sdy.mesh @mesh = <["x"=2, "y"=2]>
        func.func public @main(
            %x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}]>})
            -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}]>}) {
          %0 = sdy.manual_computation(%x)
              in_shardings=[<@mesh, [{"y"}], unreduced={"x"}>] out_shardings=[<@mesh, [{"y"}]>]
              manual_axes={"x", "y"} (%a: tensor<2xf32>) {
            %1 = "stablehlo.all_reduce"(%a) ({
              ^bb0(%p: tensor<f32>, %q: tensor<f32>):
                %s = stablehlo.add %p, %q : tensor<f32>
                stablehlo.return %s : tensor<f32>
            }) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
                replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>,
                use_global_device_ids} : (tensor<2xf32>) -> tensor<2xf32>
            sdy.return %1 : tensor<2xf32>
          } : (tensor<4xf32>) -> tensor<4xf32>
          %2 = sdy.manual_computation(%0)
              in_shardings=[<@mesh, [{"y"}]>] out_shardings=[<@mesh, [{"y"}], unreduced={"x"}>]
              manual_axes={"x", "y"} (%a: tensor<2xf32>) {
            sdy.return %a : tensor<2xf32>
          } : (tensor<4xf32>) -> tensor<4xf32>
          return %2 : tensor<4xf32>
        }
      }"#;
    let program = Program {
        partitions: 4,
        ..program(code, &[1], &[1])
    };
    let args: Vec<_> = [1.0f32, 2.0, 10.0, 20.0]
        .map(|value| HostArray::from_slice(&[value], [1]).unwrap())
        .into();
    let outputs = launch(&client(4), &program, &args).unwrap();
    let values: Vec<_> = outputs
        .iter()
        .map(|buffer| read(buffer).unwrap()[0])
        .collect();
    assert_eq!(values, [2.0, 4.0, 20.0, 40.0]);
}

/// A program over 2 replicas of 4 partitions, a mesh of `x` and `y`, whose `body` maps `%x`.
fn on_mesh(body: &str) -> Program {
    let sharding = r#"tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}]>}"#;
    let code = format!(
        r#"module @test attributes {{mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 2 : i32}} {{
          sdy.mesh @mesh = <["x"=2, "y"=2]>
          func.func public @main(%x: {sharding}) -> ({sharding}) {{
            {body}
          }}
        }}"#
    );
    Program {
        partitions: 4,
        replicas: 2,
        ..program(&code, &[1], &[1])
    }
}

/// `name = sdy.manual_computation(operand)` over `axes`, with the maximum over `groups` of
/// processes.
fn manual_maximum(name: &str, operand: &str, axes: &str, groups: &str) -> String {
    let local = if axes.contains(',') { 1 } else { 2 };
    let sharding = format!("[<@mesh, [{{{axes}}}]>]");
    format!(
        r#"{name} = sdy.manual_computation({operand}) in_shardings={sharding}
             out_shardings={sharding} manual_axes={{{axes}}} (%a: tensor<{local}xf32>) {{
          %m = "stablehlo.all_reduce"(%a) ({{
            ^bb0(%p: tensor<f32>, %q: tensor<f32>):
              %s = stablehlo.maximum %p, %q : tensor<f32>
              stablehlo.return %s : tensor<f32>
          }}) {{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
              replica_groups = dense<{groups}> : tensor<{count}x{size}xi64>,
              use_global_device_ids}} : (tensor<{local}xf32>) -> tensor<{local}xf32>
          sdy.return %m : tensor<{local}xf32>
        }} : (tensor<4xf32>) -> tensor<4xf32>"#,
        count = groups.matches('[').count() - 1,
        size = 8 / (groups.matches('[').count() - 1),
    )
}

/// Runs a program of [`on_mesh`] on the numbers of the processes.
fn run_on_mesh(body: &str) -> Result<Vec<f32>> {
    let args: Vec<_> = (0..8u8)
        .map(|value| HostArray::from_slice(&[f32::from(value)], [1]).unwrap())
        .collect();
    let outputs = launch(&client(8), &on_mesh(body), &args)?;
    outputs.iter().map(|buffer| Ok(read(buffer)?[0])).collect()
}

const ACROSS_REPLICAS: &str = "[[0, 4], [1, 5], [2, 6], [3, 7]]";

#[test]
fn replicas_meet_in_every_run_of_a_region() {
    let manual = manual_maximum("%1", "%v", r#""x", "y""#, ACROSS_REPLICAS);
    let body = format!(
        "%zero = stablehlo.constant dense<0> : tensor<i32>
         %0:2 = stablehlo.while(%n = %zero, %v = %x) : tensor<i32>, tensor<4xf32>
         cond {{
           %limit = stablehlo.constant dense<100> : tensor<i32>
           %1 = stablehlo.compare LT, %n, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>
           stablehlo.return %1 : tensor<i1>
         }} do {{
           %one = stablehlo.constant dense<1> : tensor<i32>
           %next = stablehlo.add %n, %one : tensor<i32>
           {manual}
           stablehlo.return %next, %1 : tensor<i32>, tensor<4xf32>
         }}
         return %0#1 : tensor<4xf32>"
    );
    let maxima = run_on_mesh(&body).unwrap();
    assert_eq!(maxima, [4.0, 5.0, 6.0, 7.0, 4.0, 5.0, 6.0, 7.0]);
}

#[test]
fn replica_without_the_region_fails_the_others() {
    let manual = manual_maximum("%1", "%x", r#""x", "y""#, ACROSS_REPLICAS);
    let body = format!(
        r#"%id = stablehlo.replica_id : tensor<ui32>
         %zero = stablehlo.constant dense<0> : tensor<ui32>
         %p = stablehlo.compare EQ, %id, %zero : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
         %0 = "stablehlo.if"(%p) ({{
           {manual}
           stablehlo.return %1 : tensor<4xf32>
         }}, {{
           stablehlo.return %x : tensor<4xf32>
         }}) : (tensor<i1>) -> tensor<4xf32>
         return %0 : tensor<4xf32>"#
    );
    let error = run_on_mesh(&body).unwrap_err().to_string();
    assert!(error.contains("ended without its `all_reduce`"), "{error}");
}

#[test]
fn absent_partitions_fail_the_collective() {
    let across_y = "[[0, 1], [2, 3], [4, 5], [6, 7]]";
    let manual = manual_maximum("%0", "%x", r#""x""#, across_y);
    let body = format!("{manual}\nreturn %0 : tensor<4xf32>");
    let error = run_on_mesh(&body).unwrap_err().to_string();
    assert!(error.contains("which does not run it"), "{error}");
    assert!(error.contains("only partitions [0, 2] do"), "{error}");
    let body = format!(
        r#"%0 = "stablehlo.all_reduce"(%x) {} {{
             channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
             replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>,
             use_global_device_ids}} : (tensor<4xf32>) -> tensor<4xf32>
           return %0 : tensor<4xf32>"#,
        SUM
    );
    let error = run_on_mesh(&body).unwrap_err().to_string();
    assert!(error.contains("only partitions [0] do"), "{error}");
}

#[test]
fn partition_id_needs_a_manual_region() {
    let body = "%id = stablehlo.partition_id : tensor<ui32>
      return %x : tensor<4xf32>";
    let error = run_on_mesh(body).unwrap_err().to_string();
    assert!(error.contains("`partition_id` outside of"), "{error}");
}
