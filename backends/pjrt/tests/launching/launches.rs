//! Arguments, donation by address, and launches over several devices.

use std::{
    sync::{Condvar, Mutex},
    time::Duration,
};

use halite_core::{
    Arg, Backend, Buffer, CompileOptions, DeviceId, Error, ErrorKind, Event, Executable, Launch,
    MemoryKind, Placement, custom_call,
};
use halite_pjrt::{Pjrt, PjrtBuffer, PjrtExecutable};

use crate::common::*;

#[test]
fn donated_buffer_gives_its_memory_to_the_result() {
    let client = cpu(1);
    let add = compile(&client, &add(1000, true));
    let one = upload(&client, &[1.0f32; 1000], &[1000], 0);
    let mut state = upload(&client, &[0.0f32; 1000], &[1000], 0);
    let address = state.device_address().unwrap();
    for _ in 0..5 {
        state = run(&add, vec![Arg::Donate(state), Arg::Borrow(&one)])
            .unwrap()
            .remove(0);
        assert_eq!(state.device_address().unwrap(), address);
    }
    assert_eq!(read::<f32>(&state), [5.0; 1000]);
}

#[test]
fn borrowed_buffer_survives_undeclared_donation() {
    let client = cpu(1);
    let mut program = add(4, true);
    program.signature.donated.clear();
    let add = compile(&client, &program);
    let (a, b) = (
        upload(&client, &[1.0f32; 4], &[4], 0),
        upload(&client, &[2.0f32; 4], &[4], 0),
    );
    run(&add, vec![Arg::Borrow(&a), Arg::Borrow(&b)]).unwrap();
    assert_eq!(read::<f32>(&a), [1.0; 4]);
}

/// `x [4096, 16] -> (x x^T) x`, with 64 MiB of temporary memory. `meet` is a statement before the
/// second product.
fn large(client: &Pjrt, device: u32, meet: &str) -> PjrtExecutable {
    let code = format!(
        "module @large {{
  func.func public @main(%x: tensor<4096x16xf32>) -> tensor<4096x16xf32> {{
    %y = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1]
      : (tensor<4096x16xf32>, tensor<4096x16xf32>) -> tensor<4096x4096xf32>
    {meet}
    %z = stablehlo.dot_general %y, %x, contracting_dims = [1] x [0]
      : (tensor<4096x4096xf32>, tensor<4096x16xf32>) -> tensor<4096x16xf32>
    return %z : tensor<4096x16xf32>
  }}
}}"
    );
    let types = [f32s(&[4096, 16])];
    let options = CompileOptions {
        devices: vec![DeviceId(device)],
        ..CompileOptions::default()
    };
    let large = client
        .compile(&program(&code, &types, &types, &[]), &options)
        .unwrap();
    assert!(large.memory().unwrap().temporary >= 64 << 20);
    large
}

/// Sums of 16 products of halves, and of 4096 of these.
static RESULT: [f32; 4096 * 16] = [4.0 * 0.5 * 4096.0; 4096 * 16];

#[test]
fn large_launches_run_one_by_one() {
    let client = cpu(1);
    let large = large(&client, 0, "");
    let x = upload(&client, &[0.5f32; 4096 * 16], &[4096, 16], 0);
    let launch = || run(&large, vec![Arg::Borrow(&x)]).unwrap().remove(0);
    let mut before = launch();
    for _ in 0..3 {
        let next = launch();
        assert!(before.ready().unwrap().is_ready());
        before = next;
    }
    assert_eq!(read::<f32>(&before), RESULT);
}

