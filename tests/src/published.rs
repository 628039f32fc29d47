//! Small models of random settings, in the files of other programs, against what these compute.
//!
//! `tests/published/make.py` writes the models with transformers, peft, sentence-transformers and gguf.
//! Halite has the same results within the rounding of `f32`, or refuses a model by an error that names
//! a key of it: another result is a fault.
//!
//! On the command line: `cargo run -p halite-tests --bin published -- --python PYTHON --cases 300`.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
};

use halite::{
    backends::Accelerator,
    core::{
        Array, Client, DType, HostArray, Result, Sharding, Tree, guard,
        tree::{Empty, Leaf},
    },
    models::{Bert, Pretrained, SentenceEncoder, open_decoder},
    nn::{Jit, Transformer},
    weights::{self, TensorSource},
};
use serde::Serialize;
use serde_json::Value;

use crate::python;

/// Largest difference, relative to the largest value: `f32` here, `f64` there.
const TOLERANCE: f64 = 2e-4;

/// What is run.
#[derive(Debug)]
pub struct Options {
    /// Python with the packages that the script names.
    pub python: PathBuf,
    /// Families of models [default: all].
    pub families: Vec<String>,
    /// Models of each family.
    pub cases: u64,
    /// Seed of the models.
    pub seed: u64,
    /// Where they are written, and stay.
    pub directory: PathBuf,
}

/// Results of a family.
#[derive(Debug, Default, Serialize)]
struct Family {
    cases: u64,
    right: u64,
    /// Models that were refused, by the key that the error names.
    refused: BTreeMap<String, u64>,
    wrong: u64,
}

/// Results of all families.
#[derive(Debug, Serialize)]
pub struct Summary {
    seed: u64,
    families: BTreeMap<String, Family>,
    /// Failures, each with the directory of its model.
    pub failures: Vec<String>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["family", "cases", "right", "refused", "wrong"];
        let [family, counts @ ..] = header;
        write!(f, "{family:<16}")?;
        counts.iter().try_for_each(|name| write!(f, "{name:>9}"))?;
        for (name, family) in &self.families {
            let refused: u64 = family.refused.values().sum();
            write!(f, "\n{name:<16}")?;
            let counts = [family.cases, family.right, refused, family.wrong];
            counts
                .iter()
                .try_for_each(|count| write!(f, "{count:>9}"))?;
        }
        let wrong = self.failures.len();
        write!(f, "\nseed {}: {wrong} wrong", self.seed)
    }
}

/// Makes the models and compares all.
///
/// # Errors
/// If the script fails, or what it wrote cannot be read.
pub fn run(options: &Options) -> Result<Summary, String> {
    let mut command = python::script(Some(&options.python), "published/make.py");
    command.arg(&options.directory).args(&options.families);
    command.args(["--cases", &options.cases.to_string()]);
    command.args(["--seed", &options.seed.to_string()]);
    run_script(&mut command)?;
    let mut summary = Summary {
        seed: options.seed,
        families: BTreeMap::new(),
        failures: Vec::new(),
    };
    let client = client()?;
    for family in sorted(&options.directory)? {
        for case in sorted(&family)? {
            let name = family.file_name().unwrap_or_default().to_string_lossy();
            let counts = summary.families.entry(name.into_owned()).or_default();
            counts.cases += 1;
            match judged(&client, &case) {
                Ok(None) => counts.right += 1,
                Ok(Some(key)) => *counts.refused.entry(key).or_default() += 1,
                Err(how) => {
                    counts.wrong += 1;
                    let case = case.strip_prefix(&options.directory).unwrap_or(&case);
                    summary.failures.push(format!("{}: {how}", case.display()));
                }
            }
        }
    }
    Ok(summary)
}

