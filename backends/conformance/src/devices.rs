//! Programs on several devices: SPMD partitions, replicas and collectives.

mod collectives;

use halite_core::{
    Arg, Client, CompileOptions, DeviceBuffers, DeviceId, Element, ErrorKind, Loaded, Program,
    Result,
};

use self::collectives::{
    every_collective_works_between_replicas, two_threads_queue_launches_with_collectives,
};
use super::{Case, Subject, support::*};

const NO_PLACEMENT: &[(&str, &str)] = &[(
    "null",
    "its buffers have no placement, so it checks types only",
)];

pub(super) const CASES: &[Case] = &[
    case!("devices", every_device_runs_programs).except(HOLDS_ZEROS),
    case!("devices", sharded_step_sums_gradients)
        .devices(2)
        .except(HOLDS_ZEROS),
    case!("devices", shards_follow_the_device_order)
        .devices(2)
        .except(HOLDS_ZEROS),
    case!("devices", shards_in_wrong_order_are_rejected)
        .devices(2)
        .except(NO_PLACEMENT),
    case!("devices", wrong_argument_of_one_device_is_rejected).devices(2),
    case!("devices", sharded_state_is_donated)
        .devices(2)
        .except(HOLDS_ZEROS),
    case!("devices", every_collective_works_between_replicas)
        .devices(2)
        .except(HOLDS_ZEROS),
    case!("devices", devices_of_other_processes_are_rejected),
    case!("devices", program_runs_on_devices_of_all_processes),
    case!("devices", two_threads_queue_launches_with_collectives)
        .devices(2)
        .except(HOLDS_ZEROS),
];

/// At most eight devices: enough for every case, and quick.
fn some(client: &Client) -> Vec<DeviceId> {
    client.local_devices().into_iter().take(8).collect()
}

fn every_device_runs_programs(subject: &Subject) -> Checked {
    let client = subject.client();
    let devices = client.local_devices();
    check!(
        devices.is_sorted() && devices.windows(2).all(|pair| pair[0] != pair[1]),
        "the ids are {devices:?}"
    );
    let all: Vec<_> = client.devices().iter().map(|device| device.id()).collect();
    check!(
        devices.iter().all(|id| all.contains(id)),
        "the local devices {devices:?} are not among all devices, {all:?}"
    );
    for device in devices {
        let add = compile_on(client, &add(4, false), &[device])?;
        let a = upload(client, &[device.0 as f32; 4], &[4], device)?;
        let sum = launch_for_one(&add, vec![Arg::Borrow(&a), Arg::Borrow(&a)])?;
        same(
            "the placement of a result",
            sum.first().placement(),
            device.into(),
        )?;
        same(
            format!("a sum on device {}", device.0),
            read::<f32>(&sum)?,
            vec![2.0 * device.0 as f32; 4],
        )?;
    }
    Ok(())
}

/// `(x [2 n, 4] sharded by rows, w [4, 3] replicated) -> (y = x w sharded by rows, x^T y
/// replicated)`: the second result needs all rows.
fn sharded_step(n: usize) -> Program {
    let rows = 2 * n;
    let code = format!(
        r#"module @step {{
  sdy.mesh @mesh = <["data"={n}]>
  func.func public @main(%x: tensor<{rows}x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"data"}}, {{}}]>}},
                         %w: tensor<4x3xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{}}, {{}}]>}})
      -> (tensor<{rows}x3xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"data"}}, {{}}]>}},
          tensor<4x3xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{}}, {{}}]>}}) {{
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<{rows}x4xf32>, tensor<4x3xf32>) -> tensor<{rows}x3xf32>
    %g = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0] : (tensor<{rows}x4xf32>, tensor<{rows}x3xf32>) -> tensor<4x3xf32>
    return %y, %g : tensor<{rows}x3xf32>, tensor<4x3xf32>
  }}
}}"#
    );
    let (inputs, outputs) = (
        [f32s(&[2, 4]), f32s(&[4, 3])],
        [f32s(&[2, 3]), f32s(&[4, 3])],
    );
    Program {
        partitions: n,
        ..program("sharded step", &code, &inputs, &outputs, &[])
    }
}

/// The product of row-major matrices, `[rows, inner] x [inner, columns]`.
fn product(a: &[f32], b: &[f32], inner: usize, columns: usize) -> Vec<f32> {
    let cell =
        |row: &[f32], column: usize| (0..inner).map(|k| row[k] * b[k * columns + column]).sum();
    a.chunks_exact(inner)
        .flat_map(|row| (0..columns).map(move |column| cell(row, column)))
        .collect()
}

