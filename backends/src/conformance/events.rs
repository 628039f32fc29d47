//! Waiting: for what was computed, and for what failed.

use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use halite_core::{Arg, Client, DeviceBuffer, ErrorKind, Loaded};

use super::{Case, Subject, support::*};

pub(super) const CASES: &[Case] = &[
    case!("events", what_is_waited_for_has_happened),
    case!("events", a_launch_returns_before_its_work_is_done).except(&[("null", "its work takes no time")]),
    case!("events", a_callback_runs_once_also_when_event_and_buffer_are_gone),
    case!("events", a_callback_on_an_event_of_the_past_runs),
    case!("events", a_callback_may_launch),
    case!("events", a_wait_has_a_deadline_and_a_name).except(&[("null", "its work takes no time")]),
    case!("events", a_program_that_fails_says_so_to_everyone_who_waits).except(&[("null", "its programs need no memory")]),
];

fn what_is_waited_for_has_happened(subject: &Subject) -> Checked {
    let client = subject.client();
    let add = compile(client, &add(1 << 16, false))?;
    let a = upload(client, &[1.0f32; 1 << 16], &[1 << 16], first(client))?;
    for buffer in
        [upload(client, &[1.0f32; 4], &[4], first(client))?, launch_for_one(&add, vec![Arg::Borrow(&a), Arg::Borrow(&a)])?]
    {
        let event = buffer.ready()?;
        event.wait()?;
        check!(event.is_ready(), "an event is not ready after it was waited for");
        event.wait()?;
        check!(buffer.ready()?.is_ready(), "the next event of a buffer that is ready is not");
        buffer.ready()?.pending("conformance").wait_for(PATIENCE)?;
    }
    Ok(())
}

/// A launch of [`slow`] that takes at least so long, and how long it took.
fn launch_that_takes(client: &Client, slow: &Loaded, time: Duration) -> Checked<(DeviceBuffer, DeviceBuffer, Duration)> {
    let x = upload(client, &[0.5f32; 128 * 128], &[128, 128], first(client))?;
    let mut steps = 64i32;
    loop {
        let count = upload(client, &[steps], &[], first(client))?;
        let started = Instant::now();
        launch_for_one(slow, vec![Arg::Borrow(&x), Arg::Borrow(&count)])?.ready()?.wait()?;
        let took = started.elapsed();
        if took >= time {
            return Ok((x, count, took));
        }
        check!(steps < 1 << 28, "{steps} products of matrices take only {took:?}");
        steps *= 4;
    }
}

fn a_launch_returns_before_its_work_is_done(subject: &Subject) -> Checked {
    let client = subject.client();
    let slow = compile(client, &slow())?;
    let (x, count, took) = launch_that_takes(client, &slow, Duration::from_millis(200))?;
    // A machine that is busy may stop this thread for longer than the work takes: the best of some.
    let mut seen = Vec::new();
    for _ in 0..5 {
        let started = Instant::now();
        let value = launch_for_one(&slow, vec![Arg::Borrow(&x), Arg::Borrow(&count)])?;
        let launched = started.elapsed();
        let ready = value.ready()?.is_ready();
        value.ready()?.wait()?;
        if !ready && launched < started.elapsed() / 4 {
            return Ok(());
        }
        seen.push(launched);
    }
    Err(Stop::Failed(format!("work of {took:?} was waited for by its launches, which took {seen:?}")))
}

fn a_callback_runs_once_also_when_event_and_buffer_are_gone(subject: &Subject) -> Checked {
    let client = subject.client();
    let slow = compile(client, &slow())?;
    let (send, receive) = mpsc::channel();
    {
        let x = upload(client, &[0.5f32; 128 * 128], &[128, 128], first(client))?;
        let count = upload(client, &[200i32], &[], first(client))?;
        let value = launch_for_one(&slow, vec![Arg::Borrow(&x), Arg::Borrow(&count)])?;
        for number in 0..5 {
            let send = send.clone();
            value.ready()?.on_ready(Box::new(move |result| {
                let _ = send.send((number, result.is_ok()));
            }));
        }
    }
    drop((send, slow));
    let mut ran = Vec::new();
    for _ in 0..5 {
        match receive.recv_timeout(PATIENCE) {
            Ok(one) => ran.push(one),
            Err(error) => check!(false, "of 5 callbacks only {ran:?} ran: {error}"),
        }
    }
    ran.sort_unstable();
    same("the callbacks that ran", ran, (0..5).map(|number| (number, true)).collect())?;
    let more = receive.recv_timeout(PATIENCE);
    same("what comes after every callback ran", more, Err(mpsc::RecvTimeoutError::Disconnected))
}

