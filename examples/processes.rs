//! The devices of a job of two processes, and a sum over all of them. On the CPU each process has
//! its own; GPUs and TPUs are those of one client, with NVIDIA's or Google's collectives.
//!
//! `cargo run --release --example processes -- cuda`, or `'cuda:[0]'` to open one GPU in
//! both processes, which NVIDIA's collectives refuse.
use std::{sync::Arc, time::Duration};

use halite::{
    DeviceId, Mesh, PartitionSpec, ReduceOp, Sharding,
    backends::{OpenOptions, cuda::CudaOptions},
    cluster::{Job, spawn},
    fetch::Bar,
    nn::ArrayCollectives,
    prelude::*,
};

fn main() -> Result<()> {
    let name = std::env::args().nth(1).unwrap_or("cpu".to_owned());
    let accelerator: Accelerator = name.parse()?;
    spawn(2, |job| run(job, &accelerator))
}

fn run(job: &Job, accelerator: &Accelerator) -> Result<()> {
    // `accelerator.open_in(&job.group())`, with options for two processes on one GPU.
    let options = OpenOptions {
        processes: Some(job.group()),
        cuda: CudaOptions {
            preallocate: Some(false),
            ..CudaOptions::default()
        },
        ..OpenOptions::default()
    };
    let client = accelerator.open_with(&options, &mut Bar::default())?.client;
    for device in client.devices() {
        let whose = if device.is_local() { "own" } else { "other's" };
        let (id, process) = (device.id().0, device.process());
        println!(
            "device {id} of process {process} ({whose}): {}",
            device.kind()
        );
    }
    let devices: Vec<_> = client.devices().iter().map(|device| device.id()).collect();
    if client.addresses(&devices) {
        println!("all devices are this process' own");
        return Ok(());
    }
    match sum(&client, &devices) {
        Ok(sum) => println!("the sum over all devices: {sum}"),
        Err(error) => println!("the sum over all devices failed: {error}"),
    }
    Ok(())
}

/// The sum of a row of each device: its index and 1.
fn sum(client: &Client, devices: &[DeviceId]) -> Result<HostArray> {
    let mesh = Arc::new(Mesh::new(
        [("all", devices.len())],
        devices.iter().copied(),
    )?);
    let rows = Sharding::new(&mesh, PartitionSpec::first("all"))?;
    let ty = TensorType::new(DType::F32, [devices.len(), 4]);
    let mine = Array::from_parts(client, &ty, &rows, |ranges| {
        HostArray::from_slice(&[ranges[0].start as f32 + 1.0; 4], [1, 4])
    })?;
    let across = ArrayCollectives::new(client, &mesh);
    let sum = across.all_reduce(&mine, ReduceOp::Sum, "all")?;
    sum.wait_for(Duration::from_secs(60))?;
    sum.read()
}
