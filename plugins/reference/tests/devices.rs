//! Programs over several devices: collectives that fail, manual computations, cancellation.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use halite_core::{
    Arg, Client, CompileOptions, DType, DeviceBuffer, Error, HostArray, HostBytes, Launch, Program,
    Result, Signature, TensorType,
};
use halite_reference::{Options, Reference};

fn client(devices: u32) -> Client {
    let options = Options {
        devices,
        ..Options::default()
    };
    Client::new(Reference::new(&options).unwrap())
}

/// A program of one input and one output of these dimensions of `f32`, on each device.
fn program(code: &str, input: &[usize], output: &[usize]) -> Program {
    let ty = |dims| TensorType::new(DType::F32, dims);
    Program {
        name: Arc::from("test"),
        code: Arc::from(code.as_bytes()),
        signature: Signature {
            inputs: vec![ty(input)],
            outputs: vec![ty(output)],
            donated: Vec::new(),
        },
        partitions: 1,
        replicas: 1,
        facts: None,
    }
}

/// Launches on all devices with these arguments, one for each.
fn launch(client: &Client, program: &Program, args: &[HostArray]) -> Result<Vec<DeviceBuffer>> {
    let loaded = client.compile(program, &CompileOptions::default())?;
    let devices = client.local_devices();
    let upload = |(host, &device): (&HostArray, _)| {
        client.upload(
            HostBytes::Borrowed(host.bytes()),
            host.ty(),
            halite_core::Placement::from(device),
        )
    };
    let buffers: Vec<_> = args
        .iter()
        .zip(&devices)
        .map(upload)
        .collect::<Result<_>>()?;
    let args = buffers
        .iter()
        .map(|buffer| vec![Arg::Borrow(buffer)])
        .collect();
    Ok(loaded
        .launch(Launch { args })?
        .outputs
        .into_iter()
        .flatten()
        .collect())
}

fn read(buffer: &DeviceBuffer) -> Result<Vec<f32>> {
    let mut host = HostArray::zeros(buffer.tensor_type().clone());
    buffer.read(host.bytes_mut())?;
    Ok(host.as_slice()?.to_vec())
}

fn scalars(values: &[f32]) -> Vec<HostArray> {
    values
        .iter()
        .map(|&value| HostArray::scalar(value))
        .collect()
}

const SUM: &str = "({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
    })";

#[test]
fn missing_process_fails_the_collective() {
    // Only processes whose argument is positive run the collective.
    let code = format!(
        r#"func.func public @main(%x: tensor<f32>) -> tensor<f32> {{
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          %positive = stablehlo.compare GT, %x, %zero : (tensor<f32>, tensor<f32>) -> tensor<i1>
          %0 = "stablehlo.if"(%positive) ({{
            %1 = "stablehlo.all_reduce"(%x) {SUM}
              {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}} : (tensor<f32>) -> tensor<f32>
            stablehlo.return %1 : tensor<f32>
          }}, {{
            stablehlo.return %x : tensor<f32>
          }}) : (tensor<i1>) -> tensor<f32>
          return %0 : tensor<f32>
        }}"#
    );
    let program = Program {
        replicas: 2,
        ..program(&code, &[], &[])
    };
    let client = client(2);
    let sums = launch(&client, &program, &scalars(&[1.0, 2.0])).unwrap();
    assert_eq!(read(&sums[1]).unwrap(), [3.0]);
    let failed = launch(&client, &program, &scalars(&[1.0, -2.0])).unwrap();
    let error = read(&failed[0]).unwrap_err().to_string();
    assert!(
        error.contains("process 1 ended without its `all_reduce`"),
        "{error}"
    );
    assert_eq!(read(&failed[1]).unwrap(), [-2.0]);
}

#[test]
fn failure_of_a_process_reaches_the_others() {
    // Process 1 fails before the collective.
    let code = format!(
        r#"func.func public @main(%x: tensor<f32>) -> tensor<f32> {{
          %one = stablehlo.constant dense<1.0> : tensor<f32>
          %is_one = stablehlo.compare EQ, %x, %one : (tensor<f32>, tensor<f32>) -> tensor<i1>
          %0 = "stablehlo.if"(%is_one) ({{
            stablehlo.return %x : tensor<f32>
          }}, {{
            stablehlo.custom_call @check.expect_eq(%x, %one) {{has_side_effect = true}}
              : (tensor<f32>, tensor<f32>) -> ()
            stablehlo.return %x : tensor<f32>
          }}) : (tensor<i1>) -> tensor<f32>
          %2 = "stablehlo.all_reduce"(%0) {SUM}
            {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}} : (tensor<f32>) -> tensor<f32>
          return %2 : tensor<f32>
        }}"#
    );
    let program = Program {
        replicas: 2,
        ..program(&code, &[], &[])
    };
    let failed = launch(&client(2), &program, &scalars(&[1.0, 2.0])).unwrap();
    for buffer in &failed {
        let error: Error = read(buffer).unwrap_err();
        assert!(
            error.to_string().contains("computed 2.0, expected 1.0"),
            "{error}"
        );
    }
}

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

#[test]
fn endless_loop_ends_with_its_client() {
    let code = "func.func public @main(%x: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.while(%v = %x) : tensor<f32>
      cond {
        %true = stablehlo.constant dense<true> : tensor<i1>
        stablehlo.return %true : tensor<i1>
      } do {
        stablehlo.return %v : tensor<f32>
      }
      return %0 : tensor<f32>
    }";
    let client = client(1);
    let outputs = launch(&client, &program(code, &[], &[]), &scalars(&[1.0])).unwrap();
    assert!(!outputs[0].ready().unwrap().is_ready());
    drop((outputs, client));
    // The thread of the device is the only one that holds processor time now.
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let name = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
        };
        tasks
            .filter_map(name)
            .filter(|name| name.starts_with("halite-device-0"))
            .count()
    };
    let began = Instant::now();
    while cfg!(target_os = "linux") && threads() > 0 {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "the loop still runs"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
