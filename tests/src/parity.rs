//! Training of whole networks beside PyTorch: the same weights, batches and optimizer, compared by
//! the loss of each step.
//!
//! `tests/golden/pytorch/parity.py` trains the networks in PyTorch. Initial weights are loaded by the
//! models' name maps, so the comparison covers these too.

pub mod formula;
mod networks;
mod slices;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fmt, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use halite_core::{Client, DType, Error, Result};
use serde::Deserialize;

pub use self::networks::{Network, Size, losses};

/// What PyTorch says of a network.
#[derive(Clone, Debug, Deserialize)]
pub struct Reference {
    /// Dimensions of each tensor of the state dict, floats only.
    pub tensors: BTreeMap<String, Vec<usize>>,
    /// Loss of each step.
    pub losses: Vec<f64>,
    /// How Pillow and torchvision read the files of the batches.
    pub pixels: Option<Pixels>,
    /// Data set whose files are the batches, which are computed without one.
    #[serde(skip)]
    pub data: Option<PathBuf>,
}

/// Differences of the pixels of one batch, read twice.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Pixels {
    /// Largest difference, of 255.
    pub largest: u8,
    /// Fraction of values that differ.
    pub fraction: f64,
}

/// `at most 1 of 255, in 2.1 % of the values`.
impl fmt::Display for Pixels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.fraction;
        write!(
            f,
            "at most {} of 255, in {percent:.2} % of the values",
            self.largest
        )
    }
}

/// Losses of the same steps by PyTorch and halite.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// PyTorch's.
    pub theirs: Vec<f64>,
    /// halite's.
    pub ours: Vec<f64>,
    /// Largest allowed relative difference of each step.
    pub allowed: Vec<f64>,
}

/// `|a - b|` relative to `b`.
fn apart(a: f64, b: f64) -> f64 {
    (a - b).abs() / b.abs().max(f64::MIN_POSITIVE)
}

impl Comparison {
    /// Relative difference of each step.
    pub fn differences(&self) -> Vec<f64> {
        let pairs = self.ours.iter().zip(&self.theirs);
        pairs.map(|(&ours, &theirs)| apart(ours, theirs)).collect()
    }

    /// The first step that differs by more than is allowed; a NaN does.
    pub fn first_beyond(&self) -> Option<usize> {
        if self.ours.len() != self.theirs.len() {
            return Some(self.ours.len().min(self.theirs.len()));
        }
        let differences = self.differences();
        (0..differences.len())
            .find(|&step| differences[step].is_nan() || differences[step] > self.allowed[step])
    }
}

/// `loss 1.38 to 0.02 in 50 steps; largest difference 3.1e-15 (step 48), 4.6e-6 of what is allowed;
/// steps 1, 10, 20, .. differ by 0.0e0, 3.1e-16, 2.2e-15, ..`. Steps count from 1.
impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differences = self.differences();
        let parts = differences
            .iter()
            .zip(&self.allowed)
            .map(|(off, most)| off / most);
        let worst = parts.enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b));
        let (Some(first), Some(last), Some((step, part))) =
            (self.ours.first(), self.ours.last(), worst)
        else {
            return write!(f, "no steps");
        };
        write!(
            f,
            "loss {first:.4} to {last:.4} in {} steps; largest difference {:.1e} (step {}), {part:.1e} \
             of what is allowed",
            self.ours.len(),
            differences[step],
            step + 1
        )?;
        let shown = |step: &usize| *step == 1 || step.is_multiple_of(10);
        let steps: Vec<usize> = (1..=differences.len()).filter(shown).collect();
        let at = steps
            .iter()
            .map(|step| format!("{:.1e}", differences[step - 1]));
        let at: Vec<String> = at.collect();
        let steps: Vec<String> = steps.iter().map(usize::to_string).collect();
        write!(
            f,
            "; steps {} differ by {}",
            steps.join(", "),
            at.join(", ")
        )
    }
}

/// How PyTorch trains a network.
#[derive(Clone, Copy, Debug)]
pub struct PyTorch<'a> {
    /// Python with the packages that the script names.
    pub python: &'a Path,
    /// Number of steps.
    pub steps: usize,
    /// `f64` or `f32`.
    pub dtype: DType,
    /// Number of threads.
    pub threads: usize,
    /// Whether initial weights are changed by up to one unit in the last place of `f64`.
    pub perturbed: bool,
    /// Directory in which results are kept, and from which they are read; not with `data`.
    pub kept: Option<&'a Path>,
    /// Data set whose files are the batches of [`Network::Ct`].
    pub data: Option<&'a Path>,
}

