//! Programs over several devices: collectives that fail, copies, cancellation.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use halite_core::{Arg, CompileOptions, Error, HostArray, HostBytes, Program};

use crate::common::devices::{SUM, client, launch, program, read, scalars};

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
    for buffer in &failed {
        let error = read(buffer).unwrap_err().to_string();
        assert!(
            error.contains("process 1 ended without its `all_reduce`"),
            "{error}"
        );
    }
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

/// Set in the process of [`endless_loop_ends_with_its_client`], which counts its threads.
const ALONE: &str = "HALITE_TEST_ALONE";

#[test]
fn endless_loop_ends_with_its_client() {
    if std::env::var_os(ALONE).is_none() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "devices::endless_loop_ends_with_its_client"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && stdout.contains(" 1 passed"),
            "{output:?}"
        );
        return;
    }
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
    assert!(!outputs[0].first().ready().unwrap().is_ready());
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

#[test]
fn reduction_of_replicas_rounds_once() {
    let code = r#"func.func public @main(%x: tensor<f32>) -> tensor<f32> {
      %n = stablehlo.convert %x : (tensor<f32>) -> tensor<bf16>
      %0 = "stablehlo.all_reduce"(%n) ({
        ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
          %s = stablehlo.add %a, %b : tensor<bf16>
          stablehlo.return %s : tensor<bf16>
      }) {replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>}
        : (tensor<bf16>) -> tensor<bf16>
      %1 = stablehlo.convert %0 : (tensor<bf16>) -> tensor<f32>
      return %1 : tensor<f32>
    }"#;
    let program = Program {
        replicas: 3,
        ..program(code, &[], &[])
    };
    // 128 + 0.5 is 128 in bf16, whose neighbors are 1 apart there.
    let sums = launch(&client(3), &program, &scalars(&[128.0, 0.5, 0.5])).unwrap();
    assert_eq!(read(&sums[0]).unwrap(), [129.0]);
}

#[test]
fn copies_do_not_block_launches() {
    let code = format!(
        r#"func.func public @main(%x: tensor<f32>) -> tensor<f32> {{
          %0 = "stablehlo.all_reduce"(%x) {SUM}
            {{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}}
            : (tensor<f32>) -> tensor<f32>
          return %0 : tensor<f32>
        }}"#
    );
    let client = client(8);
    let program = Program {
        replicas: 8,
        ..program(&code, &[], &[])
    };
    let loaded = client
        .compile(&program, &CompileOptions::default())
        .unwrap();
    let devices = client.local_devices();
    let place = |at: usize| halite_core::Placement::from(devices[at]);
    let upload = |at| {
        let host = HostArray::scalar(1f32);
        let bytes = HostBytes::Borrowed(host.bytes());
        client.upload(bytes, host.ty(), place(at)).unwrap()
    };
    let buffers: Vec<_> = (0..8).map(upload).collect();
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let copies = scope.spawn(|| {
            let mut last = buffers[0].first().copy_to(place(0)).unwrap();
            for _ in 0..2000 {
                last = last
                    .first()
                    .copy_to(place(0))
                    .unwrap()
                    .first()
                    .copy_to(place(7))
                    .unwrap();
            }
            last.first().ready().unwrap().wait()
        });
        let launches = scope.spawn(|| {
            let mut last = None;
            for _ in 0..300 {
                last = Some(
                    loaded
                        .launch(buffers.iter().map(Arg::Borrow).collect())
                        .unwrap(),
                );
            }
            last.unwrap()[0].get(7).unwrap().ready().unwrap().wait()
        });
        let waiter = done.clone();
        scope.spawn(move || {
            copies.join().unwrap().unwrap();
            launches.join().unwrap().unwrap();
            waiter.send(()).unwrap();
        });
        if wait.recv_timeout(Duration::from_secs(120)).is_err() {
            eprintln!("copies and launches wait for each other");
            std::process::abort();
        }
    });
}
