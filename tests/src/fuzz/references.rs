//! Mutated files of formats that other packages own, read here and by these packages
//! (`tests/published/references.py`): both have the same values, or one refuses the file. Other values,
//! a panic or a hang are faults. Files that only halite accepts are counted, and kept to be looked at.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use halite::{
    core::{DType, HostArray, TensorType, guard},
    data::{images, records::Records, text::Subwords},
    weights::{self, TensorSource, open_bytes},
};
use serde::Serialize;

use super::{mutate, repair, targets::target};
use crate::{
    published::{self, distance},
    python,
    random::Random,
};

/// What a file has: values by name.
type Values = BTreeMap<String, HostArray>;

/// A format of files, and how it is read here.
#[derive(Clone, Copy)]
struct Format {
    name: &'static str,
    /// The target with its words and valid files; the script adds others.
    target: &'static str,
    read: fn(&[u8], &Model) -> Result<Values, String>,
    /// Makes checksums right again, so that what they protect is read.
    repair: Option<fn(&mut [u8])>,
    /// How far values may be from those of the reference.
    tolerance: Tolerance,
}

#[derive(Clone, Copy)]
enum Tolerance {
    Bits,
    /// Relative to the largest value.
    Relative(f64),
    /// Mean difference of the samples of an image.
    Samples(f64),
}

/// The formats, by their names on the command line.
const FORMATS: &[Format] = &[
    Format {
        repair: Some(repair::png),
        ..image("png")
    },
    // Decoders differ in how they round and in how they enlarge colors.
    Format {
        tolerance: Tolerance::Samples(2.0),
        ..image("jpeg")
    },
    tensors("torch", "torch"),
    tensors("safetensors", "safetensors"),
    Format {
        tolerance: Tolerance::Relative(1e-6),
        ..tensors("gguf", "gguf")
    },
    tensors("npz", "torch"),
    Format {
        name: "tfrecord",
        target: "example",
        read: |data, _| records(data),
        repair: Some(repair::records),
        tolerance: Tolerance::Bits,
    },
    Format {
        name: "tokenizer",
        target: "tokenizer",
        read: |data, _| tokens(data),
        repair: None,
        tolerance: Tolerance::Bits,
    },
    model("configuration"),
    model("adapters"),
];

const fn image(name: &'static str) -> Format {
    Format {
        name,
        target: "image",
        read: |data, _| {
            let image = images::decode_image(data).map_err(|error| error.to_string())?;
            Ok([("image".to_owned(), image)].into())
        },
        repair: None,
        tolerance: Tolerance::Bits,
    }
}

const fn tensors(name: &'static str, target: &'static str) -> Format {
    Format {
        name,
        target,
        read: |data, _| arrays(data).map_err(|error| error.to_string()),
        repair: None,
        tolerance: Tolerance::Bits,
    }
}

const fn model(name: &'static str) -> Format {
    Format {
        name,
        target: OBJECT,
        read: |data, model| model.values(data),
        repair: None,
        tolerance: Tolerance::Relative(2e-4),
    }
}

/// The target of a format that is an object of JSON, for its words.
const OBJECT: &str = "checkpoint_manifest";

/// Names of the formats.
pub fn formats() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().map(|format| format.name)
}

/// A campaign against the references.
#[derive(Debug)]
pub struct References {
    /// Python with the packages that the script names; `None` is that of the tests, with NumPy.
    pub python: Option<PathBuf>,
    /// Names of formats [default: all].
    pub formats: Vec<String>,
    /// Files of each format.
    pub inputs: u64,
    /// Seed; each file is a function of the seed and its number.
    pub seed: u64,
    /// Longest time that one file may take here.
    pub deadline: Duration,
    /// Where the files are written, and stay.
    pub directory: PathBuf,
}

/// Results for a format.
#[derive(Debug, Default, Serialize)]
struct Counts {
    files: u64,
    /// Both read the same values.
    same: u64,
    /// Both refuse.
    refused: u64,
    /// Only halite refuses.
    stricter: u64,
    /// Only halite reads.
    only_here: u64,
    wrong: u64,
}