impl PyTorch<'_> {
    /// Trains a network, unless the result is kept.
    ///
    /// # Errors
    /// If the script fails, with its stderr, or a file cannot be written.
    pub fn train(&self, network: Network, size: Size) -> Result<Reference> {
        let failed = |error: &dyn fmt::Display| Error::invalid("parity", error.to_string());
        if let (Network::Ct, Some(data)) = (network, self.data) {
            let dir = tempfile::tempdir().map_err(|error| failed(&error))?;
            let file = dir.path().join("batches.safetensors");
            slices::write(data, size, &file)?;
            let arguments = [
                "--batches".as_ref(),
                file.as_os_str(),
                "--data".as_ref(),
                data.as_os_str(),
            ];
            let bytes = self.run(network, size, &arguments)?;
            let reference: Reference =
                serde_json::from_slice(&bytes).map_err(|error| failed(&error))?;
            return Ok(Reference {
                data: Some(data.to_owned()),
                ..reference
            });
        }
        let bytes = match self.kept {
            None => self.run(network, size, &[])?,
            Some(dir) => {
                let path = dir.join(self.file(network, size));
                if !path.exists() {
                    let result = fs::write(&path, self.run(network, size, &[])?);
                    result.map_err(|error| failed(&format!("{}: {error}", path.display())))?;
                }
                fs::read(&path).map_err(|error| failed(&format!("{}: {error}", path.display())))?
            }
        };
        serde_json::from_slice(&bytes).map_err(|error| failed(&error))
    }

    /// `resnet18-full-50-f64-1.json`
    fn file(&self, network: Network, size: Size) -> String {
        let (network, size, dtype) = (network.name(), size.name(), self.dtype_name());
        let perturbed = if self.perturbed { "-perturbed" } else { "" };
        format!(
            "{network}-{size}-{}-{dtype}-{}{perturbed}.json",
            self.steps, self.threads
        )
    }

    fn dtype_name(&self) -> &'static str {
        if self.dtype == DType::F64 {
            "f64"
        } else {
            "f32"
        }
    }

    /// What the script prints with these further arguments.
    fn run(&self, network: Network, size: Size, arguments: &[&OsStr]) -> Result<Vec<u8>> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/pytorch/parity.py");
        let mut command = Command::new(self.python);
        command
            .arg(&script)
            .args(["--model", network.name(), "--size", size.name()])
            .args(["--steps", &self.steps.to_string()])
            .args([
                "--threads",
                &self.threads.to_string(),
                "--dtype",
                self.dtype_name(),
            ])
            .args(arguments);
        if self.perturbed {
            command.args(["--perturb", "1"]);
        }
        let failed = |error: &dyn fmt::Display| {
            let (python, script) = (self.python.display(), script.display());
            Error::invalid("parity", format!("{python} {script}: {error}"))
        };
        let output = command
            .output()
            .map_err(|error: io::Error| failed(&error))?;
        if !output.status.success() {
            return Err(failed(&String::from_utf8_lossy(&output.stderr)));
        }
        Ok(output.stdout)
    }
}

/// Largest relative difference of two losses in `f64`.
const EXACT: f64 = 1e-9;

/// Largest relative difference of the losses `ours` from `exact`.
pub fn distance(ours: &[f64], exact: &[f64]) -> f64 {
    ours.iter()
        .zip(exact)
        .map(|(&ours, &exact)| apart(ours, exact))
        .fold(0.0, f64::max)
}

/// Compares the losses of two runs of PyTorch in `f64`; 1e-9 is allowed.
pub fn compare_references(theirs: &Reference, others: &Reference) -> Comparison {
    Comparison {
        theirs: theirs.losses.clone(),
        ours: others.losses.clone(),
        allowed: vec![EXACT; theirs.losses.len()],
    }
}

/// Compares the losses of a network in `f64` with those of PyTorch; 1e-9 is allowed.
///
/// # Errors
/// If halite does not load or train the network.
pub fn compare(
    client: &Client,
    network: Network,
    size: Size,
    reference: &Reference,
) -> Result<Comparison> {
    let theirs = reference.losses.clone();
    let ours = losses(client, network, size, reference, DType::F64, theirs.len())?;
    let allowed = vec![EXACT; theirs.len()];
    Ok(Comparison {
        theirs,
        ours,
        allowed,
    })
}

/// Compares the losses of a network in `f32` with those of PyTorch. The first step may differ by
/// 1e-5, a later one by three times what PyTorch with one thread and with two has differed by so
/// far, or by 1e-6 if that is less.
///
/// # Errors
/// As [`compare`].
pub fn compare_f32(
    client: &Client,
    network: Network,
    size: Size,
    references: [&Reference; 2],
) -> Result<Comparison> {
    let [theirs, others] = references.map(|reference| &reference.losses);
    let ours = losses(
        client,
        network,
        size,
        references[0],
        DType::F32,
        theirs.len(),
    )?;
    let mut largest: f64 = 0.0;
    let allowed = theirs
        .iter()
        .zip(others)
        .enumerate()
        .map(|(step, (&a, &b))| {
            largest = largest.max(apart(b, a));
            if step == 0 {
                1e-5
            } else {
                (3.0 * largest).max(1e-6)
            }
        });
    Ok(Comparison {
        allowed: allowed.collect(),
        theirs: theirs.clone(),
        ours,
    })
}
