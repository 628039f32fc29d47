//! Launches, seen from inside.

use std::{sync::Arc, time::Duration};

use halite_core::{
    Arg, Backend, Code, CompileOptions, DType, Device, Executable, HostBytes, Launch, Program,
    Signature, TensorType, custom_call, wait::Work,
};

use super::*;
use crate::{Embedded, Options};

const ENDLESS: &str = "func.func public @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.while(%v = %x) : tensor<f32>
  cond {
    %true = stablehlo.constant dense<true> : tensor<i1>
    stablehlo.return %true : tensor<i1>
  } do {
    stablehlo.return %v : tensor<f32>
  }
  return %0 : tensor<f32>
}";

fn program(code: &str) -> Program {
    let ty = TensorType::new(DType::F32, []);
    Program {
        name: Arc::from("step"),
        code: Code::from(code.as_bytes()),
        signature: Signature {
            inputs: vec![ty.clone()],
            outputs: vec![ty],
            donated: Vec::new(),
        },
        partitions: 1,
        replicas: 1,
    }
}

#[test]
fn long_waits_say_what_runs() {
    let embedded = Embedded::new(&Options::default()).expect("it starts");
    let options = CompileOptions::default();
    let program = program(ENDLESS);
    let executable = Backend::compile(&embedded, &program, &options).expect("it compiles");
    let [ty] = &program.signature.inputs[..] else {
        panic!("the program has one input");
    };
    let place = embedded.devices()[0].id().into();
    let x = embedded
        .upload(HostBytes::Borrowed(&[0; 4]), ty, place)
        .expect("it uploads");
    let args = vec![vec![Arg::Borrow(&x)]];
    let _outputs = executable.launch(Launch { args }).expect("it is queued");
    let client = executable.client.clone();
    let progress = loop {
        if let Some(progress) = client.progress() {
            break progress;
        }
        std::thread::yield_now();
    };
    assert_eq!(progress, "`step` has been running for 0 s");
}

#[test]
fn interpreted_operations_are_reported_once() {
    let embedded = Embedded::new(&Options::default()).expect("it starts");
    let code = "func.func public @main(%x: tensor<f32>) -> tensor<f32> {
      stablehlo.custom_call @check.expect_eq(%x, %x) {has_side_effect = true}
        : (tensor<f32>, tensor<f32>) -> ()
      return %x : tensor<f32>
    }";
    let options = CompileOptions::default();
    let executable = Backend::compile(&embedded, &program(code), &options).expect("it compiles");
    let program = &executable.program;
    let [call] = &program.interpreted[..] else {
        panic!("{:?}", program.interpreted);
    };
    let millis = Duration::from_millis;
    assert_eq!(program.slow_warning(millis(1000)), None);
    call.nanoseconds.store(430_000_000, Relaxed);
    let warning = program.slow_warning(millis(0)).expect("it is slow");
    let expected = "`step` spends 43 % of its time in the exact interpreter, as the embedded \
                    executor has no kernel for `check.expect_eq` of f32 (43 %); see";
    assert!(warning.starts_with(expected), "{warning}");
    assert_eq!(program.slow_warning(millis(0)), None);
}