fn transpose(a: &[f32], columns: usize) -> Vec<f32> {
    (0..a.len())
        .map(|at| a[at % (a.len() / columns) * columns + at / (a.len() / columns)])
        .collect()
}

fn small_values(count: usize, seed: usize) -> Vec<f32> {
    (0..count)
        .map(|i| ((i * 7 + seed) % 9) as f32 - 4.0)
        .collect()
}

/// Uploads `values` to each device.
fn upload_all<T: Element>(
    client: &Client,
    values: &[T],
    dims: &[usize],
    devices: &[DeviceId],
) -> Result<DeviceBuffers> {
    let copies: Result<Vec<_>> = devices
        .iter()
        .map(|&device| upload(client, values, dims, device))
        .collect();
    DeviceBuffers::join(copies?)
}

/// Launches with borrowed arguments.
fn launch_all(loaded: &Loaded, args: &[&DeviceBuffers]) -> Result<Vec<DeviceBuffers>> {
    loaded.launch(args.iter().map(|&arg| Arg::Borrow(arg)).collect())
}

fn run_step(client: &Client, devices: &[DeviceId]) -> Checked {
    let n = devices.len();
    let step = compile_on(client, &sharded_step(n), devices)?;
    let is_own = |device: &DeviceId| client.addresses(&[*device]);
    let own: Vec<_> = devices.iter().copied().filter(is_own).collect();
    same("the devices of a sharded program", step.devices(), &own)?;
    let (x, w) = (small_values(2 * n * 4, 1), small_values(4 * 3, 2));
    let shards: Vec<_> = (devices.iter().zip(x.chunks_exact(8)))
        .filter(|(device, _)| is_own(device))
        .map(|(&device, rows)| upload(client, rows, &[2, 4], device))
        .collect::<Result<_>>()?;
    let shards = DeviceBuffers::join(shards)?;
    let weights = upload_all(client, &w, &[4, 3], &own)?;
    let y = product(&x, &w, 4, 3);
    let gradient = product(&transpose(&x, 4), &y, 2 * n, 3);
    for _ in 0..3 {
        let outputs = launch_all(&step, &[&shards, &weights])?;
        let lengths: Vec<_> = outputs.iter().map(DeviceBuffers::len).collect();
        same(
            "the number of devices with results",
            lengths,
            vec![own.len(); 2],
        )?;
        let results = outputs[0].iter().zip(outputs[1].iter());
        let wanted = devices.iter().zip(y.chunks_exact(6));
        let wanted = wanted.filter(|(device, _)| is_own(device));
        for ((device, want), (rows, sum)) in wanted.zip(results) {
            same(
                "the placement of a result",
                rows.placement(),
                (*device).into(),
            )?;
            same(
                format!("the rows of device {}", device.0),
                read_shard::<f32>(rows)?,
                want.to_vec(),
            )?;
            same(
                format!("the gradient on device {}", device.0),
                read_shard::<f32>(sum)?,
                gradient.clone(),
            )?;
        }
    }
    Ok(())
}

fn sharded_step_sums_gradients(subject: &Subject) -> Checked {
    let devices = some(subject.client());
    run_step(subject.client(), &devices)?;
    run_step(subject.client(), &devices[..2])
}

/// All devices of a client of several processes.
fn of_processes(client: &Client) -> Checked<Vec<DeviceId>> {
    let all: Vec<_> = client.devices().iter().map(|device| device.id()).collect();
    match client.addresses(&all) {
        true => Err(Stop::Skipped("its devices are of one process".to_owned())),
        false => Ok(all),
    }
}

fn devices_of_other_processes_are_rejected(subject: &Subject) -> Checked {
    let client = subject.client();
    let all = of_processes(client)?;
    let here = upload(client, &[1.0f32; 4], &[4], first(client))?;
    for other in all
        .into_iter()
        .filter(|&device| !client.addresses(&[device]))
    {
        let words = [&*format!("device {}", other.0)];
        let kind = ErrorKind::InvalidArgument;
        let uploaded = upload(client, &[1.0f32; 4], &[4], other);
        expect_error("an upload to another process", uploaded, kind, &words)?;
        let copied = here.first().copy_to(other.into());
        expect_error("a copy to another process", copied, kind, &words)?;
        let compiled = client.compile(
            &add(4, false),
            &CompileOptions {
                devices: vec![other],
                ..CompileOptions::default()
            },
        );
        expect_error("a program of another process", compiled, kind, &[])?;
    }
    Ok(())
}

