//! Waiting: for what was computed, and for what failed.

use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use halite_core::{Arg, Client, DeviceBuffer, ErrorKind, Loaded, Program};

use super::{Case, Subject, support::*};

pub(super) const CASES: &[Case] = &[
    case!("events", what_is_waited_for_has_happened),
    case!("events", a_launch_returns_before_its_work_is_done)
        .except(&[("null", "its work takes no time")]),
    case!(
        "events",
        a_callback_runs_once_also_when_event_and_buffer_are_gone
    ),
    case!("events", a_callback_on_an_event_of_the_past_runs),
    case!("events", a_callback_may_launch),
    case!("events", a_wait_has_a_deadline_and_a_name).except(&[("null", "its work takes no time")]),
    case!("events", a_program_that_fails_says_so_to_everyone_who_waits)
        .except(&[("null", "its programs need no memory")]),
];

fn what_is_waited_for_has_happened(subject: &Subject) -> Checked {
    let client = subject.client();
    let add = compile(client, &add(1 << 16, false))?;
    let a = upload(client, &[1.0f32; 1 << 16], &[1 << 16], first(client))?;
    for buffer in [
        upload(client, &[1.0f32; 4], &[4], first(client))?,
        launch_for_one(&add, vec![Arg::Borrow(&a), Arg::Borrow(&a)])?,
    ] {
        let event = buffer.ready()?;
        event.wait()?;
        check!(
            event.is_ready(),
            "an event is not ready after it was waited for"
        );
        event.wait()?;
        check!(
            buffer.ready()?.is_ready(),
            "the next event of a buffer that is ready is not"
        );
        buffer.ready()?.pending("conformance").wait_for(PATIENCE)?;
    }
    Ok(())
}

/// A launch of [`slow`] that takes at least so long, and how long it took.
fn launch_that_takes(
    client: &Client,
    slow: &Loaded,
    time: Duration,
) -> Checked<(DeviceBuffer, DeviceBuffer, Duration)> {
    let x = upload(client, &[0.5f32; 128 * 128], &[128, 128], first(client))?;
    let mut steps = 64i32;
    loop {
        let count = upload(client, &[steps], &[], first(client))?;
        let started = Instant::now();
        launch_for_one(slow, vec![Arg::Borrow(&x), Arg::Borrow(&count)])?
            .ready()?
            .wait()?;
        let took = started.elapsed();
        if took >= time {
            return Ok((x, count, took));
        }
        check!(
            steps < 1 << 28,
            "{steps} products of matrices take only {took:?}"
        );
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
    Err(Stop::Failed(format!(
        "work of {took:?} was waited for by its launches, which took {seen:?}"
    )))
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
    same(
        "the callbacks that ran",
        ran,
        (0..5).map(|number| (number, true)).collect(),
    )?;
    let more = receive.recv_timeout(PATIENCE);
    same(
        "what comes after every callback ran",
        more,
        Err(mpsc::RecvTimeoutError::Disconnected),
    )
}

fn a_callback_on_an_event_of_the_past_runs(subject: &Subject) -> Checked {
    let client = subject.client();
    let event = upload(client, &[1.0f32], &[1], first(client))?.ready()?;
    event.wait()?;
    let (send, receive) = mpsc::channel();
    event.on_ready(Box::new(move |result| {
        let _ = send.send(result.is_ok());
    }));
    same(
        "the result it was called with",
        receive.recv_timeout(PATIENCE),
        Ok(true),
    )
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
            let _ = send.send(launch_for_one(
                &add,
                vec![Arg::Borrow(&sum), Arg::Borrow(&x)],
            ));
        }));
    }
    for _ in 0..50 {
        match receive.recv_timeout(PATIENCE) {
            Ok(sum) => same(
                "a sum launched by a callback",
                read::<f32>(&sum?)?,
                vec![0.0; 64],
            )?,
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
    let late = value
        .ready()?
        .pending("step 7")
        .wait_for(Duration::from_millis(1));
    refused(
        "a wait of 1 ms for work of 200",
        late,
        ErrorKind::DeadlineExceeded,
        &["step 7"],
    )?;
    value.ready()?.wait()?;
    Ok(())
}

/// `x [128, 128]` to 256 TiB: more than any address space, so that it fails everywhere and no
/// machine looks for the memory. And what uses a little of that.
fn too_large() -> [Program; 2] {
    let huge = "tensor<70368744177664xf32>";
    let make = format!(
        "module @too_large {{
  func.func public @main(%x: tensor<128x128xf32>) -> {huge} {{
    %0 = stablehlo.slice %x [0:1, 0:1] : (tensor<128x128xf32>) -> tensor<1x1xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x1xf32>) -> tensor<f32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> {huge}
    return %2 : {huge}
  }}
}}"
    );
    let take = format!(
        "module @take {{
  func.func public @main(%x: {huge}) -> tensor<4xf32> {{
    %0 = stablehlo.slice %x [0:4] : ({huge}) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }}
}}"
    );
    let huge = f32s(&[1 << 46]);
    [
        program(
            "too large",
            &make,
            &[f32s(&[128, 128])],
            std::slice::from_ref(&huge),
            &[],
        ),
        program("take", &take, &[huge], &[f32s(&[4])], &[]),
    ]
}

