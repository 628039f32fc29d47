//! Published models on disk: a directory of Hugging Face (`config.json`, weights, `tokenizer.json`),
//! or a GGUF file, whose metadata is its configuration. Nothing here knows an architecture: each
//! model reads its own [`Config`], and returns its description and name map as a
//! [`PretrainedModel`].

mod config;

use std::path::{Path, PathBuf};

use halite_core::{Array, Client, Error, ErrorKind, Result, files::read_input, tree::Of};
use halite_nn::Model;
use halite_weights::{Format, NameMap, TensorSource, WeightFile, WeightLoader, open};
use serde_json::Value;

pub use config::Config;

/// An opened model directory or file: configuration, weights of which only the headers have been
/// read, and the path of the tokenizer.
///
/// ```
/// use halite_core::HostArray;
/// use halite_models::Pretrained;
/// # use halite_weights::{SafetensorsWriter, TensorInfo};
/// use halite_weights::TensorSource;
///
/// # fn main() -> halite_core::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path();
/// # std::fs::write(dir.join("config.json"), r#"{"model_type": "llama", "hidden_size": 64}"#)?;
/// # let table = HostArray::from_slice(&[0.0f32; 128], [2, 64])?;
/// # let info = TensorInfo { name: "embed.weight".into(), ty: table.ty().clone() };
/// # let mut writer = SafetensorsWriter::create(dir.join("model.safetensors"), &[info], &Default::default())?;
/// # writer.write(&table)?;
/// # writer.finish()?;
/// let source = Pretrained::open(dir)?;
/// let mut config = source.config()?;
/// let (hidden, layers) = (config.size("hidden_size"), config.size_or("num_hidden_layers", 12));
/// config.finish()?; // one error with every field that is missing or of another type
/// assert_eq!((hidden, layers), (64, 12));
/// assert_eq!(source.weights().tensors()[0].name, "embed.weight");
/// assert!(source.tokenizer().is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Pretrained {
    origin: String,
    directory: PathBuf,
    /// Path and contents of `config.json`, or the scalars of a GGUF file's metadata.
    config: Option<(String, Value)>,
    weights: WeightFile,
}

impl Pretrained {
    /// Opens a model directory, or a file of weights: a GGUF file, or a file beside its
    /// `config.json`.
    ///
    /// # Errors
    /// If there are no weights, or weights of several formats: then name one of the files. If the
    /// weights or `config.json` cannot be read or are damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let weights = open(path)?;
        let directory = match path.is_dir() {
            true => path.to_owned(),
            false => match path.parent() {
                Some(parent) if parent != Path::new("") => parent.to_owned(),
                _ => PathBuf::from("."),
            },
        };
        let config = match weights.format() {
            Format::Gguf => Some((weights.origin(), config::of_metadata(weights.metadata()))),
            _ => read_json(&directory.join("config.json"))?,
        };
        Ok(Pretrained {
            origin: path.display().to_string(),
            directory,
            config,
            weights,
        })
    }

    /// The path that was opened, for messages.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The directory of the model: the one that was opened, or that of the file.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether this is a GGUF file, whose names and fields are llama.cpp's.
    pub fn is_gguf(&self) -> bool {
        self.weights.format() == Format::Gguf
    }

    /// The fields of `config.json`, or the scalars of a GGUF file's metadata.
    ///
    /// # Errors
    /// If there is no `config.json`.
    pub fn config(&self) -> Result<Config<'_>> {
        let Some((origin, fields)) = &self.config else {
            let message = format!(
                "no config.json in `{}`; a model is opened with its config.json beside the weights, \
                 or from a GGUF file",
                self.directory.display()
            );
            return Err(Error::invalid("open model", message));
        };
        Ok(Config::new(origin, fields))
    }

    /// The fields of another JSON file of the directory, such as `generation_config.json`, if it
    /// is there.
    ///
    /// # Errors
    /// If it cannot be read, or is not an object of JSON.
    pub fn json(&self, name: &str) -> Result<Option<Value>> {
        Ok(read_json(&self.directory.join(name))?.map(|(_, value)| value))
    }

    /// The elements of a JSON file of the directory that has a list, if it is there.
    ///
    /// # Errors
    /// If it cannot be read, or is not a list of JSON.
    pub(crate) fn json_list(&self, name: &str) -> Result<Option<Vec<Value>>> {
        match read_value(&self.directory.join(name))? {
            None => Ok(None),
            Some((_, Value::Array(values))) => Ok(Some(values)),
            Some((origin, _)) => Err(corrupt(&origin, "is not a list of JSON")),
        }
    }

    /// Tokens that end a text: `eos_token_id` of `generation_config.json` or else of `config.json`;
    /// the end-of-text and end-of-turn tokens of a GGUF file. Empty if none are declared.
    ///
    /// # Errors
    /// If a file of JSON is damaged, or has something else there.
    pub fn stop_tokens(&self) -> Result<Vec<u32>> {
        const EOS: &str = "eos_token_id";
        if self.is_gguf() {
            let mut config = self.config()?;
            let mut tokens = config.tokens("tokenizer.ggml.eos_token_id");
            tokens.extend(config.tokens("tokenizer.ggml.eot_token_id"));
            config.finish()?;
            tokens.sort_unstable();
            tokens.dedup();
            return Ok(tokens);
        }
        let name = "generation_config.json";
        let mut tokens = Vec::new();
        if let Some(fields) = self.json(name)? {
            let origin = self.directory.join(name).display().to_string();
            let mut config = Config::new(&origin, &fields);
            tokens = config.tokens(EOS);
            config.finish()?;
        }
        if tokens.is_empty() && self.config.is_some() {
            let mut config = self.config()?;
            tokens = config.tokens(EOS);
            config.finish()?;
        }
        Ok(tokens)
    }

    /// The weights.
    pub fn weights(&self) -> &WeightFile {
        &self.weights
    }

    /// Path of `tokenizer.json`, if the directory has it.
    pub fn tokenizer(&self) -> Option<PathBuf> {
        let path = self.directory.join("tokenizer.json");
        path.is_file().then_some(path)
    }
}