/// The other processes run it too.
fn program_runs_on_devices_of_all_processes(subject: &Subject) -> Checked {
    let mut devices = of_processes(subject.client())?;
    run_step(subject.client(), &devices)?;
    devices.reverse();
    run_step(subject.client(), &devices)
}

fn shards_follow_the_device_order(subject: &Subject) -> Checked {
    let mut devices = some(subject.client());
    devices.reverse();
    run_step(subject.client(), &devices)
}

fn shards_in_wrong_order_are_rejected(subject: &Subject) -> Checked {
    let client = subject.client();
    let devices = some(client);
    let step = compile_on(client, &sharded_step(devices.len()), &devices)?;
    let mut swapped = devices.clone();
    swapped.swap(0, 1);
    let (right, wrong) = (
        upload_all(client, &[1.0f32; 8], &[2, 4], &devices)?,
        upload_all(client, &[1.0f32; 8], &[2, 4], &swapped)?,
    );
    let weights = upload_all(client, &[1.0f32; 12], &[4, 3], &devices)?;
    let words = [&*devices[0].0.to_string(), &*devices[1].0.to_string()];
    let launched = launch_all(&step, &[&wrong, &weights]);
    expect_error(
        "swapped shards of two devices",
        launched,
        ErrorKind::InvalidArgument,
        &words,
    )?;
    launch_all(&step, &[&right, &weights])?;
    Ok(())
}

fn wrong_argument_of_one_device_is_rejected(subject: &Subject) -> Checked {
    let client = subject.client();
    let devices = some(client);
    let last = devices.len() - 1;
    let step = compile_on(client, &sharded_step(devices.len()), &devices)?;
    let shards = |devices| upload_all(client, &[1.0f32; 8], &[2, 4], devices);
    let weights = upload_all(client, &[1.0f32; 12], &[4, 3], &devices)?;
    let wrong = upload(client, &[1.0f32; 8], &[4, 2], devices[last])?;
    let wrong = DeviceBuffers::join([shards(&devices[..last])?, wrong])?;
    let launched = launch_all(&step, &[&wrong, &weights]);
    expect_error(
        "a shard of another shape",
        launched,
        ErrorKind::InvalidArgument,
        &["f32[4, 2]", "f32[2, 4]"],
    )?;
    let fewer = shards(&devices[..last])?;
    let launched = launch_all(&step, &[&fewer, &weights]);
    expect_error(
        "a launch for one device too few",
        launched,
        ErrorKind::InvalidArgument,
        &[],
    )?;
    launch_all(&step, &[&shards(&devices)?, &weights])?;
    Ok(())
}

fn sharded_state_is_donated(subject: &Subject) -> Checked {
    let client = subject.client();
    let devices = some(client);
    let (n, rows) = (devices.len(), 2 * devices.len());
    let code = format!(
        r#"module @double {{
  sdy.mesh @mesh = <["data"={n}]>
  func.func public @main(%x: tensor<{rows}x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"data"}}, {{}}]>, tf.aliasing_output = 0 : i32}})
      -> (tensor<{rows}x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"data"}}, {{}}]>}}) {{
    %twice = stablehlo.add %x, %x : tensor<{rows}x4xf32>
    return %twice : tensor<{rows}x4xf32>
  }}
}}"#
    );
    let double = Program {
        partitions: n,
        ..program("double", &code, &[f32s(&[2, 4])], &[f32s(&[2, 4])], &[0])
    };
    let double = compile_on(client, &double, &devices)?;
    let state: Vec<_> = (1..)
        .zip(&devices)
        .map(|(value, &device)| upload(client, &[value as f32; 8], &[2, 4], device))
        .collect::<Result<_>>()?;
    let mut state = DeviceBuffers::join(state)?;
    for _ in 0..10 {
        state = launch_for_one(&double, vec![Arg::Donate(state)])?;
    }
    for (number, shard) in (1..).zip(state.iter()) {
        same(
            format!("shard {number} doubled ten times"),
            read_shard::<f32>(shard)?,
            vec![1024.0 * number as f32; 8],
        )?;
    }
    Ok(())
}