/// Results for all formats.
#[derive(Debug, Serialize)]
pub struct Compared {
    seed: u64,
    formats: BTreeMap<&'static str, Counts>,
    /// Files that only halite reads, with the reasons of the references.
    #[serde(skip)]
    pub only_here: Vec<String>,
    /// Failures, each with its file.
    pub failures: Vec<String>,
}

impl Compared {
    /// Files of which both have the same values.
    pub fn same(&self) -> u64 {
        self.formats.values().map(|counts| counts.same).sum()
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["files", "same", "refused", "stricter", "only here", "wrong"];
        write!(f, "{:<14}", "format")?;
        names.iter().try_for_each(|name| write!(f, "{name:>10}"))?;
        for (format, counts) in &self.formats {
            let Counts {
                files,
                same,
                refused,
                stricter,
                only_here,
                wrong,
            } = counts;
            write!(f, "\n{format:<14}")?;
            let counts = [files, same, refused, stricter, only_here, wrong];
            counts
                .iter()
                .try_for_each(|count| write!(f, "{count:>10}"))?;
        }
        write!(f, "\nseed {}: {} wrong", self.seed, self.failures.len())
    }
}

impl References {
    /// Runs the campaign.
    ///
    /// # Errors
    /// If a format is not known, the script fails, or a file cannot be written or read.
    pub fn run(&self) -> Result<Compared, String> {
        let mut compared = Compared {
            seed: self.seed,
            formats: BTreeMap::new(),
            only_here: Vec::new(),
            failures: Vec::new(),
        };
        let unknown = self
            .formats
            .iter()
            .find(|name| !formats().any(|known| known == **name));
        if let Some(name) = unknown {
            let known: Vec<&str> = formats().collect();
            return Err(format!(
                "unknown format `{name}`; known: {}",
                known.join(", ")
            ));
        }
        let is_wanted = |format: &&Format| {
            self.formats.is_empty() || self.formats.iter().any(|name| name == format.name)
        };
        for format in FORMATS.iter().filter(is_wanted) {
            for model in Model::of(format.name)? {
                self.compare(*format, Arc::new(model), &mut compared)?;
            }
        }
        Ok(compared)
    }

    fn compare(
        &self,
        format: Format,
        model: Arc<Model>,
        compared: &mut Compared,
    ) -> Result<(), String> {
        let directory = self.directory.join(format.name).join(&model.name);
        let seeds = self.seeds(format, &model, &directory)?;
        let inputs: Vec<Vec<u8>> = (0..self.inputs.div_ceil(model.of))
            .map(|number| input(format, &seeds, self.seed, number))
            .collect();
        let path = |number: usize| directory.join(format!("{number:06}"));
        for (number, input) in inputs.iter().enumerate() {
            fs::write(path(number), input).map_err(failed(&directory))?;
        }
        let mut script = self.script(format.name, "read", &directory);
        script.args(&model.directories);
        published::run_script(&mut script)?;
        let counts = compared.formats.entry(format.name).or_default();
        let mut reader = Reader::start(format, model.clone());
        for (number, input) in inputs.into_iter().enumerate() {
            counts.files += 1;
            let path = path(number);
            let shown = path
                .strip_prefix(&self.directory)
                .unwrap_or(&path)
                .display();
            let theirs = theirs(&path)?;
            let ours = reader.read(input, self.deadline).unwrap_or_else(|| {
                // A thread cannot be ended.
                reader = Reader::start(format, model.clone());
                Err(Fault(format!("not done after {:?}", self.deadline)))
            });
            let wrong = match (ours, theirs) {
                (Err(Fault(what)), _) => Some(what),
                (Ok(Err(_)), Err(_)) => {
                    counts.refused += 1;
                    None
                }
                (Ok(Err(reason)), Ok(_)) => {
                    counts.stricter += 1;
                    fs::write(path.with_extension("stricter"), reason).map_err(failed(&path))?;
                    None
                }
                (Ok(Ok(_)), Err(reason)) => {
                    counts.only_here += 1;
                    compared.only_here.push(format!("{shown}: {reason}"));
                    None
                }
                (Ok(Ok(ours)), Ok(theirs)) => {
                    let different = difference(&ours, &theirs, format.tolerance);
                    counts.same += u64::from(different.is_none());
                    different
                }
            };
            if let Some(what) = wrong {
                counts.wrong += 1;
                compared.failures.push(format!("{shown}: {what}"));
            }
        }
        Ok(())
    }