/// Path and contents of a file of JSON, if it exists.
fn read_json(path: &Path) -> Result<Option<(String, Value)>> {
    let read = read_value(path)?;
    if let Some((origin, _)) = read.as_ref().filter(|(_, value)| !value.is_object()) {
        return Err(corrupt(origin, "is not a JSON object"));
    }
    Ok(read)
}

fn corrupt(origin: &str, what: &str) -> Error {
    let message = format!("`{origin}` {what}");
    Error::new(ErrorKind::Corrupt, "open model", message)
}

/// Any value of JSON in a file, if it is there.
fn read_value(path: &Path) -> Result<Option<(String, Value)>> {
    let origin = path.display().to_string();
    let bytes = match read_input(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let message = format!("cannot read `{origin}`");
            return Err(Error::new(ErrorKind::Io, "open model", message).caused_by(error));
        }
    };
    let value: Value = serde_json::from_slice(&bytes)
        .map_err(|error| corrupt(&origin, "is not valid JSON").caused_by(error))?;
    Ok(Some((origin, value)))
}

/// A model's description with the weights it is loaded from: what `from_pretrained` returns.
///
/// The description can be changed before loading, for example to replace a head.
#[derive(Debug)]
pub struct PretrainedModel<M> {
    /// Types and initialization of the parameters.
    pub model: M,
    /// The names of the parameters in the file.
    pub names: NameMap,
    /// Configuration, weights and tokenizer.
    pub source: Pretrained,
}

impl<M: Model> PretrainedModel<M> {
    /// Combines a description and a map with the weights they are for.
    ///
    /// # Errors
    /// If the configuration contradicts the weights: one error with every tensor that is missing, is
    /// not used, or has other dimensions.
    pub fn new(model: M, names: NameMap, source: Pretrained) -> Result<Self> {
        let report = WeightLoader::new(&source.weights, &names).report(&model)?;
        if !report.is_complete() {
            let config = match &source.config {
                Some((origin, _)) if !source.is_gguf() => format!("`{origin}`"),
                _ => "the configuration".to_owned(),
            };
            let message = format!(
                "{config} and the weights of {} contradict each other:\n{report}",
                source.origin
            );
            return Err(Error::invalid("open model", message.trim_end()));
        }
        Ok(PretrainedModel {
            model,
            names,
            source,
        })
    }

    /// A strict loader of the weights, to which options are added: element type, sharding, a
    /// replaced head.
    pub fn loader(&self) -> WeightLoader<'_> {
        WeightLoader::new(&self.source.weights, &self.names)
    }

    /// Loads the weights onto the client's first device.
    ///
    /// # Errors
    /// As [`WeightLoader::load`].
    #[track_caller]
    pub fn load(&self, client: &Client) -> Result<Of<M, Array>> {
        Ok(self.loader().load(client, &self.model)?.model)
    }
}
