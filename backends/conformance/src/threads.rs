//! Concurrent use, and handles dropped in any order on any thread.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use halite_core::{
    AlignedBytes, Arg, Client, DeviceBuffers, DeviceId, HostBytes, Loaded, Pending, Program,
};

use super::{Case, Subject, support::*};

pub(super) const CASES: &[Case] = &[
    case!("threads", eight_threads_launch_while_two_compile)
        .seconds(300)
        .except(HOLDS_ZEROS),
    case!("threads", eight_threads_launch_one_program).except(HOLDS_ZEROS),
    case!("threads", buffers_are_dropped_while_in_use),
    case!("threads", handles_outlive_their_client),
    case!("threads", client_is_dropped_with_queued_work),
    case!("threads", client_is_dropped_with_pending_transfers).except(HOLDS_ZEROS),
    case!("threads", clients_open_repeatedly).seconds(300),
];

/// A program of many different kernels, which takes a second or more to compile.
fn long_to_compile(seed: usize) -> Program {
    let mut code =
        String::from("func.func public @main(%v0: tensor<64x64xf32>) -> tensor<64x64xf32> {\n");
    code += "  %zero = stablehlo.constant dense<0.0> : tensor<f32>\n";
    const STEPS: usize = 60;
    for step in 0..STEPS {
        let next = step + 1;
        let constant = 1.0 + (seed * STEPS + step) as f32 / 1024.0;
        code += &format!(
            "  %c{step} = stablehlo.constant dense<{constant:.8}> : tensor<64x64xf32>
  %m{step} = stablehlo.multiply %v{step}, %c{step} : tensor<64x64xf32>
  %t{step} = stablehlo.tanh %m{step} : tensor<64x64xf32>
  %r{step} = stablehlo.reduce(%t{step} init: %zero) applies stablehlo.maximum across dimensions = [{dim}] : (tensor<64x64xf32>, tensor<f32>) -> tensor<64xf32>
  %b{step} = stablehlo.broadcast_in_dim %r{step}, dims = [{dim}] : (tensor<64xf32>) -> tensor<64x64xf32>
  %v{next} = stablehlo.add %t{step}, %b{step} : tensor<64x64xf32>\n",
            dim = step % 2,
        );
    }
    code += &format!("  return %v{STEPS} : tensor<64x64xf32>\n}}");
    program(
        "long to compile",
        &code,
        &[f32s(&[64, 64])],
        &[f32s(&[64, 64])],
        &[],
    )
}

/// Adds 1 ten times to a donated state, and checks the result.
fn count(client: &Client, add: &Loaded, device: DeviceId, start: f32) -> Checked {
    let one = upload(client, &[1.0f32; 64], &[64], device)?;
    let mut state = upload(client, &[start; 64], &[64], device)?;
    for _ in 0..10 {
        state = launch_for_one(add, vec![Arg::Donate(state), Arg::Borrow(&one)])?;
    }
    same(
        format!("{start} plus ten times 1 on device {}", device.0),
        read::<f32>(&state)?,
        vec![start + 10.0; 64],
    )
}

fn eight_threads_launch_while_two_compile(subject: &Subject) -> Checked {
    const EXECUTE: usize = 8;
    let client = subject.client();
    let devices = client.local_devices();
    let adds: Vec<_> = devices
        .iter()
        .take(EXECUTE)
        .map(|&device| compile_on(client, &add(64, true), &[device]))
        .collect::<Result<_, _>>()?;
    let compiling = [(); 2].map(|()| AtomicBool::new(true));
    on_threads(EXECUTE + compiling.len(), |number| {
        if let Some(seed) = number.checked_sub(EXECUTE) {
            let done = Reset(&compiling[seed]);
            let x = upload(client, &[0.0f32; 64 * 64], &[64, 64], devices[0])?;
            let loaded = compile_on(client, &long_to_compile(seed), &devices[..1])?;
            drop(done);
            let zeros = read::<f32>(&launch_for_one(&loaded, vec![Arg::Borrow(&x)])?)?;
            return same("the result of zeros", zeros, vec![0.0; 64 * 64]);
        }
        let at = number % adds.len();
        for round in 0.. {
            count(
                client,
                &adds[at],
                devices[at],
                (number * 1000 + round % 1000) as f32,
            )?;
            if round >= 20
                && !compiling
                    .iter()
                    .any(|compiling| compiling.load(Ordering::SeqCst))
            {
                break;
            }
            // Leaves processor time to the compilers.
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    })
}

/// Sets a flag to false when dropped, also if the case ends early.
struct Reset<'a>(&'a AtomicBool);

impl Drop for Reset<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

fn eight_threads_launch_one_program(subject: &Subject) -> Checked {
    let client = subject.client();
    let add = compile(client, &add(64, true))?;
    on_threads(8, |number| {
        (0..50)
            .try_for_each(|round| count(client, &add, first(client), (number * 100 + round) as f32))
    })
}

