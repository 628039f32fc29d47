//! Times of checkpoints beside safetensors in Python, with fsync in both.
//!
//! `checkpoints [ROW..] [--megabytes N] [--rounds N] [--dir DIR] [--python PYTHON] [--accelerator
//! cpu]`: all rows by default, 1,000 MB, 5 rounds, in a temporary directory below DIR. Without a
//! Python that has the packages `safetensors` and `numpy`, its columns are missing. In each round
//! the measured parts take turns; printed are the medians, with the least and the most. The rows:
//!
//! | row | times |
//! |---|---|
//! | `save` | arrays of 16 MB to the disk: plain writes and a flush, a checkpoint, Python |
//! | `load` | the same arrays from the disk's cache: a checkpoint with all digests, Python |
//! | `arrays` | a checkpoint of 10,000, 20,000 and 40,000 arrays of 64 elements: save and load |
//! | `epochs` | an epoch of a tiny run with a directory, at 100 and at 6,400 epochs |
//! | `step` | delay of the step after a save of 400 MB begins, beside a memcpy of the state |
#![forbid(unsafe_code)]

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

use halite::{
    Array, DType, HostArray, Result, TensorType,
    backends::Accelerator,
    data::{InMemory, Labeled},
    nn::{Init, Mean, Param, Sgd, Tensor, Trace, jit_step},
    train::{
        Task, Trainer, Weighted,
        checkpoint::{CheckpointStore, RunPosition, Snapshot},
    },
    tree::Tree,
};
use halite_benches::{Arguments, exit_code};

/// Bytes of an array of `save` and `load`.
const ARRAY: usize = 16_000_000;

fn main() -> ExitCode {
    exit_code(Options::read().and_then(|options| run(&options)))
}

struct Options {
    rows: Vec<String>,
    megabytes: usize,
    rounds: usize,
    dir: PathBuf,
    python: Option<String>,
    accelerator: Accelerator,
}

impl Options {
    fn read() -> Result<Self> {
        let names = [
            "--megabytes",
            "--rounds",
            "--dir",
            "--python",
            "--accelerator",
        ];
        let arguments = Arguments::read("checkpoints", &names)?;
        Ok(Options {
            rows: arguments.words(&[]),
            megabytes: arguments.option("--megabytes")?.unwrap_or(1000),
            rounds: arguments.option("--rounds")?.unwrap_or(5).max(1),
            dir: (arguments.option("--dir")?).unwrap_or_else(std::env::temp_dir),
            python: arguments.option("--python")?,
            accelerator: (arguments.option("--accelerator")?).unwrap_or(Accelerator::cpu()),
        })
    }

    fn has(&self, row: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|named| named == row)
    }
}

fn run(options: &Options) -> Result<()> {
    let dir = tempfile::Builder::new()
        .prefix("halite-checkpoints-")
        .tempdir_in(&options.dir)?;
    if options.has("save") || options.has("load") {
        save_and_load(options, dir.path())?;
    }
    if options.has("arrays") {
        many_arrays(options, dir.path())?;
    }
    if options.has("epochs") {
        epochs(options, dir.path())?;
    }
    if options.has("step") {
        step(options)?;
    }
    Ok(())
}

/// Seconds of the rounds of one part.
#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    fn add<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let done = work()?;
        self.0.push(started.elapsed().as_secs_f64());
        Ok(done)
    }

    fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn print(&self, row: &str, what: &str, bytes: usize) {
        let least = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.0.iter().copied().fold(0.0, f64::max);
        let speed = match bytes {
            0 => String::new(),
            bytes => format!("  {:6.0} MB/s", bytes as f64 / 1e6 / self.median()),
        };
        println!(
            "{row:<8} {what:<24} {:9.4} s  ({least:.4} to {most:.4}){speed}",
            self.median()
        );
    }
}

fn snapshot(arrays: Vec<(String, HostArray)>) -> Snapshot {
    Snapshot {
        position: RunPosition::default(),
        seed: 0,
        arrays,
        metadata: serde_json::Value::Null,
        ..Snapshot::default()
    }
}