/// Runs a script to its end.
pub(crate) fn run_script(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

pub(crate) fn sorted(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let entries = fs::read_dir(directory).map_err(failed)?;
    let paths = entries.map(|entry| Ok(entry.map_err(failed)?.path()));
    let mut paths = paths.collect::<Result<Vec<_>, String>>()?;
    paths.sort();
    Ok(paths)
}

/// The embedded executor, with one device.
///
/// # Errors
/// If it does not open.
pub fn client() -> Result<Client, String> {
    let embedded: Accelerator = "embedded".parse().map_err(|error| format!("{error}"))?;
    embedded.open().map_err(|error| format!("{error}"))
}

/// `None` for the same results, or the key for which the model is refused.
fn judged(client: &Client, case: &Path) -> Result<Option<String>, String> {
    let text = fs::read_to_string(case.join("case.json")).map_err(|error| error.to_string())?;
    let about: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let must_refuse = about["must_refuse"]
        .as_array()
        .is_some_and(|keys| !keys.is_empty());
    let drawn = &about["drawn"];
    match guard::call(|| values(client, case, &about)) {
        Err(panic) => Err(format!("it panics: {panic}; drawn: {drawn}")),
        Ok(Err(error)) => {
            let error = error.to_string();
            let named = named(&error, &about, case);
            named
                .map(Some)
                .ok_or_else(|| format!("an error that names no key: {error}; drawn: {drawn}"))
        }
        Ok(Ok(_)) if must_refuse => Err(format!("it is not refused; drawn: {drawn}")),
        Ok(Ok(ours)) => {
            let far = expected(case).and_then(|theirs| distance(&ours, &theirs));
            let far = far.map_err(|error| format!("{error}; drawn: {drawn}"))?;
            match far <= TOLERANCE {
                true => Ok(None),
                false => Err(format!("off by {far:.1e} of the largest; drawn: {drawn}")),
            }
        }
    }
}

fn expected(case: &Path) -> Result<HostArray, String> {
    let file =
        weights::open(case.join("expected.safetensors")).map_err(|error| error.to_string())?;
    file.read("values").map_err(|error| error.to_string())
}

/// The largest difference of two arrays of the same dimensions, relative to the largest value.
///
/// # Errors
/// If they have other dimensions.
pub fn distance(ours: &HostArray, theirs: &HostArray) -> Result<f64, String> {
    if ours.ty().dims() != theirs.ty().dims() {
        return Err(format!("{} for {}", ours.ty(), theirs.ty()));
    }
    let wide = |array: &HostArray| -> Result<Vec<f64>, String> {
        let wide = array
            .to_float(DType::F64)
            .map_err(|error| error.to_string())?;
        Ok(wide.as_slice().map_err(|error| error.to_string())?.to_vec())
    };
    let (ours, theirs) = (wide(ours)?, wide(theirs)?);
    let largest = theirs
        .iter()
        .fold(1e-3f64, |most, value| most.max(value.abs()));
    let far = |(ours, theirs): (&f64, &f64)| match (ours - theirs).abs() {
        far if far.is_nan() => f64::INFINITY,
        far => far,
    };
    Ok(ours.iter().zip(&theirs).map(far).fold(0.0, f64::max) / largest)
}

/// The key of what was drawn, or else of the files, that an error names.
fn named(error: &str, about: &Value, case: &Path) -> Option<String> {
    let mut keys = Vec::new();
    let field = error.split('`').skip(1).step_by(2).find(|name| {
        let is_key = |file: &str| {
            let text = fs::read(case.join(file)).unwrap_or_default();
            let fields: Value = serde_json::from_slice(&text).unwrap_or_default();
            fields.get(name).is_some()
        };
        ["model/config.json", "adapters/adapter_config.json"]
            .into_iter()
            .any(is_key)
    });
    keys_of(&about["drawn"], &mut keys);
    for key in about["must_refuse"].as_array().into_iter().flatten() {
        keys.extend(key.as_str().map(str::to_owned));
    }
    // The longest first: `type` is in many words.
    keys.sort_by_key(|key| std::cmp::Reverse(key.len()));
    let drawn = keys
        .into_iter()
        .find(|key| !key.is_empty() && error.contains(&**key));
    // Dimensions that contradict those of the tensors, all of which are in the report.
    let is_report =
        error.contains("does not fit the model") || error.contains("contradict each other");
    let tensors = is_report.then_some("the tensors");
    drawn.or_else(|| field.or(tensors).map(str::to_owned))
}

/// All keys and texts of a value of JSON.
fn keys_of(value: &Value, keys: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                keys.extend(key.split(' ').map(str::to_owned));
                keys_of(value, keys);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| keys_of(value, keys)),
        Value::String(text) => keys.push(text.clone()),
        _ => {}
    }
}