    fn script(&self, format: &str, action: &str, directory: &Path) -> std::process::Command {
        let mut script = python::script(self.python.as_deref(), "published/references.py");
        script.args([format, action]).arg(directory);
        script
    }

    /// Valid files: those of the target and of the package, or the configuration of the model.
    fn seeds(
        &self,
        format: Format,
        model: &Model,
        directory: &Path,
    ) -> Result<Vec<Vec<u8>>, String> {
        if let Some(configuration) = &model.configuration {
            fs::create_dir_all(directory).map_err(failed(directory))?;
            return Ok(vec![configuration.clone()]);
        }
        let written = directory.join("seeds");
        fs::create_dir_all(&written).map_err(failed(&written))?;
        published::run_script(&mut self.script(format.name, "seeds", &written))?;
        let read = |path: PathBuf| fs::read(&path).map_err(failed(&path));
        let mut seeds = published::sorted(&written)?
            .into_iter()
            .map(read)
            .collect::<Result<Vec<_>, String>>()?;
        let of_target = target(format.target).map(|target| (target.seeds)());
        let is_valid = |seed: &Vec<u8>| match format.name {
            "png" => seed.starts_with(b"\x89PNG"),
            "jpeg" => seed.starts_with(b"\xff\xd8"),
            "npz" => {
                seed.starts_with(b"PK") && arrays(seed).is_ok_and(|arrays| arrays.contains_key("a"))
            }
            "torch" => !arrays(seed).is_ok_and(|arrays| arrays.contains_key("a")),
            "tfrecord" => false,
            _ => true,
        };
        seeds.extend(of_target.into_iter().flatten().filter(is_valid));
        Ok(seeds)
    }
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

/// The file of this number: the seeds, then mutations of them.
fn input(format: Format, seeds: &[Vec<u8>], seed: u64, number: u64) -> Vec<u8> {
    let valid = usize::try_from(number)
        .ok()
        .and_then(|number| seeds.get(number));
    if let Some(valid) = valid {
        return valid.clone();
    }
    let mut random = Random::new(seed, number);
    let words = target(format.target).map_or(&[][..], |target| target.dictionary);
    let is_object = format.target == OBJECT && random.percent(70);
    let mut bytes = match is_object {
        true => mutate::fields(&seeds[0], &mut random),
        false => mutate::mutated(seeds, words, &mut random),
    };
    if let Some(repair) = format.repair.filter(|_| random.percent(60)) {
        repair(&mut bytes);
    }
    bytes
}

/// What the reference has of a file, or why it refuses it.
fn theirs(path: &Path) -> Result<Result<Values, String>, String> {
    let refused = path.with_extension("refused");
    if refused.exists() {
        return Ok(Err(fs::read_to_string(&refused).map_err(failed(&refused))?));
    }
    let read = path.with_extension("safetensors");
    let bytes = fs::read(&read).map_err(failed(&read))?;
    let named =
        |(name, value): (String, HostArray)| (name.trim_start_matches("t:").to_owned(), value);
    let values = arrays(&bytes).map_err(|error| format!("{}: {error}", read.display()))?;
    Ok(Ok(values.into_iter().map(named).collect()))
}

/// A panic or a hang.
struct Fault(String);

type Read = Result<Result<Values, String>, Fault>;

/// Reads files on a thread of its own.
struct Reader {
    inputs: mpsc::Sender<Vec<u8>>,
    values: mpsc::Receiver<Read>,
}

impl Reader {
    fn start(format: Format, model: Arc<Model>) -> Self {
        let (inputs, received) = mpsc::channel::<Vec<u8>>();
        let (send, values) = mpsc::channel();
        thread::spawn(move || {
            for input in received {
                let read = guard::call(|| (format.read)(&input, &model));
                let read = read.map_err(|panic| Fault(format!("it panics: {panic}")));
                if send.send(read).is_err() {
                    return;
                }
            }
        });
        Reader { inputs, values }
    }

