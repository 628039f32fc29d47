//! Waiting, callbacks, and handles that are dropped while work is in progress. The conformance suite
//! has the requirements of every backend; these tests are specific to PJRT.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    time::Duration,
};

use halite_core::{Arg, Backend, Buffer, DeviceId, Event, Executable, Launch, Program};
use halite_pjrt::{
    CompiledProgram, Pjrt, PjrtBuffer, PjrtDevice, PjrtEvent, PjrtExecutable, Plugin, Topology,
};

use crate::common::*;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn handles_are_send_sync() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Plugin>();
    check::<Pjrt>();
    check::<PjrtDevice>();
    check::<PjrtBuffer>();
    check::<PjrtExecutable>();
    check::<PjrtEvent>();
    check::<CompiledProgram>();
    check::<Topology>();
}

/// Multiplies a matrix with itself several times, which takes long enough to be observed in
/// progress.
fn slow() -> Program {
    let mut code =
        String::from("func.func public @main(%v0: tensor<512x512xf32>) -> tensor<512x512xf32> {\n");
    for step in 0..20 {
        let next = step + 1;
        code += &format!(
            "  %d{step} = stablehlo.dot_general %v{step}, %v0, contracting_dims = [1] x [0] : \
             (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>\n  \
             %v{next} = stablehlo.tanh %d{step} : tensor<512x512xf32>\n"
        );
    }
    code += "  return %v20 : tensor<512x512xf32>\n}";
    program(&code, &[f32s(&[512, 512])], &[f32s(&[512, 512])], &[])
}

#[test]
fn callback_outlives_its_client() {
    let (send, receive) = mpsc::channel();
    {
        let client = cpu(1);
        let slow = compile(&client, &slow());
        let a = upload(&client, &vec![0.5f32; 512 * 512], &[512, 512], 0);
        let value = run(&slow, vec![Arg::Borrow(&a)]).unwrap().remove(0);
        let event = value.ready().unwrap();
        for number in 0..3 {
            let send = send.clone();
            event.on_ready(Box::new(move |result| {
                send.send((number, result.is_ok())).unwrap()
            }));
        }
    }
    drop(send);
    let mut ran: Vec<_> = (0..3)
        .map(|_| receive.recv_timeout(MINUTE).expect("a callback runs"))
        .collect();
    ran.sort_unstable();
    assert_eq!(ran, [(0, true), (1, true), (2, true)]);
    assert_eq!(
        receive.recv_timeout(MINUTE),
        Err(mpsc::RecvTimeoutError::Disconnected),
        "every closure is gone after it ran"
    );
}

#[test]
fn event_keeps_its_error() {
    let client = cpu(1);
    let failed = client
        .failed_buffer(&f32s(&[2]), DeviceId(0).into(), "out of luck")
        .unwrap();
    let event = failed.ready().unwrap();
    assert!(event.is_ready());
    for _ in 0..2 {
        let error = event.wait().unwrap_err();
        assert!(
            error.message().contains("out of luck") && error.platform() == Some("cpu"),
            "{error}"
        );
    }
    let (send, receive) = mpsc::channel();
    event.on_ready(Box::new(move |result| {
        send.send(result.unwrap_err().to_string()).unwrap()
    }));
    assert!(
        receive
            .recv_timeout(MINUTE)
            .unwrap()
            .contains("out of luck")
    );
}

#[test]
fn panic_in_a_callback_is_contained() {
    let client = cpu(1);
    let there = upload(&client, &[1.0f32], &[1], 0);
    let (send, receive) = mpsc::channel();
    // A ready event runs it on this thread, others on a thread of the plugin.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        there.ready().unwrap().on_ready(Box::new(move |_| {
            let _sends_when_dropped = SendOnDrop(send);
            panic!("a callback of the test panics");
        }));
    }));
    assert!(outcome.is_ok(), "the panic stays in the callback");
    receive
        .recv_timeout(MINUTE)
        .expect("the callback ran and its captures were dropped");
    assert_eq!(read::<f32>(&there), [1.0]);
}

struct SendOnDrop(mpsc::Sender<()>);