#[test]
fn large_launches_on_two_devices_run_at_the_same_time() {
    const DEADLINE: Duration = Duration::from_secs(60);
    static ARRIVED: (Mutex<u32>, Condvar) = (Mutex::new(0), Condvar::new());
    custom_call::register("halite.tests.meet", |_| {
        let mut arrived = ARRIVED.0.lock().unwrap();
        *arrived += 1;
        ARRIVED.1.notify_all();
        let is_alone = |arrived: &mut u32| *arrived < 2;
        let waited = ARRIVED.1.wait_timeout_while(arrived, DEADLINE, is_alone);
        if waited.unwrap().1.timed_out() {
            return Err(Error::invalid("meet", "the other program does not run"));
        }
        Ok(())
    })
    .unwrap();
    let meet = "stablehlo.custom_call @halite.tests.meet() {
      api_version = 4 : i32, has_side_effect = true
    } : () -> ()";
    let client = cpu(2);
    let launch = |device| {
        let large = large(&client, device, meet);
        let x = upload(&client, &[0.5f32; 4096 * 16], &[4096, 16], device);
        run(&large, vec![Arg::Borrow(&x)]).unwrap().remove(0)
    };
    for z in [launch(0), launch(1)] {
        assert_eq!(read::<f32>(&z), RESULT);
    }
}

/// Checks that a launch with these arguments is refused, and that the program still runs after it.
#[track_caller]
fn check_refused(
    client: &Pjrt,
    add: &PjrtExecutable,
    args: Vec<Arg<'_, PjrtBuffer>>,
    expected: &str,
) {
    let error = run(add, args).unwrap_err();
    assert_eq!(
        (error.kind(), error.op(), error.platform()),
        (ErrorKind::InvalidArgument, "launch", Some("cpu"))
    );
    assert_eq!(error.message(), expected);
    let one = upload(client, &[1.0f32; 4], &[4], 0);
    let two = run(add, vec![Arg::Borrow(&one), Arg::Borrow(&one)]).unwrap();
    assert_eq!(read::<f32>(&two[0]), [2.0; 4]);
}

#[test]
fn wrong_numbers_of_arguments_are_refused() {
    let client = cpu(1);
    let add = compile(&client, &add(4, true));
    let one = upload(&client, &[1.0f32; 4], &[4], 0);
    for count in [0, 1, 3] {
        let args = (0..count).map(|_| Arg::Borrow(&one)).collect();
        let expected =
            format!("`test`: got [{count}] arguments per device, expected 2 for each of 1 devices");
        check_refused(&client, &add, args, &expected);
    }
}

#[test]
fn wrong_arguments_are_refused_by_name() {
    let client = cpu(2);
    let other = cpu(1);
    let add = compile(&client, &add(4, true));
    let good = upload(&client, &[1.0f32; 4], &[4], 0);
    let pinned = Placement {
        device: DeviceId(0),
        memory: MemoryKind::PinnedHost,
    };
    for (wrong, expected) in [
        // Same size in bytes: the plugin would take the bits as they are.
        (
            upload(&client, &[1i32; 4], &[4], 0),
            "is s32[4], expected f32[4]",
        ),
        (
            upload(&client, &[1.0f32; 4], &[2, 2], 0),
            "is f32[2, 2], expected f32[4]",
        ),
        (
            upload(&client, &[1.0f32; 2], &[2], 0),
            "is f32[2], expected f32[4]",
        ),
        (
            upload(&client, &[1.0f32; 4], &[4], 1),
            "(f32[4]) is in Device memory of device 1, expected Device of 0",
        ),
        (
            good.copy_to(pinned).unwrap(),
            "(f32[4]) is in PinnedHost memory of device 0, expected Device of 0",
        ),
        (
            upload(&other, &[1.0f32; 4], &[4], 0),
            "is a buffer of another client; copy it to this one, as by `Array::reshard`",
        ),
    ] {
        for index in 0..2 {
            let mut args = vec![Arg::Borrow(&good), Arg::Borrow(&good)];
            args[index] = Arg::Borrow(&wrong);
            let expected = format!("`test`: argument {index} for device 0 {expected}");
            check_refused(&client, &add, args, &expected);
        }
    }
}

#[test]
fn donation_of_another_argument_is_refused() {
    let client = cpu(1);
    let add = compile(&client, &add(4, true));
    let good = || upload(&client, &[1.0f32; 4], &[4], 0);
    let args = vec![Arg::Donate(good()), Arg::Donate(good())];
    let expected =
        "`test`: argument 1 for device 0 (f32[4]) cannot be donated; the program donates only [0]";
    check_refused(&client, &add, args, expected);
}