/// What halite computes for a model and its inputs.
fn values(client: &Client, case: &Path, about: &Value) -> Result<HostArray> {
    let mut model = case.join("model");
    if model.join("model.gguf").exists() {
        model = model.join("model.gguf");
    }
    let adapters = case.join("adapters");
    let adapters = adapters.exists().then_some(&*adapters);
    let kind = about["kind"].as_str().unwrap_or_default();
    if kind == "sentence" {
        let texts: Vec<&str> = (about["texts"].as_array().into_iter().flatten())
            .filter_map(Value::as_str)
            .collect();
        return SentenceEncoder::from_pretrained(client, model)?.embed(&texts);
    }
    let inputs = weights::open(case.join("expected.safetensors"))?;
    match kind {
        "decoder" => decoder(client, &model, adapters, &inputs),
        _ => encoder(client, &model, adapters, &inputs),
    }
}

fn uploaded(client: &Client, inputs: &dyn TensorSource, name: &str) -> Result<Leaf<Array>> {
    let sharding = Sharding::single(client.local_devices()[0]);
    Ok(Leaf(Array::upload(client, &inputs.read(name)?, &sharding)?))
}

pub(crate) fn decoder(
    client: &Client,
    model: &Path,
    adapters: Option<&Path>,
    inputs: &dyn TensorSource,
) -> Result<HostArray> {
    let opened = open_decoder(Pretrained::open(model)?)?;
    let model = match adapters {
        Some(directory) => opened.load_adapted(client, &opened.names, directory)?,
        None => opened.load(client)?,
    };
    let program = Jit::<Empty<()>, (Transformer<()>, Leaf<()>), Leaf<()>>::function(
        client,
        |cx, (model, Leaf(tokens))| {
            cx.set_mode(false, None);
            Leaf(model.forward(tokens))
        },
    );
    let tokens = uploaded(client, inputs, "tokens")?;
    let Leaf(logits) = program.run_with((model.leaf_refs(), tokens.leaf_refs()))?;
    logits.read()
}

pub(crate) fn encoder(
    client: &Client,
    model: &Path,
    adapters: Option<&Path>,
    inputs: &dyn TensorSource,
) -> Result<HostArray> {
    let opened = Bert::from_pretrained(model)?;
    let model = match adapters {
        Some(directory) => opened.load_adapted(client, &opened.names, directory)?,
        None => opened.load(client)?,
    };
    let program = Jit::<Empty<()>, (Bert<()>, [Leaf<()>; 2]), Leaf<()>>::function(
        client,
        |cx, (model, [Leaf(tokens), Leaf(mask)])| {
            cx.set_mode(false, None);
            let mask = mask.ne(0);
            let features = model.forward(tokens, mask);
            // Features at padding have no meaning.
            Leaf(
                mask.unsqueeze(2)
                    .broadcast_to(features.dims())
                    .select(features, 0.0),
            )
        },
    );
    let given = [
        uploaded(client, inputs, "tokens")?,
        uploaded(client, inputs, "mask")?,
    ];
    let Leaf(features) = program.run_with((model.leaf_refs(), given.leaf_refs()))?;
    features.read()
}
