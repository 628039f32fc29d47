//! The halite peer: trains one workload in the protocol of `peers/README.md`.
//!
//! `peer w1` (MLP 784-512-512-10, batch 128, Adam), `peer w2` (CNN, batch 128, SGD with momentum),
//! `peer w3` (ResNet-18 for 32x32 images, batch 64), `peer w4` (GPT 6x384, 256 tokens, batch 16,
//! Adam), `peer w5` (ResNet-50, batch 8), `peer w6` (MLP 32-32-32, batch 8, SGD); and for comparing precisions `peer mlp256` (as w1, batch 256) and `peer block` (one GPT block, width
//! 384, 6 heads, 8 x 128, Adam). A second argument is the precision: `peer w1 bf16-mixed`, and a
//! third the accelerator: `peer w1 f32 embedded`. `peer w6x16` has 16 steps a launch.
#![forbid(unsafe_code)]

use std::{io::BufRead, process::ExitCode, time::Instant};

use halite::{
    DTypePolicy, Param, Result,
    backends::Accelerator,
    models::Mlp,
    nn::{Adam, Optimizer, Sgd, Transformer, TransformerConfig},
};
use halite_benches::{Bare, Forward, GptBlock, ResNet, WideCnn, data, labels};

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
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(workload: &str, precision: DTypePolicy, accelerator: &Accelerator) -> Result<()> {
    let client = accelerator.open()?;
    let mlp = |batch: usize| {
        let (x, y) = (data(&[batch, 784]), labels([batch], 10));
        let model = Mlp::new(&[784, 512, 512, 10]);
        Bare::<Mlp<()>, _>::new(&client, model, Adam::new(1e-3), &x, &y)
    };
    let w6 = || {
        let (x, y) = (data(&[8, 32]), labels([8], 32));
        let model = Mlp::new(&[32, 32, 32]);
        Bare::<Mlp<()>, _>::new(&client, model, Sgd::new(0.01), &x, &y)
            .map(|bare| bare.precision(precision))
    };
    match workload {
        "w1" => serve(mlp(128)?.precision(precision)),
        "mlp256" => serve(mlp(256)?.precision(precision)),
        "w2" => {
            let (x, y) = (data(&[128, 28, 28, 1]), labels([128], 10));
            let sgd = Sgd::new(0.01).momentum(0.9);
            serve(
                Bare::<WideCnn<()>, _>::new(&client, WideCnn::new(), sgd, &x, &y)?
                    .precision(precision),
            )
        }
        "w3" => {
            let (x, y) = (data(&[64, 32, 32, 3]), labels([64], 10));
            let sgd = Sgd::new(0.01).momentum(0.9).weight_decay(5e-4);
            let model = ResNet::resnet18_small(10);
            serve(Bare::<ResNet<()>, _>::new(&client, model, sgd, &x, &y)?.precision(precision))
        }
        "w5" => {
            let (x, y) = (data(&[8, 224, 224, 3]), labels([8], 1000));
            let sgd = Sgd::new(0.01).momentum(0.9).weight_decay(1e-4);
            let model = ResNet::resnet50(1000);
            serve(Bare::<ResNet<()>, _>::new(&client, model, sgd, &x, &y)?.precision(precision))
        }
        "block" => {
            let (x, y) = (data(&[8, 128, 384]), labels([8 * 128], 256));
            let block = GptBlock::new(384, 6, 256);
            serve(
                Bare::<GptBlock<()>, _>::new(&client, block, Adam::new(1e-3), &x, &y)?
                    .precision(precision),
            )
        }
        "w4" => {
            let config = TransformerConfig {
                tied: false,
                ..TransformerConfig::gpt2(6, 384)
            }
            .vocab_size(65)
            .context_length(256);
            let (x, y) = (labels([16, 256], 65), labels([16, 256], 65));
            let model = Transformer::new(&config)?;
            serve(
                Bare::<Transformer<()>, _>::new(&client, model, Adam::new(3e-4), &x, &y)?
                    .precision(precision),
            )
        }
        "w6" => serve(w6()?),
        "w6x16" => serve(w6()?.steps_per_launch(16)?),
        other => Err(halite::Error::invalid(
            "peer",
            format!("unknown workload `{other}`; expected w1 to w6, mlp256 or block"),
        )),
    }
}

fn serve<M: Forward, O: Optimizer + Clone>(mut bare: Bare<M, O>) -> Result<()>
where
    M::Of<Param>: Send + Sync + Clone,
{
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