#[test]
fn calls_are_timed_on_request() {
    let client = cpu(1);
    let sum = compile(&client, &add(4, false));
    let x = upload(&client, &[1.0f32; 4], &[4], 0);
    let launches = || {
        client
            .plugin()
            .call_times()
            .into_iter()
            .find(|call| call.function == "PJRT_LoadedExecutable_Execute")
    };
    client.plugin().time_calls();
    let before = launches().map_or(0, |call| call.count);
    run(&sum, vec![Arg::Borrow(&x), Arg::Borrow(&x)]).unwrap();
    let after = launches().unwrap();
    // Other tests of this process launch too.
    assert!(
        after.count > before && !after.total.is_zero(),
        "{before} launches before, then {after:?}"
    );
}

#[test]
fn sharded_program_runs_on_eight_devices() {
    let client = cpu(8);
    let double = compile(&client, &sharded(8));
    assert_eq!(double.devices(), (0..8).map(DeviceId).collect::<Vec<_>>());
    assert_eq!(double.program().parameter_shardings().unwrap().len(), 1);
    let mut shards: Vec<_> = (0..8)
        .map(|device| upload(&client, &[device as f32; 8], &[2, 4], device))
        .collect();
    for round in 0..3 {
        let addresses: Vec<_> = shards
            .iter()
            .map(|shard| shard.device_address().unwrap())
            .collect();
        let launched = double
            .launch(Launch {
                args: shards
                    .into_iter()
                    .map(|shard| vec![Arg::Donate(shard)])
                    .collect(),
            })
            .unwrap();
        let scale = f32::powi(2.0, round);
        shards = Vec::new();
        for (device, mut outputs) in launched.outputs.into_iter().enumerate() {
            assert_eq!(outputs[0].placement(), DeviceId(device as u32).into());
            assert_eq!(outputs[0].device_address().unwrap(), addresses[device]);
            assert_eq!(read::<f32>(&outputs[0]), [2.0 * scale * device as f32; 8]);
            assert_eq!(read::<f32>(&outputs[1]), [scale * 8.0 * 28.0]);
            shards.push(outputs.remove(0));
        }
    }
}

#[test]
fn wrong_arguments_of_one_device_are_refused() {
    let client = cpu(8);
    let double = compile(&client, &sharded(8));
    let good = |device: u32| upload(&client, &[1.0f32; 8], &[2, 4], device);
    let launch = |shards: &[PjrtBuffer]| {
        double
            .launch(Launch {
                args: shards
                    .iter()
                    .map(|shard| vec![Arg::Borrow(shard)])
                    .collect(),
            })
            .unwrap_err()
    };
    let all = |at: u32, wrong: PjrtBuffer| {
        let mut shards: Vec<_> = (0..8).map(good).collect();
        shards[at as usize] = wrong;
        shards
    };
    assert_eq!(
        launch(&all(7, upload(&client, &[1.0f32; 4], &[1, 4], 7))).message(),
        "`test`: argument 0 for device 7 is f32[1, 4], expected f32[2, 4]"
    );
    assert_eq!(
        launch(&all(0, upload(&client, &[1i32; 8], &[2, 4], 0))).message(),
        "`test`: argument 0 for device 0 is s32[2, 4], expected f32[2, 4]"
    );
    assert_eq!(
        launch(&all(3, good(4))).message(),
        "`test`: argument 0 for device 3 (f32[2, 4]) is in Device memory of device 4, expected Device \
         of 3"
    );
    let mut deleted = good(5);
    deleted.delete().unwrap();
    assert_eq!(
        launch(&all(5, deleted)).message(),
        "`test`: argument 0 for device 5 (f32[2, 4]) was deleted"
    );
    assert_eq!(
        launch(&[good(0)]).message(),
        "`test`: got [1] arguments per device, expected 1 for each of 8 devices"
    );
}