fn a_program_that_fails_says_so_to_everyone_who_waits(subject: &Subject) -> Checked {
    let client = subject.client();
    let slow = compile(client, &slow())?;
    let (x, count, _) = launch_that_takes(client, &slow, Duration::from_millis(200))?;
    // Its argument is not there yet when it is launched, so the failure comes later, where the
    // backend allocates late.
    let late = launch_for_one(&slow, vec![Arg::Borrow(&x), Arg::Borrow(&count)])?;
    let [large, take] = too_large();
    let failed = compile(client, &large)
        .and_then(|loaded| launch_for_one(&loaded, vec![Arg::Borrow(&late)]));
    match failed {
        // Where the compiler or the launch refuses it, nobody has to wait.
        Err(error) => check!(
            error.kind() == ErrorKind::OutOfMemory,
            "the error is of kind {:?}: {error}",
            error.kind()
        ),
        Ok(failed) => {
            check_failed(&failed)?;
            // What is made of it fails too, at once or later.
            if let Ok(made) = compile(client, &take)
                .and_then(|take| launch_for_one(&take, vec![Arg::Borrow(&failed)]))
            {
                check_failed(&made)?;
                check!(
                    read_bytes(&made).is_err(),
                    "what is made of 256 TiB that are not there is read"
                );
                check!(
                    made.fetch().wait_for(PATIENCE).is_err(),
                    "what is made of 256 TiB that are not there is fetched"
                );
            }
        }
    }
    // And nothing else is harmed.
    late.ready()?.wait()?;
    let add = compile(client, &add(4, false))?;
    let a = upload(client, &[1.0f32; 4], &[4], first(client))?;
    same(
        "1 + 1 afterwards",
        read::<f32>(&launch_for_one(
            &add,
            vec![Arg::Borrow(&a), Arg::Borrow(&a)],
        )?)?,
        vec![2.0; 4],
    )
}

/// Every way to wait for a buffer tells that it failed, the second time too.
fn check_failed(buffer: &DeviceBuffer) -> Checked {
    let event = buffer.ready()?;
    for wait in ["first", "second"] {
        check!(
            event.wait().is_err(),
            "the {wait} wait for {buffer:?} says that it is there"
        );
        check!(event.is_ready(), "an event that failed is not ready");
    }
    check!(
        buffer.ready()?.wait().is_err(),
        "a wait for another event of {buffer:?} says that it is there"
    );
    let (send, receive) = mpsc::channel();
    event.on_ready(Box::new(move |result| {
        let _ = send.send(result.is_err());
    }));
    same(
        "whether a callback is told of the failure",
        receive.recv_timeout(PATIENCE),
        Ok(true),
    )
}
