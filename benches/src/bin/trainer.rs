//! Processor time of the trainer beside a loop by hand, on the same work.
//!
//! `cargo run --release -p halite-benches --bin trainer -- [PAIRS] [ACCELERATOR]`, by default 5
//! pairs on `cpu`. The work is that of `w1` of the comparison with other frameworks: an MLP of 784,
//! 512, 512 and 10 units with Adam, on 38,400 random images in batches of 128. Both read and upload
//! each batch, shuffled for each epoch, validate on 5,120 images after each epoch, and then save a
//! checkpoint. A measurement is a run of five epochs less a run of one epoch, so that compilation
//! and initialization do not count; the two take turns. The ratio should be at most 1.03.
#![forbid(unsafe_code)]

use std::{fs, path::Path, process::ExitCode};

use halite::{
    core::Sharding,
    data::{Loader, LoaderOptions, Prefetch},
    models::Mlp,
    prelude::*,
};
use halite_benches::{Ratios, measure_pairs};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BATCH: usize = 128;
const TRAINED: usize = 300 * BATCH;
const VALIDATED: usize = 40 * BATCH;
/// Epochs of the longer run of a measurement.
const EPOCHS: u64 = 5;

fn main() -> ExitCode {
    measure_pairs("trainer", 5, run)
}

fn run(pairs: usize, accelerator: &Accelerator) -> Result<()> {
    let client = accelerator.open()?;
    let dir = tempfile::tempdir()?;
    let mut ratios = Ratios::default();
    for pair in 0..pairs {
        let trainer = || difference(|epochs| by_trainer(&client, epochs, dir.path()));
        let by_hand = || difference(|epochs| by_hand(&client, epochs, dir.path()));
        let (trainer, by_hand) = match pair % 2 {
            0 => (trainer()?, by_hand()?),
            _ => {
                let by_hand = by_hand()?;
                (trainer()?, by_hand)
            }
        };
        let steps = (EPOCHS - 1) as f64 * (TRAINED / BATCH) as f64;
        let milliseconds = |seconds: f64| 1e3 * seconds / steps;
        println!(
            "trainer {:.2} ms a step, by hand {:.2}",
            milliseconds(trainer),
            milliseconds(by_hand)
        );
        ratios.0.push(trainer / by_hand);
    }
    println!("ratio {ratios}");
    Ok(())
}

/// Processor time of the epochs after the first.
fn difference(run: impl Fn(u64) -> Result<()>) -> Result<f64> {
    let time = |epochs| {
        let before = processor_time()?;
        run(epochs)?;
        Ok::<f64, Error>(processor_time()? - before)
    };
    Ok(time(EPOCHS)? - time(1)?)
}

/// Processor time of this process, in seconds, with that of threads that have ended.
fn processor_time() -> Result<f64> {
    /// Ticks a second of what the system says to processes.
    const TICKS: f64 = 100.0;
    let text = fs::read_to_string("/proc/self/stat")?;
    // The name of the program, which may have spaces, is in parentheses.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    let (Some(user), Some(system)) = (ticks(11), ticks(12)) else {
        return Err(Error::invalid("/proc/self/stat", "it has no times"));
    };
    Ok((user + system) / TICKS)
}

fn mlp() -> Mlp<Param> {
    Mlp::new(&[784, 512, 512, 10])
}

/// Random images and labels.
fn images(count: usize) -> Result<InMemory> {
    let pixels: Vec<f32> = (0..count * 784).map(|i| (i as f32 * 0.37).sin()).collect();
    let labels: Vec<i32> = (0..count as i32).map(|i| i * 7 % 10).collect();
    InMemory::new([
        ("image", HostArray::from_slice(&pixels, [count, 784])?),
        ("label", HostArray::from_slice(&labels, [count])?),
    ])
}

fn by_trainer(client: &Client, epochs: u64, dir: &Path) -> Result<()> {
    let out = dir.join("run");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let task = task(&mlp(), |_cx, model, batch| {
        batch.mean(cross_entropy(model.forward(batch.input), batch.target))
    });
    let trainer = Trainer::builder(client)
        .max_epochs(epochs)
        .batch_size(BATCH)
        .out(out)
        .quiet(true)
        .build()?;
    trainer.fit(
        task,
        mlp(),
        Adam::new(1e-3),
        images(TRAINED)?,
        images(VALIDATED)?,
    )?;
    Ok(())
}

fn by_hand(client: &Client, epochs: u64, dir: &Path) -> Result<()> {
    let mut state = State::new(client, &mlp(), &Adam::new(1e-3), 0)?;
    let step = jit_step(client, &state, |cx, state, [x, y]| {
        state.set_training_mode(cx);
        let loss = cross_entropy(state.model.forward(x), y).mean_all();
        let gradients = state.gradients(loss);
        (state.update(gradients), [loss])
    });
    let validate = jit_step(client, &state, |_cx, state, [x, y]| {
        let loss = cross_entropy(state.model.forward(x), y).mean_all();
        (state, [loss])
    });
    let trained = Loader::new(images(TRAINED)?, LoaderOptions::shuffled(BATCH, 42))?;
    let validated = Loader::new(images(VALIDATED)?, LoaderOptions::new(BATCH))?;
    let sharding = Sharding::single(client.local_devices()[0]);
    for epoch in 0..epochs {
        for batch in Prefetch::new(trained.epoch(epoch), client, vec![sharding.clone()], 2)? {
            let batch = batch?.into_tree(&Labeled::TEMPLATE)?;
            state = step.call(state, [&batch.input, &batch.target])?.0;
        }
        let mut losses = Vec::new();
        for batch in Prefetch::new(validated.epoch(0), client, vec![sharding.clone()], 2)? {
            let batch = batch?.into_tree(&Labeled::TEMPLATE)?;
            let (same, [loss]) = validate.call(state, [&batch.input, &batch.target])?;
            state = same;
            losses.push(loss);
        }
        for loss in losses {
            loss.item::<f32>()?;
        }
        Checkpoint::save(&state, dir.join("by-hand.safetensors"))?;
    }
    Ok(())
}
