//! Variables of the environment, in processes of their own.

use std::{
    env,
    process::{Command, Output},
};

use halite::prelude::*;
use halite_core::Sharding;

const CHILD: &str = "HALITE_TEST_IS_CHILD";

/// In the child: a program that runs for long after the call that queues it.
#[test]
fn child_launches_a_long_program() {
    if env::var_os(CHILD).is_none() {
        return;
    }
    let client = Accelerator::cpu().open().unwrap();
    let device = Sharding::single(client.local_devices()[0]);
    let limit = Array::upload(&client, &HostArray::scalar(2e5f32), &device).unwrap();
    let long = Jit::<Empty<()>, Leaf<()>, Leaf<()>>::function(&client, |cx, Leaf(limit)| {
        let zero = Leaf(cx.scalar(0.0, DType::F32));
        let start = (zero, Leaf(cx.arange(1000, DType::F32)));
        let (_, Leaf(x)) = cx.while_loop(
            start,
            |(count, _)| count.0.lt(limit),
            |(count, x)| (Leaf(count.0 + 1.0), Leaf(x.0.sin())),
        );
        // XLA's CPU plugin runs programs of fewer than a thousand operations in the call.
        Leaf((0..1200).fold(x, |x, i| (x + i as f32).sin()))
    });
    let result = long.run(&limit).unwrap();
    println!(
        "done at return: {}",
        result.shards().first().ready().unwrap().is_ready()
    );
    result.wait().unwrap();
}

/// Runs [`child_launches_a_long_program`] in a process of its own.
fn child(sync: &str) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            "environment::child_launches_a_long_program",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .env("HALITE_SYNC", sync)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    assert!(status.success(), "{stderr}");
    String::from_utf8_lossy(&stdout).into_owned() + &stderr
}

#[test]
fn launches_wait_for_the_device_with_halite_sync() {
    let printed = child("1");
    assert!(printed.contains("done at return: true"), "{printed}");
}

#[test]
fn unknown_value_of_halite_sync_is_warned_of() {
    let printed = child("yes");
    assert!(
        printed.contains("HALITE_SYNC=`yes` is ignored; expected 0 or 1"),
        "{printed}"
    );
}
