//! Processor time of a training step under a precision policy, relative to `f32`.
//!
//! `precision [WORKLOAD..] [--policy bf16-mixed] [--rounds 40] [--seconds 0.3]`. The steps of both,
//! and of a second `f32`, alternate in one process; a round is `seconds` of processor time of each.
//! Ratios are taken within a round; their median and quartiles are printed, with those of `f32` to
//! itself as a measure of the noise.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use halite::{
    Client, DTypePolicy, Error, Result,
    backends::Accelerator,
    models::Mlp,
    nn::{Adam, Optimizer},
};
use halite_benches::{Arguments, Bare, Forward, GptBlock, ProcessorClock, data, exit_code, labels};

/// As in `peer`: XLA's CPU plugin allocates for every launch, from several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    exit_code(Options::read().and_then(|options| run(&options)))
}

struct Options {
    workloads: Vec<String>,
    policy: DTypePolicy,
    rounds: usize,
    seconds: f64,
}

impl Options {
    fn read() -> Result<Self> {
        let arguments = Arguments::read("precision", &["--policy", "--rounds", "--seconds"])?;
        Ok(Options {
            workloads: arguments.words(&["mlp128", "mlp256", "block128", "block256"]),
            policy: (arguments.option("--policy")?).unwrap_or(DTypePolicy::BF16_MIXED),
            rounds: arguments.option("--rounds")?.unwrap_or(40).max(1),
            seconds: arguments.option("--seconds")?.unwrap_or(0.3),
        })
    }
}

fn invalid(message: String) -> Error {
    Error::invalid("precision", message)
}

fn run(options: &Options) -> Result<()> {
    let client = Accelerator::cpu().open()?;
    println!(
        "{:10} {:>12} {:>16} {:>22} {:>22}",
        "step", "f32 cpu ms", "policy cpu ms", "policy / f32", "f32 / f32"
    );
    for workload in &options.workloads {
        let mlp = |batch: usize| {
            let (x, y) = (data(&[batch, 784]), labels([batch], 10));
            move |client: &Client| {
                Bare::<Mlp<()>, _>::new(
                    client,
                    Mlp::new(&[784, 512, 512, 10]),
                    Adam::new(1e-3),
                    &x,
                    &y,
                )
            }
        };
        let block = |time: usize| {
            let (x, y) = (data(&[8, time, 384]), labels([8 * time], 256));
            move |client: &Client| {
                Bare::<GptBlock<()>, _>::new(
                    client,
                    GptBlock::new(384, 6, 256),
                    Adam::new(1e-3),
                    &x,
                    &y,
                )
            }
        };
        match workload.as_str() {
            "mlp128" => compare(workload, options, &client, mlp(128))?,
            "mlp256" => compare(workload, options, &client, mlp(256))?,
            "block128" => compare(workload, options, &client, block(128))?,
            "block256" => compare(workload, options, &client, block(256))?,
            other => {
                return Err(invalid(format!(
                    "unknown workload `{other}`; expected one of mlp128, mlp256, block128, block256"
                )));
            }
        }
    }
    Ok(())
}

fn compare<M: Forward, O: Optimizer + Clone>(
    name: &str,
    options: &Options,
    client: &Client,
    bare: impl Fn(&Client) -> Result<Bare<M, O>>,
) -> Result<()> {
    let mut exact = bare(client)?;
    let mut again = bare(client)?;
    let mut rounded = bare(client)?.precision(options.policy);
    for bare in [&mut exact, &mut again, &mut rounded] {
        time(bare, 2)?;
    }
    let steps = ((options.seconds / time(&mut exact, 4)?).ceil() as usize).max(1);
    let (mut of_exact, mut of_narrow, mut ratios, mut noise) = (vec![], vec![], vec![], vec![]);
    for round in 0..options.rounds {
        // Each is first in a third of the rounds.
        let mut taken = [0.0; 3];
        for place in 0..3 {
            let which = (round + place) % 3;
            taken[which] = time([&mut exact, &mut again, &mut rounded][which], steps)?;
        }
        of_exact.push(taken[0]);
        of_narrow.push(taken[2]);
        // The mean of both measurements of f32, so that neither is preferred.
        ratios.push(2.0 * taken[2] / (taken[0] + taken[1]));
        noise.push(taken[1] / taken[0]);
    }
    println!(
        "{name:10} {:>12.3} {:>16.3} {:>22} {:>22}",
        1e3 * quartiles(of_exact)[1],
        1e3 * quartiles(of_narrow)[1],
        spread(quartiles(ratios)),
        spread(quartiles(noise))
    );
    Ok(())
}

/// Mean processor time of a step, in seconds.
fn time<M: Forward, O: Optimizer + Clone>(bare: &mut Bare<M, O>, steps: usize) -> Result<f64> {
    let clock = ProcessorClock::start();
    bare.run(steps)?;
    bare.loss()?;
    Ok(clock.seconds() / steps as f64)
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

fn spread([low, median, high]: [f64; 3]) -> String {
    format!("{median:.3} ({low:.3} to {high:.3})")
}
