//! The halite peer: trains one workload in the protocol of `peers/README.md`.
//!
//! `peer w1` (MLP 784-512-512-10, batch 128, Adam), `peer w2` (CNN, batch 128, SGD with momentum),
//! `peer w3` (ResNet-18 for 32x32 images, batch 64), `peer w4` (GPT 6x384, 256 tokens, batch 16,
//! Adam), `peer w5` (ResNet-50, batch 8), `peer w6` (MLP 32-32-32, batch 8, SGD), `peer w7`
//! (ConvNeXt, batch 16, AdamW), `peer w8` (VAE, batch 32, Adam); and for comparing precisions
//! `peer mlp256` (as w1, batch 256) and `peer block` (one GPT block, width 384, 6 heads, 8 x 128,
//! Adam). A second argument is the precision: `peer w1 bf16-mixed`, and a third the accelerator:
//! `peer w1 f32 embedded`, whose devices share the batch. `peer w6x16` has 16 steps a launch,
//! `peer w6x128` 128.
#![forbid(unsafe_code)]

use std::{io::BufRead, process::ExitCode, sync::Arc, time::Instant};

use halite::{
    Client, DTypePolicy, Mesh, Result,
    backends::{Accelerator, OpenOptions, cuda::CudaOptions},
    nn::Optimizer,
    train::Strategy,
};
use halite_benches::{Bare, Forward, Visitor, Workload, exit_code, visit};
use halite_fetch::Bar;

/// XLA's CPU plugin allocates for every launch, from several threads; with the system's allocator
/// that was more than half of the time of a tiny step. `override` makes the plugin use it too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let workload = std::env::args().nth(1).unwrap_or_default();
    let precision = std::env::args()
        .nth(2)
        .map_or(Ok(DTypePolicy::F32), |name| name.parse());
    let accelerator = std::env::args()
        .nth(3)
        .map_or(Ok(Accelerator::cpu()), |name| name.parse());
    let run = || run(&workload, precision?, &accelerator?);
    exit_code(run())
}

fn run(workload: &str, precision: DTypePolicy, accelerator: &Accelerator) -> Result<()> {
    let (workload, steps_per_launch) = match workload.split_once('x') {
        Some((name, steps)) => match steps.parse() {
            Ok(steps) => (name, steps),
            Err(_) => (workload, 1), // not a workload, which is an error below
        },
        None => (workload, 1),
    };
    let peer = Peer {
        client: open(accelerator)?,
        precision,
        steps_per_launch,
    };
    visit(workload, peer)
}

/// Takes memory of a GPU as it is needed: peers share the device.
fn open(accelerator: &Accelerator) -> Result<Client> {
    let options = OpenOptions {
        cuda: CudaOptions {
            preallocate: Some(false),
            ..CudaOptions::default()
        },
        ..OpenOptions::default()
    };
    let opened = accelerator.open_with(&options, &mut Bar::default())?;
    Ok(opened.client)
}

struct Peer {
    client: Client,
    precision: DTypePolicy,
    steps_per_launch: usize,
}

impl Visitor for Peer {
    type Output = ();

    fn visit<M: Forward, O: Optimizer + Clone>(self, workload: Workload<M, O>) -> Result<()> {
        let Workload {
            model,
            optimizer,
            x,
            y,
        } = workload;
        let devices = self.client.local_devices();
        let mesh = Arc::new(Mesh::new([("data", devices.len())], devices)?);
        let strategy = Strategy::default();
        let bare = Bare::<M, O>::over(&mesh, &strategy, &self.client, model, optimizer, &x, &y)?;
        let bare = bare.precision(self.precision);
        match self.steps_per_launch {
            1 => serve(bare),
            steps => serve(bare.steps_per_launch(steps)?),
        }
    }
}

fn serve<M: Forward, O: Optimizer + Clone>(mut bare: Bare<M, O>) -> Result<()> {
    let started = Instant::now();
    bare.run(1)?;
    let (parameters, loss1) = (bare.parameters(), bare.loss()?);
    let (first, since_exec) = (started.elapsed().as_secs_f64(), since_exec());
    bare.run(4)?;
    let loss5 = bare.loss()?;
    println!(
        "READY {{\"first_step_s\": {first:.3}, \"since_exec_s\": {since_exec:.3}, \"parameters\": {parameters}, \
         \"loss1\": {loss1:.4}, \"loss5\": {loss5:.4}}}"
    );
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap_or_default();
        let Some(steps) = line
            .strip_prefix("RUN ")
            .and_then(|steps| steps.trim().parse().ok())
        else {
            break;
        };
        let started = Instant::now();
        bare.run(steps)?;
        bare.loss()?;
        println!("DONE {:.9}", started.elapsed().as_secs_f64());
    }
    println!("BYE {{\"peak_rss_mb\": {:.1}}}", peak_rss_mb());
    Ok(())
}

/// Seconds since the start of this process; 0 if the system does not report it.
fn since_exec() -> f64 {
    let started = || {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let ticks: f64 = stat
            .rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(19)?
            .parse()
            .ok()?;
        let uptime: f64 = std::fs::read_to_string("/proc/uptime")
            .ok()?
            .split_whitespace()
            .next()?
            .parse()
            .ok()?;
        Some(uptime - ticks / 100.0)
    };
    started().unwrap_or(0.0)
}

fn peak_rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap_or("");
    line.split_whitespace()
        .next()
        .and_then(|kb| kb.parse::<f64>().ok())
        .map_or(0.0, |kb| kb / 1024.0)
}
