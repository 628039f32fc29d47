//! Speed of the input pipeline: JPEG files to batches beside PyTorch's `DataLoader`, TFRecord files
//! beside plain reads, and records beside single files.
//!
//! `input [ROW..] [--dir DIR] [--rounds N] [--seconds S] [--python PYTHON]`: all rows by default, 5
//! rounds of 2 seconds, data in a folder below the temporary directory, which is kept. In each
//! round the measured parts take turns; printed are medians, with the least and the most. The rows:
//!
//! | row | measures |
//! |---|---|
//! | `jpeg` | slices of 256x256 and of 512x512: decode, random resized crop to 224, flip, batches of 32 |
//! | `records` | a TFRecord file of 512 MB in the page cache: `cat`, a loop of `read`, records in order and shuffled, with checksums |
//! | `files` | 10,000 JPEG files of 64x64 and the same in one TFRecord, shuffled; cold if the page cache may be dropped (root) |
#![forbid(unsafe_code)]

use std::{
    fs::{self, File},
    io::{BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use halite::{
    Error, Result,
    core::{DType, TensorType},
    data::{
        Dataset, Field, Loader, LoaderOptions, Permutation, Position, Rows, SampleMut, Table,
        images::{CT_IDS, CT_LABELS, FakeCt, ImageTable, Transforms, decode_image},
        records::{IndexedRecords, Records, write_record},
    },
};
use halite_benches::{Arguments, ProcessorClock, exit_code};

/// The allocator of the command `halite`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    exit_code(Options::read().and_then(|options| run(&options)))
}

struct Options {
    rows: Vec<String>,
    dir: PathBuf,
    rounds: usize,
    seconds: f64,
    python: Option<String>,
}

impl Options {
    fn read() -> Result<Self> {
        let names = ["--dir", "--rounds", "--seconds", "--python"];
        let arguments = Arguments::read("input", &names)?;
        let dir = || std::env::temp_dir().join("halite-input");
        Ok(Options {
            rows: arguments.words(&[]),
            dir: arguments.option("--dir")?.unwrap_or_else(dir),
            rounds: arguments.option("--rounds")?.unwrap_or(5),
            seconds: arguments.option("--seconds")?.unwrap_or(2.0),
            python: arguments.option("--python")?,
        })
    }

    fn has(&self, row: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|named| named == row)
    }
}

fn run(options: &Options) -> Result<()> {
    fs::create_dir_all(&options.dir)?;
    if options.has("jpeg") {
        for side in [256, 512] {
            jpeg(options, side)?;
        }
    }
    if options.has("records") {
        for size in [16_000, 128_000] {
            records(options, size)?;
        }
    }
    if options.has("files") {
        files(options)?;
    }
    Ok(())
}

/// Rates of the parts of a row, by name: a second, and a second of one processor.
#[derive(Default)]
struct Rates(Vec<(String, Vec<[f64; 2]>)>);

impl Rates {
    fn add(&mut self, name: &str, rates: [f64; 2]) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, all)) => all.push(rates),
            None => self.0.push((name.to_owned(), vec![rates])),
        }
    }

    /// Times work on this number of items.
    fn time(&mut self, name: &str, items: f64, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let clock = ProcessorClock::start();
        let started = Instant::now();
        work()?;
        let elapsed = started.elapsed().as_secs_f64();
        self.add(name, [items / elapsed, items / clock.seconds()]);
        Ok(())
    }

    fn print(&self, row: &str, unit: &str) {
        for (name, rates) in &self.0 {
            let column = |which: usize| {
                let mut column: Vec<f64> = rates.iter().map(|rates| rates[which]).collect();
                column.sort_by(f64::total_cmp);
                column
            };
            let [wall, processor] = [column(0), column(1)];
            let middle = wall.len() / 2;
            println!(
                "{row:<10} {name:<28} {:9.0} {unit}/s ({:.0} to {:.0}), {:9.0} of one processor",
                wall[middle],
                wall[0],
                wall[wall.len() - 1],
                processor[middle]
            );
        }
    }
}