/// Arrays without zero pages, as the parameters of a model are.
fn arrays(count: usize, elements: usize) -> Vec<(String, HostArray)> {
    let array = |index: usize| {
        let mut array = HostArray::zeros(TensorType::new(DType::F32, [elements]));
        let words = array.bytes_mut().chunks_exact_mut(4).enumerate();
        words.for_each(|(at, word)| {
            let mixed = ((at + index) as u32).wrapping_mul(0x9e37_79b9);
            word.copy_from_slice(&mixed.to_le_bytes());
        });
        (format!("layers.{index}.weight"), array)
    };
    (0..count).map(array).collect()
}

fn save_and_load(options: &Options, dir: &Path) -> Result<()> {
    let count = (options.megabytes * 1_000_000).div_ceil(ARRAY);
    let bytes = count * ARRAY;
    let state = arrays(count, ARRAY / 4);
    let store = CheckpointStore::open(dir.join("checkpoints"), 1)?;
    let [mut disk, mut save, mut load] = [const { Times(Vec::new()) }; 3];
    let [mut their_save, mut their_load] = [const { Times(Vec::new()) }; 2];
    for _ in 0..options.rounds {
        // Before the first part, which would else leave its warm pages to this copy.
        let snapshot = snapshot(state.clone());
        let path = dir.join("plain");
        disk.add(|| {
            let mut file = File::create(&path)?;
            for (_, array) in &state {
                file.write_all(array.bytes())?;
            }
            Ok(file.sync_all()?)
        })?;
        fs::remove_file(&path)?;
        save.add(|| store.save(snapshot))?;
        load.add(|| newest(&store))?;
        if let Some([save, load]) = python(options, dir, &["save_and_load", &count.to_string()]) {
            their_save.0.push(save);
            their_load.0.push(load);
        }
    }
    disk.print("save", "plain file", bytes);
    save.print("save", "checkpoint", bytes);
    their_save.print("save", "Python", bytes);
    load.print("load", "checkpoint", bytes);
    their_load.print("load", "Python", bytes);
    Ok(())
}

/// Reads all arrays of the newest checkpoint.
fn newest(store: &CheckpointStore) -> Result<Vec<HostArray>> {
    let mut saved = store.latest()?.expect("it was saved");
    let types: Vec<_> = saved
        .arrays()
        .map(|(name, ty)| (name.to_string(), ty.clone()))
        .collect();
    saved.take_all(&types)
}

/// The two times that a row of `checkpoints.py` prints.
fn python(options: &Options, dir: &Path, arguments: &[&str]) -> Option<[f64; 2]> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin/checkpoints.py");
    let mut command = Command::new(options.python.as_ref()?);
    let output = command.arg(script).arg(dir).args(arguments).output().ok()?;
    if !output.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    Some([numbers.next()?.ok()?, numbers.next()?.ok()?])
}

fn many_arrays(options: &Options, dir: &Path) -> Result<()> {
    for count in [10_000, 20_000, 40_000] {
        let state = arrays(count, 64);
        let store = CheckpointStore::open(dir.join(format!("many-{count}")), 1)?;
        let [mut save, mut load] = [const { Times(Vec::new()) }; 2];
        let [mut their_save, mut their_load] = [const { Times(Vec::new()) }; 2];
        for _ in 0..options.rounds {
            let snapshot = snapshot(state.clone());
            save.add(|| store.save(snapshot))?;
            load.add(|| newest(&store))?;
            if let Some([save, load]) = python(options, dir, &["many", &count.to_string()]) {
                their_save.0.push(save);
                their_load.0.push(load);
            }
        }
        save.print("arrays", &format!("{count}, save"), 0);
        their_save.print("arrays", &format!("{count}, save, Python"), 0);
        load.print("arrays", &format!("{count}, load"), 0);
        their_load.print("arrays", &format!("{count}, load, Python"), 0);
    }
    Ok(())
}

#[derive(Tree)]
struct Line<L> {
    slope: L,
}

struct Fit;

impl Task for Fit {
    type Model = Line<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        _cx: &'t Trace,
        model: &Line<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let error = batch.input * model.slope - batch.target;
        batch.mean(error.square())
    }
}