    /// `None` after the deadline.
    fn read(&self, input: Vec<u8>, deadline: Duration) -> Option<Read> {
        self.inputs.send(input).ok()?;
        self.values.recv_timeout(deadline).ok()
    }
}

/// How two readings differ.
fn difference(ours: &Values, theirs: &Values, tolerance: Tolerance) -> Option<String> {
    let names = |values: &Values| values.keys().cloned().collect::<Vec<_>>();
    let (named, expected) = (names(ours), names(theirs));
    if named != expected {
        return Some(format!("{named:?} for {expected:?}"));
    }
    ours.iter()
        .zip(theirs.values())
        .find_map(|((name, ours), theirs)| {
            let of = |what: String| Some(format!("`{name}`: {what}"));
            if ours.ty().dims() != theirs.ty().dims() {
                return of(format!("{} for {}", ours.ty(), theirs.ty()));
            }
            if ours == theirs || ours.ty() == theirs.ty() && ours.bytes() == theirs.bytes() {
                return None;
            }
            match tolerance {
                Tolerance::Relative(most) if ours.ty().dtype().is_float() => {
                    match distance(ours, theirs) {
                        Ok(far) if far <= most => None,
                        // The same infinities and NaN, or others?
                        Ok(_) if same_classes(ours, theirs, most) => None,
                        Ok(far) => of(format!("off by {far:.1e} of the largest")),
                        Err(what) => of(what),
                    }
                }
                Tolerance::Samples(most) if ours.ty() == theirs.ty() => {
                    let pairs = ours.bytes().iter().zip(theirs.bytes());
                    let far: u64 = pairs.map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
                    let mean = far as f64 / ours.bytes().len().max(1) as f64;
                    (mean > most)
                        .then(|| format!("`{name}`: samples are off by {mean:.1} in the mean"))
                }
                _ => of(format!(
                    "{} with other values than {}",
                    ours.ty(),
                    theirs.ty()
                )),
            }
        })
}

/// Whether two arrays are the same where one is not finite, and close elsewhere.
fn same_classes(ours: &HostArray, theirs: &HostArray, most: f64) -> bool {
    let wide = |array: &HostArray| {
        Some(
            array
                .to_float(DType::F64)
                .ok()?
                .as_slice::<f64>()
                .ok()?
                .to_vec(),
        )
    };
    let (Some(ours), Some(theirs)) = (wide(ours), wide(theirs)) else {
        return false;
    };
    ours.iter().zip(&theirs).all(|(a, b)| {
        a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= most * a.abs().max(b.abs())
    })
}

/// All tensors of a file of weights.
fn arrays(data: &[u8]) -> halite::core::Result<Values> {
    let file = open_bytes(data.to_vec(), "file")?;
    let read = |info: &weights::TensorInfo| Ok((info.name.clone(), real(file.read(&info.name)?)?));
    file.tensors().iter().map(read).collect()
}

/// A complex number as two others, as the references write it.
fn real(array: HostArray) -> halite::core::Result<HostArray> {
    let part = match array.ty().dtype() {
        DType::C64 => DType::F32,
        DType::C128 => DType::F64,
        _ => return Ok(array),
    };
    let dims = [array.ty().dims(), &[2]].concat();
    HostArray::from_bytes(array.bytes(), TensorType::new(part, dims))
}

fn bytes_of(bytes: &[u8]) -> HostArray {
    HostArray::from_slice(bytes, [bytes.len()]).expect("as many values as elements")
}

fn records(data: &[u8]) -> Result<Values, String> {
    let payloads = Records::new(data).collect::<halite::core::Result<Vec<_>>>();
    let payloads = payloads.map_err(|error| error.to_string())?;
    let named = payloads.iter().enumerate();
    Ok(named
        .map(|(number, payload)| (number.to_string(), bytes_of(payload)))
        .collect())
}

/// The texts that `references.py` encodes.
const TEXTS: [&str; 5] = [
    "I'll say  it's 3rd,\n\n na\u{ef}ve",
    "",
    "[UNK] <s>\u{e9}",
    "the cats sat, it is",
    "b c a \u{1f600}",
];

fn tokens(data: &[u8]) -> Result<Values, String> {
    let text = std::str::from_utf8(data).map_err(|error| error.to_string())?;
    let tokenizer = Subwords::from_json(text).map_err(|error| error.to_string())?;
    let mut values = Values::new();
    for (number, text) in TEXTS.iter().enumerate() {
        let ids = tokenizer
            .encode_input(text, None)
            .map_err(|error| error.to_string())?;
        let ids = HostArray::from_slice(&ids, [ids.len()]).expect("as many values as elements");
        values.insert(number.to_string(), ids);
        let plain = tokenizer.encode(text).map_err(|error| error.to_string())?;
        let decoded = tokenizer.decode(&plain);
        values.insert(format!("decoded {number}"), bytes_of(decoded.as_bytes()));
    }
    Ok(values)
}

/// The model whose configuration is mutated; of other formats, none.
#[derive(Default)]
struct Model {
    name: String,
    /// Number of models that share the files of the format.
    of: u64,
    configuration: Option<Vec<u8>>,
    /// The model, and the adapters.
    directories: Vec<PathBuf>,
    client: Option<halite::core::Client>,
}

impl Model {
    fn of(format: &str) -> Result<Vec<Self>, String> {
        let golden = |name: &str| {
            let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/golden");
            models.join(name)
        };
        let names: &[&[&str]] = match format {
            "configuration" => &[&["llama3"], &["mistral"], &["qwen2"], &["gpt2"], &["bert"]],
            "adapters" => &[&["bert", "lora"]],
            _ => {
                return Ok(vec![Model {
                    of: 1,
                    ..Model::default()
                }]);
            }
        };
        let client = published::client()?;
        let model = |directories: &&[&str]| {
            let file = ["config.json", "adapter_config.json"][directories.len() - 1];
            let directories: Vec<PathBuf> = directories.iter().map(|name| golden(name)).collect();
            let last = &directories[directories.len() - 1];
            let configuration = fs::read(last.join(file)).map_err(failed(last))?;
            let name = last
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            Ok(Model {
                name,
                of: names.len() as u64,
                configuration: Some(configuration),
                directories,
                client: Some(client.clone()),
            })
        };
        names.iter().map(model).collect()
    }