/// The images of a generated set, which is written if it is not there.
fn images(options: &Options, studies: usize, side: usize, text: &str) -> Result<ImageTable> {
    let dir = options.dir.join(format!("ct-{side}"));
    if !dir.join("train.csv").exists() {
        let set = FakeCt {
            studies,
            slices: 20,
            side,
            seed: 1,
        };
        set.write(&dir)?;
    }
    let table = Table::read(dir.join("train.csv"))?;
    let transforms: Transforms = text.parse()?;
    ImageTable::open(dir.join("train"), &table, &CT_IDS, transforms)?
        .with_labels(&table, &CT_LABELS)
}

fn jpeg(options: &Options, side: usize) -> Result<()> {
    let images = images(
        options,
        32,
        side,
        "224,random-resized-crop=0.08..1,flip=0.5",
    )?;
    let mut rates = Rates::default();
    for _ in 0..options.rounds {
        for workers in [0, 1, 2] {
            let loader = LoaderOptions {
                workers,
                ..LoaderOptions::shuffled(32, 1)
            };
            let loader = Loader::new(images.clone(), loader)?;
            let mut batches = loader.endless(Position::default());
            // Started, and the files in the page cache.
            for batch in batches.by_ref().take(8) {
                batch?;
            }
            let (clock, started) = (ProcessorClock::start(), Instant::now());
            let mut samples = 0.0;
            while started.elapsed().as_secs_f64() < options.seconds {
                let batch = batches.next().expect("it is endless")?;
                samples += batch.arrays[0].ty().dims()[0] as f64;
            }
            let elapsed = started.elapsed().as_secs_f64();
            let name = format!("halite, workers {workers}");
            rates.add(&name, [samples / elapsed, samples / clock.seconds()]);
        }
        let dir = options.dir.join(format!("ct-{side}"));
        for (name, measured) in python(options, &dir)? {
            rates.add(&name, measured);
        }
    }
    rates.print(&format!("jpeg {side}"), "images");
    Ok(())
}