/// Seconds of an epoch around the given epochs of one long run, by its own table.
fn epochs(options: &Options, dir: &Path) -> Result<()> {
    const EPOCHS: u64 = 6400;
    const AROUND: usize = 50;
    let client = options.accelerator.open()?;
    let out = dir.join("epochs");
    let x: Vec<f32> = (0..32).map(|i| i as f32 / 32.0).collect();
    let points = || {
        let array = || HostArray::from_slice(&x, [32]);
        InMemory::new([("x", array()?), ("y", array()?)])
    };
    let trainer = Trainer::builder(&client)
        .epochs(EPOCHS)
        .batch_size(32)
        .out(&out)
        .quiet(true)
        .build()?;
    let model = Line {
        slope: Param::new([], Init::Zeros),
    };
    trainer.fit(Fit, model, Sgd::new(0.01), points()?, points()?)?;
    let table = fs::read_to_string(out.join("metrics.csv"))?;
    let validations = table.lines().filter(|line| line.contains(",validation,"));
    let ends: Vec<f64> = validations
        .filter_map(|line| line.split(',').nth(2)?.parse().ok())
        .collect();
    for epoch in [100, EPOCHS as usize] {
        let seconds = (ends[epoch - 1] - ends[epoch - 1 - AROUND]) / AROUND as f64;
        println!("epochs   at epoch {epoch:<15} {:9.4} s", seconds);
    }
    Ok(())
}

/// The delay of the step after copies of its state begin: into new memory, and into memory that was
/// used before, as a save does.
fn step(options: &Options) -> Result<()> {
    const ARRAYS: usize = 16;
    let client = options.accelerator.open()?;
    let host = arrays(ARRAYS, 25_000_000 / 4);
    let bytes = ARRAYS * 25_000_000;
    let upload = |(_, array): &(String, HostArray)| {
        let values = array.as_slice::<f32>()?;
        Array::from_slice(&client, values, array.ty().dims())
    };
    let mut state: Vec<Array> = host.iter().map(upload).collect::<Result<_>>()?;
    let step = jit_step(&client, &state, |_cx, state, [x]| {
        let next: Vec<Tensor> = state.into_iter().map(|array| array * 0.999).collect();
        (next, [x + 1.0])
    });
    let x = Array::scalar(&client, 1f32)?;
    let mut spare: Vec<HostArray> = host.into_iter().map(|(_, array)| array).collect();
    let mut into = spare.clone();
    let [mut plain, mut copies, mut new, mut used] = [const { Times(Vec::new()) }; 4];
    let run = |state: Vec<Array>| -> Result<Vec<Array>> {
        let (state, [_]) = step.call(state, [&x])?;
        state.iter().try_for_each(Array::wait)?;
        Ok(state)
    };
    for _ in 0..2 {
        state = run(state)?;
    }
    for _ in 0..options.rounds {
        state = plain.add(|| run(state))?;
        copies.add(|| {
            for (from, to) in spare.iter().zip(&mut into) {
                to.bytes_mut().copy_from_slice(from.bytes());
            }
            Ok(())
        })?;
        let mut pending = Vec::new();
        state = new.add(|| {
            pending = state.iter().map(Array::fetch).collect::<Result<_>>()?;
            run(state)
        })?;
        for copy in pending.drain(..) {
            drop(copy.wait()?);
        }
        let mut pending = Vec::new();
        state = used.add(|| {
            let memory = spare.drain(..);
            pending = (state.iter().zip(memory))
                .map(|(array, memory)| array.fetch_into(memory))
                .collect::<Result<_>>()?;
            run(state)
        })?;
        spare = pending
            .drain(..)
            .map(|copy| copy.wait())
            .collect::<Result<_>>()?;
    }
    plain.print("step", "without a save", bytes);
    copies.print("step", "memcpy of the state", bytes);
    new.print("step", "save into new memory", bytes);
    used.print("step", "save into used memory", bytes);
    for (name, times) in [("new", &new), ("used", &used)] {
        let delay = (times.median() - plain.median()) / copies.median();
        println!("step     delay, {name:<17} {delay:9.2} memcpys");
    }
    Ok(())
}