fn a_callback_on_an_event_of_the_past_runs(subject: &Subject) -> Checked {
    let client = subject.client();
    let event = upload(client, &[1.0f32], &[1], first(client))?.ready()?;
    event.wait()?;
    let (send, receive) = mpsc::channel();
    event.on_ready(Box::new(move |result| {
        let _ = send.send(result.is_ok());
    }));
    same("the result it was called with", receive.recv_timeout(PATIENCE), Ok(true))
}

fn a_callback_may_launch(subject: &Subject) -> Checked {
    let client = subject.client();
    let device = first(client);
    let add = Arc::new(compile(client, &add(64, false))?);
    let (send, receive) = mpsc::channel();
    let x = Arc::new(upload(client, &[0.0f32; 64], &[64], device)?);
    for _ in 0..50 {
        let (add, x, send) = (add.clone(), x.clone(), send.clone());
        let sum = launch_for_one(&add, vec![Arg::Borrow(&x), Arg::Borrow(&x)])?;
        let event = sum.ready()?;
        event.on_ready(Box::new(move |_| {
            let _ = send.send(launch_for_one(&add, vec![Arg::Borrow(&sum), Arg::Borrow(&x)]));
        }));
    }
    for _ in 0..50 {
        match receive.recv_timeout(PATIENCE) {
            Ok(sum) => same("a sum launched by a callback", read::<f32>(&sum?)?, vec![0.0; 64])?,
            Err(error) => check!(false, "a launch in a callback did not return: {error}"),
        }
    }
    Ok(())
}

fn a_wait_has_a_deadline_and_a_name(subject: &Subject) -> Checked {
    let client = subject.client();
    let slow = compile(client, &slow())?;
    let (x, count, _) = launch_that_takes(client, &slow, Duration::from_millis(200))?;
    let value = launch_for_one(&slow, vec![Arg::Borrow(&x), Arg::Borrow(&count)])?;
    let late = value.ready()?.pending("step 7").wait_for(Duration::from_millis(1));
    refused("a wait of 1 ms for work of 200", late, ErrorKind::DeadlineExceeded, &["step 7"])?;
    value.ready()?.wait()?;
    Ok(())
}

/// Its result is larger than any address space, so that it fails everywhere, and no machine tries to find the memory.
fn too_large() -> halite_core::Program {
    let code = "module @too_large {
  func.func public @main(%x: tensor<f32>) -> tensor<70368744177664xf32> {
    %0 = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<70368744177664xf32>
    return %0 : tensor<70368744177664xf32>
  }
}";
    program("too large", code, &[f32s(&[])], &[f32s(&[1 << 46])], &[])
}

fn a_program_that_fails_says_so_to_everyone_who_waits(subject: &Subject) -> Checked {
    let client = subject.client();
    let x = upload(client, &[1.0f32], &[], first(client))?;
    // Where the compiler or the launch refuses it, nobody has to wait.
    let result = compile(client, &too_large()).and_then(|loaded| launch_for_one(&loaded, vec![Arg::Borrow(&x)]));
    match result {
        Err(error) => check!(error.kind() == ErrorKind::OutOfMemory, "the error is of kind {:?}: {error}", error.kind()),
        Ok(buffer) => {
            let event = buffer.ready()?;
            for wait in ["first", "second"] {
                check!(event.wait().is_err(), "the {wait} wait for 256 TiB says that they are there");
                check!(event.is_ready(), "an event that failed is not ready");
            }
            let (send, receive) = mpsc::channel();
            event.on_ready(Box::new(move |result| {
                let _ = send.send(result.is_err());
            }));
            same("whether a callback is told of the failure", receive.recv_timeout(PATIENCE), Ok(true))?;
        }
    }
    // And nothing else is harmed.
    let add = compile(client, &add(4, false))?;
    let a = upload(client, &[1.0f32; 4], &[4], first(client))?;
    same("1 + 1 afterwards", read::<f32>(&launch_for_one(&add, vec![Arg::Borrow(&a), Arg::Borrow(&a)])?)?, vec![2.0; 4])
}
