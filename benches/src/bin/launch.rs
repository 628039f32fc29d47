//! Cost of a launch on the calling thread, in the plugin and in halite.
//!
//! `cargo run --release -p halite-benches --bin launch -- 2000`, on an idle machine; on a busy one,
//! at high priority and several times, of which the smallest numbers count.
//!
//! A step is launched when the devices are idle, and the whole call is timed. `Plugin::time_calls`
//! measures the calls of the plugin, including those that free handles. The rest of the step is
//! halite's, except for the clock: each timed call reads it twice, about one of which is outside of
//! the measured time. On the backend `Null` all of the time is halite's, but caches stay warmer
//! than between real steps.
#![forbid(unsafe_code)]

use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use halite::{
    Client, Mesh, MeshShape, Result,
    backends::{Accelerator, OpenOptions, pjrt::Plugin},
    fetch::Quiet,
    models::{Cnn, Mlp},
    nn::{Adam, Optimizer, Sgd},
};
use halite_benches::{Bare, Forward, data, exit_code, labels};
use halite_core::Null;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let Some(Ok(steps @ 1..)) = std::env::args()
        .nth(1)
        .map_or(Some(Ok(2000)), |steps| Some(steps.parse()))
    else {
        eprintln!("usage: launch [STEPS]");
        return ExitCode::FAILURE;
    };
    exit_code(measure(steps))
}

fn measure(steps: usize) -> Result<()> {
    println!("microseconds of the calling thread for a launch: least, 1 in 10, median of {steps}");
    let cpu = |devices| {
        Accelerator::Cpu {
            devices: Some(devices),
        }
        .open_with(&OpenOptions::default(), &mut Quiet)
    };
    let (one, eight) = (cpu(1)?, cpu(8)?);
    split(
        "tiny step, null",
        tiny(&Client::new(Null::new(1)))?,
        None,
        steps,
    )?;
    split(
        "mnist over 8, null",
        mnist(&Client::new(Null::new(8)))?,
        None,
        steps,
    )?;
    split(
        "tiny step, cpu",
        tiny(&one.client)?,
        one.driver.plugin(),
        steps,
    )?;
    split(
        "mnist over 8, cpu",
        mnist(&eight.client)?,
        eight.driver.plugin(),
        steps,
    )
}

fn tiny(client: &Client) -> Result<Bare<Mlp<()>, Sgd>> {
    Bare::new(
        client,
        Mlp::new(&[32, 32, 32]),
        Sgd::new(0.01),
        &data(&[8, 32]),
        &labels([8], 32),
    )
}

/// The CNN of `halite train mnist`, data parallel over eight devices: 26 arrays of state, two of a
/// batch.
fn mnist(client: &Client) -> Result<Bare<Cnn<()>, Adam>> {
    let axes: MeshShape = "data=8".parse()?;
    let mesh = Arc::new(Mesh::new(axes, client.local_devices())?);
    Bare::over(
        &mesh,
        &"dp".parse()?,
        client,
        Cnn::new(28, 10),
        Adam::new(1e-3),
        &data(&[64, 28, 28, 1]),
        &labels([64], 10),
    )
}

fn split<M: Forward, O: Optimizer + Clone>(
    name: &str,
    mut bare: Bare<M, O>,
    plugin: Option<&'static Plugin>,
    steps: usize,
) -> Result<()> {
    for _ in 0..20 {
        bare.run(1)?;
        bare.loss()?;
    }
    let untimed = times(&mut bare, None, steps)?;
    println!(
        "{name:20} whole call {}",
        spread(untimed.iter().map(|step| step.whole))
    );
    let Some(plugin) = plugin else { return Ok(()) };
    plugin.time_calls();
    let timed = times(&mut bare, Some(plugin), steps)?;
    println!(
        "{name:20} in the plugin {}",
        spread(timed.iter().map(|step| step.plugin))
    );
    println!(
        "{name:20} ours {}",
        spread(
            timed
                .iter()
                .map(|step| step.whole.saturating_sub(step.plugin))
        )
    );
    let calls: Vec<_> = called(plugin)
        .into_iter()
        .map(|(function, count, _)| format!("{function} {count}"))
        .collect();
    println!("{name:20} calls, all in all: {}", calls.join(", "));
    Ok(())
}

/// One step on the calling thread.
struct Step {
    whole: Duration,
    /// Time in the functions of the plugin.
    plugin: Duration,
}

/// Subtracts the cost of the clock, if the plugin's calls are timed.
fn times<M: Forward, O: Optimizer + Clone>(
    bare: &mut Bare<M, O>,
    plugin: Option<&Plugin>,
    steps: usize,
) -> Result<Vec<Step>> {
    let look = look_at_clock();
    let within = || {
        plugin.map_or((0, Duration::ZERO), |plugin| {
            called(plugin)
                .into_iter()
                .fold((0, Duration::ZERO), |(n, sum), (_, count, total)| {
                    (n + count, sum + total)
                })
        })
    };
    (0..steps)
        .map(|_| {
            let before = within();
            let started = Instant::now();
            bare.run(1)?;
            let whole = started.elapsed();
            let after = within();
            bare.loss()?;
            let clock = look * (after.0 - before.0) as u32;
            let plugin = (after.1 - before.1).saturating_sub(clock);
            Ok(Step {
                whole: whole.saturating_sub(clock * 2),
                plugin,
            })
        })
        .collect()
}

fn called(plugin: &Plugin) -> Vec<(&'static str, u64, Duration)> {
    plugin
        .call_times()
        .into_iter()
        .map(|call| (call.function, call.count, call.total))
        .collect()
}

/// Duration of one reading of the clock.
fn look_at_clock() -> Duration {
    const LOOKS: u32 = 10_000;
    let started = Instant::now();
    for _ in 0..LOOKS {
        std::hint::black_box(Instant::now());
    }
    started.elapsed() / LOOKS
}

fn spread(times: impl Iterator<Item = Duration>) -> String {
    let mut micros: Vec<f64> = times.map(|time| time.as_secs_f64() * 1e6).collect();
    micros.sort_by(f64::total_cmp);
    let at = |part: f64| micros[(part * (micros.len() - 1) as f64) as usize];
    format!("{:.1} {:.1} {:.1}", at(0.0), at(0.1), at(0.5))
}
