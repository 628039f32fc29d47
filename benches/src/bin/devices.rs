//! Cost of data parallelism on virtual devices of the embedded executor.
//!
//! `cargo run --release -p halite-benches --bin devices -- [WORKLOAD] [ROUNDS] [STEPS]`
//!
//! A step of the same global batch runs on one device, on four that the compiler shards it over,
//! and on four in a `shard_map`, in turns; and a tiny step on up to 64 devices, launched when they
//! are idle. All devices share the processor, so that the processor time of several is that of one
//! at best.
#![forbid(unsafe_code)]

use std::{process::ExitCode, sync::Arc, time::Instant};

use halite::{
    Client, HostArray, Mesh, MeshShape, Param, Result,
    backends::{Accelerator, OpenOptions},
    fetch::Quiet,
    models::Mlp,
    nn::{Adam, Optimizer, Sgd, Transformer, TransformerConfig},
    train::Strategy,
};
use halite_benches::{Bare, Forward, ProcessorClock, WideCnn, data, exit_code, labels};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let workload = args.next().unwrap_or_else(|| "all".to_owned());
    let mut number = |default| args.next().map_or(Ok(default), |text| text.parse());
    let (Ok(rounds @ 1..), Ok(steps @ 1..)) = (number(7), number(20)) else {
        eprintln!("usage: devices [all|launch|mlp|cnn|transformer] [ROUNDS] [STEPS]");
        return ExitCode::FAILURE;
    };
    exit_code(measure(&workload, rounds, steps))
}

fn measure(workload: &str, rounds: usize, steps: usize) -> Result<()> {
    let is = |name| workload == name || workload == "all";
    if is("launch") {
        for devices in [1, 4, 8, 16, 32, 64] {
            launches(devices, 20 * steps)?;
        }
    }
    if is("mlp") {
        let (x, y) = (data(&[128, 784]), labels([128], 10));
        let model = Mlp::new(&[784, 512, 512, 10]);
        compare::<Mlp<()>, _>("mlp", model, Adam::new(1e-3), &x, &y, rounds, steps)?;
    }
    if is("cnn") {
        let (x, y) = (data(&[32, 28, 28, 1]), labels([32], 10));
        let optimizer = Sgd::new(0.01).momentum(0.9);
        compare::<WideCnn<()>, _>("cnn", WideCnn::new(), optimizer, &x, &y, rounds, steps)?;
    }
    if is("transformer") {
        let config = TransformerConfig::gpt2(2, 128)
            .vocab_size(65)
            .context_length(64);
        let (x, y) = (labels([16, 64], 65), labels([16, 64], 65));
        let model = Transformer::new(&config)?;
        compare::<Transformer<()>, _>(
            "transformer",
            model,
            Adam::new(3e-4),
            &x,
            &y,
            rounds,
            steps,
        )?;
    }
    Ok(())
}

fn client(devices: usize) -> Result<Client> {
    let accelerator: Accelerator = format!("embedded:{devices}").parse()?;
    Ok(accelerator
        .open_with(&OpenOptions::default(), &mut Quiet)?
        .client)
}

fn mesh(client: &Client) -> Result<Arc<Mesh>> {
    let devices = client.local_devices();
    let shape: MeshShape = format!("data={}", devices.len()).parse()?;
    Ok(Arc::new(Mesh::new(shape, devices)?))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A tiny step, launched when the devices are idle, until its result is there.
fn launches(devices: usize, steps: usize) -> Result<()> {
    let client = client(devices)?;
    let mesh = mesh(&client)?;
    let mut bare = Bare::<Mlp<()>, _>::over(
        &mesh,
        &Strategy::default(),
        &client,
        Mlp::new(&[32, 32, 32, 32, 32]),
        Sgd::new(0.01),
        &data(&[64, 32]),
        &labels([64], 32),
    )?;
    let mut wall = Vec::new();
    bare.run(1)?;
    bare.loss()?;
    let clock = ProcessorClock::start();
    for _ in 0..steps {
        let started = Instant::now();
        bare.run(1)?;
        bare.loss()?;
        wall.push(started.elapsed().as_secs_f64() * 1e6);
    }
    let processor = clock.seconds() * 1e6 / steps as f64;
    println!(
        "launch until done on {devices:2} devices: {:.0} us, {processor:.0} us of processor time",
        median(wall)
    );
    Ok(())
}

fn compare<M: Forward, O: Optimizer + Clone>(
    name: &str,
    model: M::Of<Param>,
    optimizer: O,
    x: &HostArray,
    y: &HostArray,
    rounds: usize,
    steps: usize,
) -> Result<()> {
    let (one, four) = (client(1)?, client(4)?);
    let mesh = mesh(&four)?;
    let strategy = Strategy::default();
    let mut subjects = [
        (
            "1 device",
            Bare::<M, O>::new(&one, model.clone(), optimizer.clone(), x, y)?,
        ),
        (
            "4 by the compiler",
            Bare::over(
                &mesh,
                &strategy,
                &four,
                model.clone(),
                optimizer.clone(),
                x,
                y,
            )?,
        ),
        (
            "4 by shard_map",
            Bare::by_shard_map(&mesh, &four, model, optimizer, x, y)?,
        ),
    ];
    let mut times = vec![(Vec::new(), Vec::new()); subjects.len()];
    for _ in 0..rounds {
        for ((_, bare), (wall, busy)) in subjects.iter_mut().zip(&mut times) {
            bare.run(1)?;
            bare.loss()?;
            let (started, clock) = (Instant::now(), ProcessorClock::start());
            bare.run(steps)?;
            bare.loss()?;
            wall.push(started.elapsed().as_secs_f64() * 1e3 / steps as f64);
            busy.push(clock.seconds() * 1e3 / steps as f64);
        }
    }
    let mut first = None;
    for ((subject, _), (wall, busy)) in subjects.iter().zip(times) {
        let busy = median(busy);
        let first = *first.get_or_insert(busy);
        println!(
            "{name:12} {subject:18} {:8.2} ms, {busy:8.2} ms of processor time, {:.2} of 1 device",
            median(wall),
            busy / first
        );
    }
    Ok(())
}
