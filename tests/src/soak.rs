//! A long training of a tiny model with checkpoints, validation, logs and plots. Memory, open files
//! and threads of the process must not grow.
//!
//! On the command line: `cargo run --release -p halite-tests --bin soak -- --steps 200000`. It
//! measures its own process, so nothing else may run in it.

use std::{
    fmt, fs, io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use halite::{
    data::{Dataset, Field, SampleMut},
    models::{Classify, Mlp},
    prelude::*,
};

/// Hidden size of the model. A checkpoint has 0.3 MB then, so that a leak of one is measurable.
const HIDDEN: usize = 4096;

/// Options of the run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Total number of optimizer steps.
    pub steps: u64,
    /// Steps of an epoch; each ends with a validation, a plot and a checkpoint.
    pub steps_per_epoch: u64,
    /// Steps between checkpoints.
    pub checkpoint_every: u64,
    /// Steps between rows of metrics.
    pub log_every: u64,
    /// Share of the steps before the first measurement, in percent, in which caches and pools fill.
    pub warm_up: u64,
}

/// Resources of the process at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Steps done.
    pub step: u64,
    /// Resident memory, in bytes.
    pub memory: u64,
    /// Open file descriptors.
    pub files: u64,
    /// Threads.
    pub threads: u64,
}

/// Measurements of a run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Samples in chronological order.
    pub samples: Vec<Sample>,
    /// Wall time of the training.
    pub elapsed: Duration,
    /// The last validation loss.
    pub loss: f64,
    options: Options,
}

impl Measured {
    /// Medians of the first and the last quarter after the warm-up.
    pub fn quarters(&self) -> [Sample; 2] {
        let from = self.options.steps * self.options.warm_up / 100;
        let steady: Vec<Sample> = self
            .samples
            .iter()
            .copied()
            .filter(|sample| sample.step >= from)
            .collect();
        let quarter = (steady.len() / 4).max(1).min(steady.len());
        let median = |samples: &[Sample], value: fn(&Sample) -> u64| {
            let mut values: Vec<u64> = samples.iter().map(value).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or(0)
        };
        [&steady[..quarter], &steady[steady.len() - quarter..]].map(|samples| Sample {
            step: median(samples, |sample| sample.step),
            memory: median(samples, |sample| sample.memory),
            files: median(samples, |sample| sample.files),
            threads: median(samples, |sample| sample.threads),
        })
    }

    /// Describes what grew too much: memory by more than `bytes`, files or threads by more than
    /// two.
    pub fn growth(&self, bytes: u64) -> Vec<String> {
        let [first, last] = self.quarters();
        let values = [
            ("resident memory", first.memory, last.memory, bytes),
            ("open files", first.files, last.files, 2),
            ("threads", first.threads, last.threads, 2),
        ];
        let grew = values
            .into_iter()
            .filter(|(_, first, last, most)| last.saturating_sub(*first) > *most);
        grew.map(|(what, first, last, most)| {
            format!("{what} grew from {first} to {last}, by more than {most}")
        })
        .collect()
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
        let [first, last] = self.quarters();
        let most = |value: fn(&Sample) -> u64| self.samples.iter().map(value).max().unwrap_or(0);
        writeln!(
            f,
            "{:<24} {:>12} {:>12} {:>12}",
            "", "first quarter", "last quarter", "maximum"
        )?;
        writeln!(
            f,
            "{:<24} {:>12} {:>12}",
            "around step", first.step, last.step
        )?;
        writeln!(
            f,
            "{:<24} {:>12.1} {:>12.1} {:>12.1}",
            "resident memory, MiB",
            mib(first.memory),
            mib(last.memory),
            mib(most(|sample| sample.memory))
        )?;
        let files = most(|sample| sample.files);
        writeln!(
            f,
            "{:<24} {:>12} {:>12} {files:>12}",
            "open files", first.files, last.files
        )?;
        let threads = most(|sample| sample.threads);
        writeln!(
            f,
            "{:<24} {:>12} {:>12} {threads:>12}",
            "threads", first.threads, last.threads
        )?;
        let seconds = self.elapsed.as_secs_f64();
        write!(
            f,
            "{} steps in {seconds:.0} s, {:.0} a second, {} samples, validation loss {:.4}",
            self.options.steps,
            self.options.steps as f64 / seconds,
            self.samples.len(),
            self.loss
        )
    }
}

