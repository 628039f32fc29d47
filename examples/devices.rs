//! Data-parallel training over eight devices: each takes its shard of every batch. On the CPU the
//! devices are virtual.
//!
//! `cargo run --release --example devices`
use std::sync::Arc;

use halite::{Mesh, PartitionSpec, Sharding, prelude::*};

/// `y = x · weight + offset`, from `x: f32[batch, 4]`.
#[derive(Tree, Clone)]
struct Plane<L> {
    weight: L,
    offset: L,
}

fn main() -> Result<()> {
    let client = Accelerator::cpu().devices(8)?.open()?;
    let devices = client.local_devices();

    // The sharding of a batch: rows along the mesh's one axis.
    let mesh = Arc::new(Mesh::new([("data", 8)], devices.iter().copied())?);
    let by_rows = Sharding::new(&mesh, PartitionSpec::first("data"))?;
    let zeros = HostArray::zeros(TensorType::new(DType::F32, [64, 4]));
    let batch = Array::upload(&client, &zeros, &by_rows)?;
    println!("batch {}, shards {:?}", batch.ty(), batch.shards());

    // The trainer shards batches by itself; the compiler adds the all-reduce of the gradients.
    let model = Plane {
        weight: Param::new([4, 1], Init::Zeros),
        offset: Param::new([1], Init::Zeros),
    };
    let task = task(&model, |_cx, model, batch| {
        let y = batch.input.matmul(model.weight) + model.offset;
        batch.mean(mse(y, batch.target))
    });
    let [train, validation] = plane(4608)?.split(4096, 0)?;
    for count in [1, 8] {
        let trainer = Trainer::builder(&client)
            .devices(devices.iter().copied().take(count))
            .epochs(10)
            .batch_size(64)
            .quiet(true)
            .build()?;
        let (sgd, model) = (Sgd::new(0.1).momentum(0.9), model.clone());
        let (train, validation) = (train.clone(), validation.clone());
        let fitted = trainer.fit(task, model, sgd, train, validation)?;
        let loss = fitted.report.metrics["loss"];
        let weight: Vec<f32> = fitted.model.weight.to_vec()?;
        println!("{count} device(s): loss {loss:.2e}, weight {weight:.4?}");
    }
    println!("true: weight [1.0, -2.0, 3.0, -4.0]");
    Ok(())
}

/// Points of a plane.
fn plane(count: usize) -> Result<InMemory> {
    // Pseudo-random numbers between -1 and 1.
    let x: Vec<f32> = (0..4 * count)
        .map(|i| (i as f32 * 12.9898).sin() * 43758.547 % 1.0)
        .collect();
    let y: Vec<f32> = x
        .chunks(4)
        .map(|x| x[0] - 2.0 * x[1] + 3.0 * x[2] - 4.0 * x[3] + 0.5)
        .collect();
    InMemory::new([
        ("x", HostArray::from_slice(&x, [count, 4])?),
        ("y", HostArray::from_slice(&y, [count, 1])?),
    ])
}
