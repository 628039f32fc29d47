//! Rates at which weights are loaded from the disk's cache, beside a plain read of the file and
//! beside Python:
//! `cargo bench -p halite-weights --bench load -- [--megabytes N] [--python PYTHON]`.
//!
//! | row | what is done |
//! |---|---|
//! | `read` | the file is read into one piece of memory |
//! | `straight` | a safetensors file into parameters of the same layout, on the embedded executor |
//! | `transposed` | the same with PyTorch's layout of `Linear` |
//! | `bf16` | the same, narrowed |
//! | `python` | `safetensors.torch.load_file`, and a copy of each tensor, without an upload |
//!
//! `peak` is the largest memory of the process during the row (Linux), less what it had before:
//! with `straight`, the parameters and the pages of the mapped file.

use std::{collections::BTreeMap, fs, path::Path, process::Command, time::Instant};

use halite_core::{Client, DType, HostArray, Result, TensorType, Tree};
use halite_embedded::{Embedded, Options};
use halite_nn::{Linear, Param};
use halite_weights::{NameMap, SafetensorsWriter, TensorInfo, WeightLoader, open};

/// Side of each weight, whose rows are no power of two bytes.
const SIDE: usize = 2304;
const ROUNDS: usize = 5;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let megabytes = value("--megabytes").and_then(|text| text.parse().ok());
    let layers = (megabytes.unwrap_or(500usize) << 20).div_ceil(SIDE * SIDE * 4);
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("model.safetensors");
    let bytes = write(&path, layers)?;
    println!(
        "{layers} weights of [{SIDE}, {SIDE}], {} MB",
        bytes / 1_000_000
    );

    let client = Client::new(Embedded::new(&Options::default())?);
    let model: Vec<Linear<Param>> = (0..layers)
        .map(|_| Linear::new(SIDE, SIDE).without_bias())
        .collect();
    let narrow = model
        .clone()
        .map_leaves(|_, param| param.with_dtype(DType::Bf16));
    row("read", bytes, || {
        fs::read(&path).map(drop).map_err(Into::into)
    })?;
    let load = |names: NameMap, model: &Vec<Linear<Param>>| {
        WeightLoader::new(&open(&path)?, &names)
            .load(&client, model)
            .map(drop)
    };
    row("straight", bytes, || load(NameMap::paths(), &model))?;
    row("transposed", bytes, || load(NameMap::torch(), &model))?;
    row("bf16", bytes, || load(NameMap::torch(), &narrow))?;
    if let Some(python) = value("--python") {
        let program = format!(
            "import time, safetensors.torch as s\nfor _ in range({ROUNDS}):\n    t = time.time(); \
             x = [v.clone() for v in s.load_file({:?}).values()]; print(time.time() - t); del x",
            path.display().to_string()
        );
        let output = Command::new(python).args(["-c", &program]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let seconds = text.lines().filter_map(|line| line.parse().ok()).collect();
        print("python", bytes, seconds, None);
    }
    Ok(())
}

fn write(path: &Path, layers: usize) -> Result<usize> {
    let ty = TensorType::new(DType::F32, [SIDE, SIDE]);
    let infos: Vec<TensorInfo> = (0..layers)
        .map(|layer| TensorInfo {
            name: format!("{layer}.weight"),
            ty: ty.clone(),
        })
        .collect();
    let mut writer = SafetensorsWriter::create(path, &infos, &BTreeMap::new())?;
    let values: Vec<f32> = (0..SIDE * SIDE).map(|i| (i as f32).sin()).collect();
    let array = HostArray::from_slice(&values, [SIDE, SIDE])?;
    (0..layers).try_for_each(|_| writer.write(&array))?;
    writer.finish()?;
    Ok(layers * ty.bytes())
}

fn row(name: &str, bytes: usize, mut run: impl FnMut() -> Result<()>) -> Result<()> {
    let mut seconds = Vec::new();
    // Resets the peak to what the process has now.
    _ = fs::write("/proc/self/clear_refs", "5");
    let before = peak();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        run()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    let grown = peak().zip(before).map(|(after, before)| after - before);
    print(name, bytes, seconds, grown);
    Ok(())
}

/// Largest resident memory of the process so far, in megabytes.
fn peak() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1.024e-3)
}

/// The median, with the least and the most, in GB a second.
fn print(name: &str, bytes: usize, mut seconds: Vec<f64>, peak: Option<f64>) {
    seconds.sort_by(f64::total_cmp);
    let rate = |seconds: Option<&f64>| seconds.map_or(0.0, |seconds| bytes as f64 / seconds / 1e9);
    let median = rate(seconds.get(seconds.len() / 2));
    let (least, most) = (rate(seconds.last()), rate(seconds.first()));
    let peak = peak.map_or(String::new(), |peak| format!("  peak {peak:.0} MB"));
    println!("{name:>12} {median:6.2} GB/s  ({least:.2} to {most:.2}){peak}");
}
