//! Completion events: waits, callbacks and errors.

use std::{
    fmt::Write as _,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use halite_core::{Arg, Client, DeviceBuffers, ErrorKind, Loaded, Program};

use super::{Case, Subject, support::*};

pub(super) const CASES: &[Case] = &[
    case!("events", wait_returns_after_completion),
    case!("events", launch_is_asynchronous).except(&[("null", "its work takes no time")]),
    case!("events", callback_runs_once_after_its_event_is_dropped),
    case!("events", callback_on_completed_event_runs),
    case!("events", callback_may_launch),
    case!("events", wait_times_out_with_its_name).except(&[("null", "its work takes no time")]),
    case!("events", failed_program_is_reported_to_every_wait)
        .except(&[("null", "its programs need no memory")]),
];

fn wait_returns_after_completion(subject: &Subject) -> Checked {
    let client = subject.client();
    let add = compile(client, &add(1 << 16, false))?;
    let a = upload(client, &[1.0f32; 1 << 16], &[1 << 16], first(client))?;
    for buffer in [
        upload(client, &[1.0f32; 4], &[4], first(client))?,
        launch_for_one(&add, vec![Arg::Borrow(&a), Arg::Borrow(&a)])?,
    ] {
        let event = buffer.first().ready()?;
        event.wait()?;
        check!(event.is_ready(), "an event is not ready after a wait");
        event.wait()?;
        check!(
            buffer.first().ready()?.is_ready(),
            "another event of a ready buffer is not ready"
        );
        buffer
            .first()
            .ready()?
            .pending("conformance")
            .wait_for(PATIENCE)?;
    }
    Ok(())
}

/// Products of `n` x `n` matrices in turn. Not a loop: where the number of its iterations is an
/// argument, XLA's CUDA plugin reads the condition back, and the launch waits for all but the last.
fn chain(n: usize) -> Program {
    const PRODUCTS: usize = 64;
    let ty = format!("tensor<{n}x{n}xf32>");
    let mut body = String::new();
    for i in 0..PRODUCTS {
        let next = i + 1;
        _ = write!(
            body,
            "
    %p{i} = stablehlo.dot_general %v{i}, %v{i}, contracting_dims = [1] x [0] : ({ty}, {ty}) -> {ty}
    %s{i} = stablehlo.multiply %p{i}, %scale : {ty}
    %v{next} = stablehlo.tanh %s{i} : {ty}"
        );
    }
    let scale = 1.0 / n as f32;
    let code = format!(
        "module @chain {{
  func.func public @main(%v0: {ty}) -> {ty} {{
    %scale = stablehlo.constant dense<{scale:e}> : {ty}{body}
    return %v{PRODUCTS} : {ty}
  }}
}}"
    );
    program("chain", &code, &[f32s(&[n, n])], &[f32s(&[n, n])], &[])
}

/// A program, its argument of `n` x `n`, and the time it takes.
struct Work {
    program: Loaded,
    x: DeviceBuffers,
    n: usize,
    took: Duration,
}

impl Work {
    fn launch(&self) -> halite_core::Result<DeviceBuffers> {
        launch_for_one(&self.program, vec![Arg::Borrow(&self.x)])
    }
}

/// Work that takes at least `time`.
fn work_that_takes(client: &Client, time: Duration) -> Checked<Work> {
    const LARGEST: usize = 1 << 14;
    let mut n = 128;
    loop {
        let mut work = Work {
            program: compile(client, &chain(n))?,
            x: upload(client, &vec![0.5f32; n * n], &[n, n], first(client))?,
            n,
            took: Duration::MAX,
        };
        // The first launch may load code.
        for _ in 0..2 {
            let started = Instant::now();
            work.launch()?.first().ready()?.wait()?;
            work.took = work.took.min(started.elapsed());
        }
        if work.took >= time {
            return Ok(work);
        }
        check!(
            n < LARGEST,
            "products of {n} x {n} take only {:?}",
            work.took
        );
        // Time grows with the third power, and compiling each size takes a while, too.
        let missing = time.as_secs_f64() / work.took.as_secs_f64();
        n = (n as f64 * missing.cbrt().clamp(1.1, 8.0)) as usize;
        n = n.next_power_of_two().min(LARGEST);
    }
}

fn launch_is_asynchronous(subject: &Subject) -> Checked {
    let client = subject.client();
    let work = work_that_takes(client, Duration::from_millis(200))?;
    // A busy machine may stop this thread for longer than the work takes, hence the best of five.
    let mut seen = Vec::new();
    for _ in 0..5 {
        let started = Instant::now();
        let value = work.launch()?;
        let launched = started.elapsed();
        let ready = value.first().ready()?.is_ready();
        value.first().ready()?.wait()?;
        if !ready && launched < started.elapsed() / 4 {
            return Ok(());
        }
        seen.push(launched);
    }
    Err(Stop::Failed(format!(
        "launches of work of {:?} waited for it: they took {seen:?}",
        work.took
    )))
}