fn buffers_are_dropped_while_in_use(subject: &Subject) -> Checked {
    let client = subject.client();
    let add = compile(client, &add(256, false))?;
    let (sends, receives): (Vec<_>, Vec<_>) =
        (0..4).map(|_| mpsc::channel::<DeviceBuffers>()).unzip();
    thread::scope(|scope| {
        // Dropped at the end of this closure, which ends the threads.
        let sends = sends;
        for receive in receives {
            let spawned = thread::Builder::new()
                .spawn_scoped(scope, move || receive.into_iter().for_each(drop));
            spawned.map_err(no_thread)?;
        }
        let x = upload(client, &[1.0f32; 256], &[256], first(client))?;
        let mut sum = upload(client, &[0.0f32; 256], &[256], first(client))?;
        for round in 0..2000 {
            let next = launch_for_one(&add, vec![Arg::Borrow(&sum), Arg::Borrow(&x)])?;
            // Dropped on another thread, possibly before the launch that reads it begins.
            let _ = sends[round % sends.len()].send(std::mem::replace(&mut sum, next));
        }
        let want = if &*client.platform().name == "null" {
            0.0
        } else {
            2000.0
        };
        same("1 added 2000 times", read::<f32>(&sum)?, vec![want; 256])
    })
}

fn handles_outlive_their_client(subject: &Subject) -> Checked {
    let client = subject.another()?;
    let loaded = compile(&client, &add(4, false))?;
    let a = upload(&client, &[1.0f32; 4], &[4], first(&client))?;
    let zeros = &*client.platform().name == "null";
    drop(client);
    let sum = launch_for_one(&loaded, vec![Arg::Borrow(&a), Arg::Borrow(&a)])?;
    let event = sum.first().ready()?;
    let fetch = sum.first().fetch();
    drop((loaded, a));
    same(
        "1 + 1 of a dropped client",
        read::<f32>(&sum)?,
        vec![if zeros { 0.0 } else { 2.0 }; 4],
    )?;
    drop(sum);
    event.wait()?;
    drop(event);
    same("the bytes fetched", fetch.wait_for(PATIENCE)?.len(), 16)
}

fn client_is_dropped_with_queued_work(subject: &Subject) -> Checked {
    for _ in 0..5 {
        let client = subject.another()?;
        let slow = compile(&client, &slow())?;
        let x = upload(&client, &[0.5f32; 128 * 128], &[128, 128], first(&client))?;
        let steps = upload(&client, &[100i32], &[], first(&client))?;
        for _ in 0..10 {
            let _ = slow.launch(vec![Arg::Borrow(&x), Arg::Borrow(&steps)])?;
        }
    }
    Ok(())
}

/// Fetches, copies and uploads that wait for a slow program or run on their own: the fetches are
/// the only handles left of the client.
fn client_is_dropped_with_pending_transfers(subject: &Subject) -> Checked {
    let ty = f32s(&[128, 128]);
    // Above what a plugin copies during the call.
    let large = f32s(&[1 << 18]);
    let host = Arc::new(noise(&large, 1));
    for round in 0..5 {
        let client = subject.another()?;
        let last = *client.local_devices().last().expect("a client has devices");
        let slow = compile(&client, &slow())?;
        let x = upload(&client, &[0.0f32; 128 * 128], &[128, 128], first(&client))?;
        let steps = upload(&client, &[100i32], &[], first(&client))?;
        let value = launch_for_one(&slow, vec![Arg::Borrow(&x), Arg::Borrow(&steps)])?;
        let copy = value.first().copy_to(last.into())?;
        let (filled, resolve) = Pending::new("fetch");
        let memory = AlignedBytes::zeroed(ty.bytes());
        value.first().fetch_into_then(memory, Box::new(resolve));
        let fetches = [value.first().fetch(), copy.first().fetch()];
        // Nothing waits for these.
        drop((
            value.first().fetch(),
            copy.first().copy_to(first(&client).into())?,
        ));
        drop(client.upload(
            HostBytes::Shared(Arc::new(host.bytes().to_vec())),
            &large,
            last.into(),
        )?);
        let uploaded = client.upload(HostBytes::Borrowed(host.bytes()), &large, last.into())?;
        let sent = uploaded.first().fetch();
        drop((client, slow, x, steps, value, copy, uploaded));
        let zeros = vec![0; ty.bytes()];
        for fetch in fetches {
            let what = format!("round {round}: a fetch that outlives its client");
            same_bytes(what, &fetch.wait_for(PATIENCE)?, &zeros)?;
        }
        same_bytes(
            "a fetch into memory",
            filled.wait_for(PATIENCE)?.as_ref(),
            &zeros,
        )?;
        same_bytes("a fetched upload", &sent.wait_for(PATIENCE)?, host.bytes())?;
    }
    Ok(())
}

fn clients_open_repeatedly(subject: &Subject) -> Checked {
    let shared = Arc::new(subject.clone());
    on_threads(4, |number| {
        for round in 0..4 {
            let client = shared.another()?;
            let add = compile(&client, &add(64, true))?;
            if &*client.platform().name != "null" {
                count(&client, &add, first(&client), (number + round) as f32)?;
            }
        }
        Ok(())
    })
}