#[test]
fn donated_state_of_several_devices_is_updated_in_place() {
    let split = r#"{sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}"#;
    let code = format!(
        r#"module @step attributes {{mhlo.num_partitions = 4 : i32}} {{
          sdy.mesh @mesh = <["x"=4]>
          func.func public @main(%x: tensor<64xf32> {split}, %r: tensor<16xf32>)
              -> (tensor<64xf32> {split}, tensor<16xf32>) {{
            %0 = stablehlo.add %x, %x : tensor<64xf32>
            %1 = stablehlo.add %r, %r : tensor<16xf32>
            return %0, %1 : tensor<64xf32>, tensor<16xf32>
          }}
        }}"#
    );
    let ty = TensorType::new(DType::F32, [16]);
    let program = Program {
        signature: Signature {
            inputs: vec![ty.clone(); 2],
            outputs: vec![ty.clone(); 2],
            donated: vec![0, 1],
        },
        partitions: 4,
        ..program(&code)
    };
    let options = Options {
        devices: 4,
        ..Options::default()
    };
    let embedded = Embedded::new(&options).expect("it starts");
    let options = CompileOptions::default();
    let executable = Backend::compile(&embedded, &program, &options).expect("it compiles");
    let bytes = 1f32.to_le_bytes().repeat(16);
    let upload = |device: &crate::EmbeddedDevice| {
        let bytes = || HostBytes::Borrowed(&bytes);
        let buffer = || embedded.upload(bytes(), &ty, device.id().into());
        vec![buffer().expect("it uploads"), buffer().expect("it uploads")]
    };
    let mut rows: Vec<_> = embedded.devices().iter().map(upload).collect();
    let mut memory = Vec::new();
    for _ in 0..4 {
        let donate = |row: Vec<_>| row.into_iter().map(Arg::Donate).collect();
        let args = rows.into_iter().map(donate).collect();
        rows = executable
            .launch(Launch { args })
            .expect("it is queued")
            .outputs;
        let address = |buffer: &crate::EmbeddedBuffer| {
            buffer.slot.wait().expect("it runs").bytes.as_ptr().addr()
        };
        memory.push([0, 1].map(|at| address(&rows[0][at])));
    }
    // Uploads have a copy on each device; what a launch returns is shared.
    assert_eq!(memory[1..3], memory[2..4]);
    let mut read = vec![0; 64];
    halite_core::Buffer::read(&rows[3][0], &mut read).expect("it reads");
    assert_eq!(read, 16f32.to_le_bytes().repeat(16));
}

#[test]
fn effects_have_the_order_of_launches() {
    static ORDER: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    custom_call::register("launch.order", |call| {
        let devices = call.attributes().int("devices")? as usize;
        // The launch over several devices would be the later one.
        std::thread::sleep(Duration::from_millis(20 * (devices as u64 - 1)));
        ORDER.lock().expect("no panic").push(devices);
        let ([x], [y]) = call.buffers()?;
        y.bytes_mut().copy_from_slice(x.bytes());
        Ok(())
    })
    .expect("the name is free");
    let options = Options {
        devices: 4,
        ..Options::default()
    };
    let embedded = Embedded::new(&options).expect("it starts");
    let devices = embedded.devices();
    let launch = |on: &[crate::EmbeddedDevice]| {
        let count = on.len();
        let code = format!(
            r#"module @step attributes {{mhlo.num_partitions = {count} : i32}} {{
              func.func public @main(%x: tensor<f32>) -> tensor<f32> {{
                %0 = stablehlo.custom_call @launch.order(%x) {{has_side_effect = true,
                  api_version = 4 : i32, backend_config = {{devices = {count} : i64}}}}
                  : (tensor<f32>) -> tensor<f32>
                return %0 : tensor<f32>
              }}
            }}"#
        );
        let program = Program {
            partitions: count,
            ..program(&code)
        };
        let options = CompileOptions {
            devices: on.iter().map(Device::id).collect(),
            ..CompileOptions::default()
        };
        let executable = Backend::compile(&embedded, &program, &options).expect("compiles");
        let ty = &program.signature.inputs[0];
        let upload = |device: &crate::EmbeddedDevice| {
            let upload = embedded.upload(HostBytes::Borrowed(&[0; 4]), ty, device.id().into());
            upload.expect("it uploads")
        };
        let buffers: Vec<_> = on.iter().map(upload).collect();
        let args = buffers.iter().map(|buffer| vec![Arg::Borrow(buffer)]);
        let args = args.collect();
        executable
            .launch(Launch { args })
            .expect("it is queued")
            .outputs
    };
    let outputs = [launch(devices), launch(&devices[2..3])];
    for buffer in outputs.iter().flatten().flatten() {
        buffer.slot.wait().expect("it runs");
    }
    assert_eq!(*ORDER.lock().expect("no panic"), [4, 1]);
}