fn callback_runs_once_after_its_event_is_dropped(subject: &Subject) -> Checked {
    let client = subject.client();
    let slow = compile(client, &slow())?;
    let (send, receive) = mpsc::channel();
    {
        let x = upload(client, &[0.5f32; 128 * 128], &[128, 128], first(client))?;
        let count = upload(client, &[200i32], &[], first(client))?;
        let value = launch_for_one(&slow, vec![Arg::Borrow(&x), Arg::Borrow(&count)])?;
        for number in 0..5 {
            let send = send.clone();
            value.first().ready()?.on_ready(Box::new(move |result| {
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
        "a message after the last callback",
        more,
        Err(mpsc::RecvTimeoutError::Disconnected),
    )
}

fn callback_on_completed_event_runs(subject: &Subject) -> Checked {
    let client = subject.client();
    let event = upload(client, &[1.0f32], &[1], first(client))?
        .first()
        .ready()?;
    event.wait()?;
    let (send, receive) = mpsc::channel();
    event.on_ready(Box::new(move |result| {
        let _ = send.send(result.is_ok());
    }));
    same(
        "the result passed to the callback",
        receive.recv_timeout(PATIENCE),
        Ok(true),
    )
}

fn callback_may_launch(subject: &Subject) -> Checked {
    let client = subject.client();
    let device = first(client);
    let add = Arc::new(compile(client, &add(64, false))?);
    let (send, receive) = mpsc::channel();
    let x = Arc::new(upload(client, &[0.0f32; 64], &[64], device)?);
    for _ in 0..50 {
        let (add, x, send) = (add.clone(), x.clone(), send.clone());
        let sum = launch_for_one(&add, vec![Arg::Borrow(&x), Arg::Borrow(&x)])?;
        let event = sum.first().ready()?;
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

fn wait_times_out_with_its_name(subject: &Subject) -> Checked {
    let client = subject.client();
    let work = work_that_takes(client, Duration::from_millis(200))?;
    let value = work.launch()?;
    let late = value
        .first()
        .ready()?
        .pending("step 7")
        .wait_for(Duration::from_millis(1));
    expect_error(
        "a wait of 1 ms for work of 200",
        late,
        ErrorKind::DeadlineExceeded,
        &["step 7"],
    )?;
    value.first().ready()?.wait()?;
    Ok(())
}

/// A program that needs 256 TiB, more than any address space, so that it fails on every machine at
/// once, with an argument of `n` x `n`; and a program that uses a part of its result.
fn too_large(n: usize) -> [Program; 2] {
    let huge = "tensor<70368744177664xf32>";
    let make = format!(
        "module @too_large {{
  func.func public @main(%x: tensor<{n}x{n}xf32>) -> {huge} {{
    %0 = stablehlo.slice %x [0:1, 0:1] : (tensor<{n}x{n}xf32>) -> tensor<1x1xf32>
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
            &[f32s(&[n, n])],
            std::slice::from_ref(&huge),
            &[],
        ),
        program("take", &take, &[huge], &[f32s(&[4])], &[]),
    ]
}

fn failed_program_is_reported_to_every_wait(subject: &Subject) -> Checked {
    let client = subject.client();
    let work = work_that_takes(client, Duration::from_millis(200))?;
    // Its argument is not computed yet when it is launched, so a backend that allocates late fails
    // late.
    let late = work.launch()?;
    let [large, take] = too_large(work.n);
    let failed = compile(client, &large)
        .and_then(|loaded| launch_for_one(&loaded, vec![Arg::Borrow(&late)]));
    match failed {
        Err(error) if error.kind() == ErrorKind::Unsupported => return Err(error.into()),
        // The compiler or the launch rejects it: no wait is needed.
        Err(error) => check!(
            error.kind() == ErrorKind::OutOfMemory,
            "the error is of kind {:?}: {error}",
            error.kind()
        ),
        Ok(failed) => {
            check_failed(&failed)?;
            // A program that uses the failed result fails, too, at once or later.
            if let Ok(dependent) = compile(client, &take)
                .and_then(|take| launch_for_one(&take, vec![Arg::Borrow(&failed)]))
            {
                check_failed(&dependent)?;
                check!(
                    read_bytes(&dependent).is_err(),
                    "the result of a failed argument is read"
                );
                check!(
                    dependent.first().fetch().wait_for(PATIENCE).is_err(),
                    "the result of a failed argument is fetched"
                );
            }
        }
    }
    // Nothing else is affected.
    late.first().ready()?.wait()?;
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

/// Checks that every way to wait for a buffer reports its failure, repeatedly.
fn check_failed(data: &DeviceBuffers) -> Checked {
    let buffer = data.first();
    let event = buffer.ready()?;
    for wait in ["first", "second"] {
        check!(
            event.wait().is_err(),
            "the {wait} wait for {buffer:?} succeeds"
        );
        check!(event.is_ready(), "an event that failed is not ready");
    }
    check!(
        buffer.ready()?.wait().is_err(),
        "a wait for another event of {buffer:?} succeeds"
    );
    let (send, receive) = mpsc::channel();
    event.on_ready(Box::new(move |result| {
        let _ = send.send(result.is_err());
    }));
    same(
        "whether the callback gets an error",
        receive.recv_timeout(PATIENCE),
        Ok(true),
    )
}