/// Trains, and samples the process ten times a second.
///
/// # Errors
/// If the training fails, or `/proc/self` cannot be read.
pub fn run(options: Options) -> Result<Measured> {
    const BATCH: u64 = 16;
    let directory = tempfile::tempdir()
        .map_err(|error| Error::invalid("soak", format!("no temporary directory: {error}")))?;
    let reads = Arc::new(AtomicU64::new(0));
    let data = Counted {
        inner: spirals((options.steps_per_epoch * BATCH) as usize)?,
        reads: reads.clone(),
    };
    let trainer = Trainer::builder(&Accelerator::cpu().open()?)
        .epochs(options.steps / options.steps_per_epoch)
        .batch_size(BATCH as usize)
        .checkpoint_every(options.checkpoint_every)
        .log_every(options.log_every)
        .quiet(true)
        .out(directory.path())
        .build()?;

    let done = Arc::new(AtomicBool::new(false));
    let watcher = {
        let (done, reads, per_second) = (done.clone(), reads, 10);
        thread::spawn(move || {
            let mut samples = Vec::new();
            while !done.load(Relaxed) {
                // The reader is at most a few batches ahead of the steps.
                samples.push(sample(reads.load(Relaxed) / BATCH)?);
                thread::sleep(Duration::from_millis(1000 / per_second));
            }
            Ok::<_, io::Error>(samples)
        })
    };
    let began = Instant::now();
    let fitted = trainer.fit(
        Classify::<Mlp<()>>::new(),
        Mlp::new(&[2, HIDDEN, 3]),
        Adam::new(3e-3),
        data,
        spirals(256)?,
    );
    done.store(true, Relaxed);
    let samples = watcher.join().expect("the watcher does not panic");
    let samples =
        samples.map_err(|error| Error::invalid("soak", format!("/proc/self: {error}")))?;
    let report = fitted?.report;
    Ok(Measured {
        samples,
        elapsed: began.elapsed(),
        loss: report.metrics["loss"],
        options,
    })
}

fn sample(step: u64) -> io::Result<Sample> {
    let status = fs::read_to_string("/proc/self/status")?;
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.trim().split(' ').next()?.parse().ok())
            .unwrap_or(0)
    };
    let files = fs::read_dir("/proc/self/fd")?.count() as u64;
    Ok(Sample {
        step,
        memory: number("VmRSS:") * 1024,
        files,
        threads: number("Threads:"),
    })
}

/// Points in the plane, a third of them in each of three spirals.
fn spirals(count: usize) -> Result<InMemory> {
    let (mut points, mut arms) = (Vec::new(), Vec::new());
    for index in 0..count {
        let along = (index as f32 * 0.618_034).fract();
        let angle = 4.0 * along + (index % 3) as f32 * std::f32::consts::TAU / 3.0;
        points.extend([along * angle.cos(), along * angle.sin()]);
        arms.push((index % 3) as u8);
    }
    let points = HostArray::from_slice(&points, [count, 2])?;
    InMemory::new([
        ("x", points),
        ("label", HostArray::from_slice(&arms, [count])?),
    ])
}

/// Counts the samples that are read.
struct Counted {
    inner: InMemory,
    reads: Arc<AtomicU64>,
}

impl Dataset for Counted {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn fields(&self) -> &[Field] {
        self.inner.fields()
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        self.reads.fetch_add(1, Relaxed);
        self.inner.read(index, into)
    }
}