/// The rates that `peers/input_torch.py` prints.
fn python(options: &Options, dir: &Path) -> Result<Vec<(String, [f64; 2])>> {
    let Some(python) = &options.python else {
        return Ok(vec![]);
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/input_torch.py");
    let seconds = options.seconds.to_string();
    let output = (Command::new(python).arg(script).arg(dir).arg(seconds))
        .stderr(Stdio::inherit())
        .output()?;
    let parse = |line: &str| -> Option<(String, [f64; 2])> {
        let mut cells = line.split('\t');
        let name = cells.next()?.to_owned();
        let mut number = || cells.next()?.parse().ok();
        Some((name, [number()?, number()?]))
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Option<Vec<_>> = text.lines().map(parse).collect();
    let lines = lines.filter(|_| output.status.success());
    lines.ok_or_else(|| Error::invalid("input", format!("{script} failed: {text}")))
}

/// Numbers below `len` in random order.
fn shuffled(len: usize) -> impl Iterator<Item = usize> {
    let order = Permutation::new(len, 1, 0);
    (0..len).map(move |place| order.at(place))
}

fn records(options: &Options, size: usize) -> Result<()> {
    const BYTES: usize = 512_000_000;
    let path = options.dir.join(format!("{size}.tfrecord"));
    let count = BYTES / size;
    if !path.exists() {
        let mut file = BufWriter::new(File::create(&path)?);
        let mut payload: Vec<u8> = (0..size).map(|at| ((at * at) >> 7) as u8).collect();
        for number in 0..count {
            payload[..8].copy_from_slice(&number.to_le_bytes());
            write_record(&mut file, &payload)?;
        }
        file.into_inner()
            .map_err(|error| error.into_error())?
            .sync_all()?;
    }
    let indexed = IndexedRecords::open([&path])?;
    let megabytes = (count * size) as f64 / 1e6;
    let mut buffer = vec![0; 1 << 20];
    let mut rates = Rates::default();
    // The first round fills the page cache.
    for round in 0..=options.rounds {
        let mut rates_of_round = Rates::default();
        let rate = &mut rates_of_round;
        let (null, started) = (File::create("/dev/null")?, Instant::now());
        Command::new("cat").arg(&path).stdout(null).status()?;
        // Its processor time is that of another process.
        rate.add(
            "cat",
            [megabytes / started.elapsed().as_secs_f64(), f64::NAN],
        );
        rate.time("read, 1 MiB", megabytes, || {
            let mut file = File::open(&path)?;
            while file.read(&mut buffer)? > 0 {}
            Ok(())
        })?;
        rate.time("Records", megabytes, || {
            for record in Records::new(BufReader::new(File::open(&path)?)) {
                assert_eq!(record?.len(), size);
            }
            Ok(())
        })?;
        rate.time("IndexedRecords, in order", megabytes, || {
            (0..count).try_for_each(|number| indexed.read(number).map(drop))
        })?;
        rate.time("IndexedRecords, shuffled", megabytes, || {
            shuffled(count).try_for_each(|number| indexed.read(number).map(drop))
        })?;
        if round > 0 {
            for (name, measured) in rates_of_round.0 {
                rates.add(&name, measured[0]);
            }
        }
    }
    rates.print(&format!("{} kB", size / 1000), "MB");
    Ok(())
}

fn files(options: &Options) -> Result<()> {
    let images = images(options, 500, 64, "64")?;
    let count = images.len();
    let path = options.dir.join("ct-64.tfrecord");
    if !path.exists() {
        let mut file = BufWriter::new(File::create(&path)?);
        for row in 0..count {
            write_record(&mut file, &fs::read(images.path(row))?)?;
        }
        file.into_inner()
            .map_err(|error| error.into_error())?
            .sync_all()?;
    }
    let image = Field::new("image", TensorType::new(DType::U8, [64, 64, 3]));
    let open = || IndexedRecords::open([&path]);
    let decoded = open()?.dataset([image], |payload: &[u8], into: &mut SampleMut<'_>| {
        into.write(0, decode_image(payload)?.as_slice::<u8>()?)
    });
    let files = |rates: &mut Rates, name: &str| {
        rates.time(name, count as f64, || {
            for row in shuffled(count) {
                fs::read(images.path(row))?;
            }
            Ok(())
        })
    };
    let records = |rates: &mut Rates, name: &str| {
        rates.time(name, count as f64, || {
            let records = open()?;
            shuffled(count).try_for_each(|row| records.read(row).map(drop))
        })
    };
    let mut rates = Rates::default();
    for _ in 0..options.rounds {
        if drop_page_cache() {
            files(&mut rates, "files, cold")?;
            drop_page_cache();
            records(&mut rates, "records, cold")?;
        }
        files(&mut rates, "files, warm")?;
        records(&mut rates, "records, warm")?;
        for (name, dataset) in [
            ("files, decoded", &images as &dyn Dataset),
            ("records, decoded", &decoded),
        ] {
            let mut row = Rows::zeros(dataset.fields(), 1)?;
            rates.time(name, count as f64, || {
                shuffled(count).try_for_each(|index| dataset.read(index, &mut row.sample_mut(0)))
            })?;
        }
    }
    rates.print("files", "images");
    Ok(())
}

/// Whether the system has dropped its page cache, as it does for root.
fn drop_page_cache() -> bool {
    let _ = Command::new("sync").status();
    let file = fs::OpenOptions::new()
        .write(true)
        .open("/proc/sys/vm/drop_caches");
    file.and_then(|mut file| file.write_all(b"3")).is_ok()
}