    /// Results of the model with another configuration.
    fn values(&self, configuration: &[u8]) -> Result<Values, String> {
        let client = self.client.as_ref().ok_or("no model")?;
        let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
        let case = scratch.path();
        for (directory, name) in self.directories.iter().zip(["model", "adapters"]) {
            crate::process::link_tree(directory, &case.join(name)).map_err(failed(directory))?;
        }
        let written = match self.directories.len() {
            1 => case.join("model/config.json"),
            _ => case.join("adapters/adapter_config.json"),
        };
        fs::write(&written, configuration).map_err(failed(&written))?;
        let adapters = case.join("adapters");
        let adapters = adapters.exists().then_some(&*adapters);
        let token = |row: i32, place: i32| (7 * place + 3 * row + 3) % 20;
        let tokens: Vec<i32> = (0..2)
            .flat_map(|row| (0..7).map(move |place| token(row, place)))
            .collect();
        let inputs = |values: &[i32]| {
            HostArray::from_slice(values, [2, 7]).expect("as many values as elements")
        };
        let inputs = [("tokens", inputs(&tokens)), ("mask", inputs(&[1; 14]))]
            .map(|(name, values)| (name.to_owned(), values));
        let inputs = weights::HostTensors::from(BTreeMap::from(inputs));
        let is_encoder = self.directories[0].ends_with("bert");
        let values = match is_encoder {
            true => published::encoder(client, &case.join("model"), adapters, &inputs),
            false => published::decoder(client, &case.join("model"), adapters, &inputs),
        };
        Ok([(
            "values".to_owned(),
            values.map_err(|error| error.to_string())?,
        )]
        .into())
    }
}
