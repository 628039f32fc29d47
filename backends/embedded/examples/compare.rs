//! Times a training step of text on the embedded executor and on XLA's CPU plugin, in turns.
//!
//! `cargo run --release -p halite-embedded --example compare -- PROGRAM.mlir [ROUNDS] [STEPS]`

use std::time::Instant;

use halite_backends::{Accelerator, Access, CompileCacheOptions, OpenOptions};
use halite_core::{Client, Result};
use halite_embedded::Mode;
use halite_fetch::Bar;

#[path = "../tests/common/mod.rs"]
mod common;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_default();
    let mut count = |default| {
        args.next()
            .and_then(|it| it.parse().ok())
            .unwrap_or(default)
    };
    let (rounds, steps): (usize, usize) = (count(7), count(20));
    let text = std::fs::read_to_string(&path)
        .map_err(|error| halite_core::Error::invalid("read", format!("{path}: {error}")))?;
    let mut subjects: Vec<Subject> = Vec::new();
    for (name, client) in [
        ("fast", common::open(Mode::Fast, 0)),
        ("fast, 1 thread", common::open(Mode::Fast, 1)),
    ] {
        subjects.push(Subject::new(name, &client, &text)?);
    }
    subjects.push(Subject::new("xla", &xla()?, &text)?);
    for _ in 0..rounds {
        for subject in &mut subjects {
            subject.measure(steps)?;
        }
    }
    subjects.iter_mut().for_each(Subject::report);
    Ok(())
}

fn xla() -> Result<Client> {
    let compile_cache = Some(CompileCacheOptions {
        access: Access::Off,
        ..CompileCacheOptions::default()
    });
    let options = OpenOptions {
        compile_cache,
        ..OpenOptions::default()
    };
    let opened = Accelerator::cpu().open_with(&options, &mut Bar::default());
    Ok(opened?.client)
}

struct Subject {
    name: &'static str,
    compile_ms: f64,
    step: common::Step,
    /// Milliseconds of one step, of each round.
    times: Vec<f64>,
    /// Milliseconds of processor time of one step, of each round.
    cpu_times: Vec<f64>,
}

/// Processor time of this process in milliseconds; 0 if the system does not report it.
fn cpu_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace();
    // User and system time, in ticks of 10 ms.
    fields
        .skip(11)
        .take(2)
        .filter_map(|it| it.parse::<f64>().ok())
        .sum::<f64>()
        * 10.0
}

impl Subject {
    fn new(name: &'static str, client: &Client, text: &str) -> Result<Self> {
        let started = Instant::now();
        let step = common::Step::new(client, text)?;
        let compile_ms = started.elapsed().as_secs_f64() * 1e3;
        Ok(Subject {
            name,
            compile_ms,
            step,
            times: Vec::new(),
            cpu_times: Vec::new(),
        })
    }

    fn measure(&mut self, steps: usize) -> Result<()> {
        self.step.step()?;
        self.step.wait()?;
        let (started, cpu) = (Instant::now(), cpu_ms());
        for _ in 0..steps {
            self.step.step()?;
        }
        self.step.wait()?;
        self.times
            .push(started.elapsed().as_secs_f64() * 1e3 / steps as f64);
        self.cpu_times.push((cpu_ms() - cpu) / steps as f64);
        Ok(())
    }

    fn report(&mut self) {
        self.times.sort_by(f64::total_cmp);
        self.cpu_times.sort_by(f64::total_cmp);
        let cpu = self.cpu_times[self.cpu_times.len() / 2];
        let (least, median) = (self.times[0], self.times[self.times.len() / 2]);
        let most = self.times[self.times.len() - 1];
        println!(
            "{:16} compile with uploads {:8.1} ms; step {least:.3} ms least, {median:.3} median, \
             {most:.3} most; {cpu:.2} of processor time",
            self.name, self.compile_ms
        );
    }
}