impl Drop for SendOnDrop {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[test]
fn last_handle_can_be_dropped_in_a_callback() {
    let (send, receive) = mpsc::channel();
    for _ in 0..10 {
        let client = cpu(2);
        let slow = compile(&client, &slow());
        let a = upload(&client, &vec![0.5f32; 512 * 512], &[512, 512], 0);
        let value = run(&slow, vec![Arg::Borrow(&a)]).unwrap().remove(0);
        let send = send.clone();
        let event = value.ready().unwrap();
        event.on_ready(Box::new(move |result| {
            drop((client, slow, a, value));
            send.send(result.is_ok()).unwrap();
        }));
    }
    for _ in 0..10 {
        assert!(
            receive
                .recv_timeout(MINUTE)
                .expect("no callback waits for itself")
        );
    }
}

#[test]
fn handles_may_be_dropped_in_any_order() {
    let client = cpu(2);
    let add = compile(&client, &add(4, false));
    let a = upload(&client, &[1.0f32; 4], &[4], 0);
    let topology = client.topology().unwrap();
    let device_count = client.devices().len();
    drop(client);
    let sum = run(&add, vec![Arg::Borrow(&a), Arg::Borrow(&a)])
        .unwrap()
        .remove(0);
    let event = sum.ready().unwrap();
    drop((add, a));
    assert_eq!(topology.devices().unwrap().len(), device_count);
    assert_eq!(read::<f32>(&sum), [2.0; 4]);
    drop(sum);
    event.wait().unwrap();
    drop(topology);
    drop(event);
}

/// A program over eight devices: `x: f32[8, 64]`, sharded by rows, and `w: f32[64, 64]`, replicated,
/// give `x w` and the sum of its elements.
fn sharded_product() -> Program {
    let code = r#"module @product {
  sdy.mesh @mesh = <["data"=8]>
  func.func public @main(%x: tensor<8x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>},
                         %w: tensor<64x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>})
      -> (tensor<8x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>},
          tensor<f32> {sdy.sharding = #sdy.sharding<@mesh, []>}) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
    %sum = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<8x64xf32>, tensor<f32>) -> tensor<f32>
    return %y, %sum : tensor<8x64xf32>, tensor<f32>
  }
}"#;
    let mut product = program(
        code,
        &[f32s(&[1, 64]), f32s(&[64, 64])],
        &[f32s(&[1, 64]), f32s(&[])],
        &[],
    );
    product.partitions = 8;
    product
}

#[test]
fn callbacks_can_launch_on_many_devices() {
    let client = cpu(8);
    let product = Arc::new(compile(&client, &sharded_product()));
    let (send, receive) = mpsc::channel();
    let upload_all = |value: f32, dims: &[usize; 2]| -> Arc<Vec<PjrtBuffer>> {
        Arc::new(
            (0..8)
                .map(|device| upload(&client, &vec![value; dims[0] * dims[1]], dims, device))
                .collect(),
        )
    };
    let (rows, weights) = (upload_all(1.0, &[1, 64]), upload_all(0.5, &[64, 64]));
    let launch = |product: &PjrtExecutable, rows: &[PjrtBuffer], weights: &[PjrtBuffer]| {
        let args = rows
            .iter()
            .zip(weights)
            .map(|(x, w)| vec![Arg::Borrow(x), Arg::Borrow(w)])
            .collect();
        product.launch(Launch { args }).unwrap().outputs
    };
    for _ in 0..100 {
        let outputs = launch(&product, &rows, &weights);
        let (product, rows, weights, send) =
            (product.clone(), rows.clone(), weights.clone(), send.clone());
        outputs[3][1]
            .ready()
            .unwrap()
            .on_ready(Box::new(move |result| {
                result.unwrap();
                send.send(launch(&product, &rows, &weights)).unwrap();
            }));
    }
    for _ in 0..100 {
        let outputs = receive
            .recv_timeout(MINUTE)
            .expect("every callback launches");
        assert_eq!(read::<f32>(&outputs[7][1]), [64.0 * 32.0 * 8.0]);
    }
}

#[test]
fn client_can_be_dropped_during_launches() {
    for _ in 0..5 {
        let client = cpu(8);
        let product = compile(&client, &sharded_product());
        let rows: Vec<_> = (0..8)
            .map(|device| upload(&client, &[1.0f32; 64], &[1, 64], device))
            .collect();
        let weights: Vec<_> = (0..8)
            .map(|device| upload(&client, &[0.5f32; 64 * 64], &[64, 64], device))
            .collect();
        for _ in 0..20 {
            let args = rows
                .iter()
                .zip(&weights)
                .map(|(x, w)| vec![Arg::Borrow(x), Arg::Borrow(w)])
                .collect();
            drop(product.launch(Launch { args }).unwrap());
        }
    }
}
