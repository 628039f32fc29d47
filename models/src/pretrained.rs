//! Published models on disk: a directory of Hugging Face (`config.json`, weights, `tokenizer.json`),
//! or a GGUF file, whose metadata is its configuration. Nothing here knows an architecture: each
//! model reads its own [`Config`], and returns its description and name map as a
//! [`PretrainedModel`].

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use halite_core::{
    Array, Client, Error, ErrorKind, Result,
    files::read_input,
    tree::{Of, Tree},
};
use halite_nn::{Adapted, Model};
use halite_weights::{
    Config, Format, KeyTable, MetadataValue, NameMap, TensorSource, WeightFile, WeightLoader, keys,
    load_adapters_ignoring, open,
};
use serde_json::{Number, Value};

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
    /// Path and contents of `config.json`, or a GGUF file's metadata.
    config: Option<(String, Value)>,
    weights: WeightFile,
    /// Keys of all files that count as missing.
    ignored: Vec<String>,
}

/// Texts of the tokens at which llama.cpp stops, whatever the metadata says of them.
const STOP_TEXTS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "<|end_of_text|>",
    "<end_of_utterance>",
];

/// Metadata of GGUF files with the ids of tokens at which llama.cpp stops.
const STOP_KEYS: &[&str] = &[
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.fim_pad_token_id",
    "tokenizer.ggml.fim_rep_token_id",
    "tokenizer.ggml.fim_sep_token_id",
];

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
        let directory = if path.is_dir() {
            path.to_owned()
        } else {
            match path.parent() {
                Some(parent) if parent != Path::new("") => parent.to_owned(),
                _ => PathBuf::from("."),
            }
        };
        let config = match weights.format() {
            Format::Gguf => Some((weights.origin(), fields_of(&weights))),
            _ => read_json(&directory.join("config.json"))?,
        };
        Ok(Pretrained {
            origin: path.display().to_string(),
            directory,
            config,
            weights,
            ignored: Vec::new(),
        })
    }

    /// Lets these keys count as missing, in all files of the model. A key that halite does not know,
    /// and that may change the results, is an error otherwise.
    pub fn ignore_keys<K: Into<String>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.ignored.extend(keys.into_iter().map(Into::into));
        self
    }

    /// The keys that count as missing.
    pub fn ignored_keys(&self) -> &[String] {
        &self.ignored
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

    /// The fields of `config.json`, or of a GGUF file's metadata. [`Config::finish`] refuses those
    /// that were not asked for, unless they are known to be harmless.
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
        let known = if self.is_gguf() {
            &keys::GGUF
        } else {
            &keys::CONFIG
        };
        Ok(Config::new(origin, fields).known(known, &self.ignored))
    }

    /// The fields of an object of JSON as a configuration; `known` are those that need no reader.
    pub(crate) fn config_of<'a>(
        &'a self,
        origin: &'a str,
        fields: &'a Value,
        known: &'static KeyTable,
    ) -> Config<'a> {
        Config::new(origin, fields).known(known, &self.ignored)
    }

    /// Reads a file of JSON of the directory, if it is there.
    ///
    /// # Errors
    /// If it cannot be read; what is wrong with its fields, and those that were not read and that
    /// `known` does not have.
    pub(crate) fn read_file<T>(
        &self,
        name: &str,
        known: &'static KeyTable,
        read: impl FnOnce(&mut Config<'_>) -> T,
    ) -> Result<Option<T>> {
        let Some((origin, fields)) = read_json(&self.directory.join(name))? else {
            return Ok(None);
        };
        let mut config = self.config_of(&origin, &fields, known);
        let read = read(&mut config);
        config.finish()?;
        Ok(Some(read))
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
    /// of a GGUF file, those at which llama.cpp stops. Empty if none are declared.
    ///
    /// # Errors
    /// If a file of JSON is damaged, has something else there, or asks for another generation than
    /// the options of a [`Generator`](crate::Generator) describe.
    pub fn stop_tokens(&self) -> Result<Vec<u32>> {
        const EOS: &str = "eos_token_id";
        if self.is_gguf() {
            return self.gguf_stop_tokens();
        }
        let read = |config: &mut Config<'_>| config.tokens(EOS);
        let tokens = self.read_file(GENERATION_CONFIG, &keys::GENERATION_CONFIG, read)?;
        let mut tokens = tokens.unwrap_or_default();
        if tokens.is_empty() && self.config.is_some() {
            let mut config = self.config()?;
            tokens = config.tokens(EOS);
            config.finish_part()?;
        }
        Ok(tokens)
    }

    /// `repetition_penalty` of `generation_config.json`, or else 1.
    ///
    /// # Errors
    /// If the file is damaged, or has something else there.
    pub fn repetition_penalty(&self) -> Result<f64> {
        let file = if self.is_gguf() {
            None
        } else {
            read_json(&self.directory.join(GENERATION_CONFIG))?
        };
        let Some((origin, fields)) = file else {
            return Ok(1.0);
        };
        let mut config = self.config_of(&origin, &fields, &keys::GENERATION_CONFIG);
        let penalty = config.number_or("repetition_penalty", 1.0);
        config.finish_part()?;
        Ok(penalty)
    }

    fn gguf_stop_tokens(&self) -> Result<Vec<u32>> {
        let mut config = self.config()?;
        let mut tokens: BTreeSet<u32> = BTreeSet::new();
        for key in STOP_KEYS {
            tokens.extend(config.tokens(key));
        }
        config.finish_part()?;
        let vocabulary = self.weights.metadata().get("tokenizer.ggml.tokens");
        let vocabulary = vocabulary
            .and_then(MetadataValue::as_array)
            .into_iter()
            .flatten();
        let is_stop =
            |text: &MetadataValue| text.as_str().is_some_and(|text| STOP_TEXTS.contains(&text));
        tokens.extend(
            (0..)
                .zip(vocabulary)
                .filter(|(_, text)| is_stop(text))
                .map(|(id, _)| id),
        );
        Ok(tokens.into_iter().collect())
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

/// Settings of generation beside `config.json`.
pub(crate) const GENERATION_CONFIG: &str = "generation_config.json";

/// The metadata of a GGUF file as an object of JSON: what is said of files in general, of the
/// architecture and of the tokenizer, which are the keys that llama.cpp reads. Lists of the tokenizer
/// are left out.
fn fields_of(weights: &WeightFile) -> Value {
    let metadata = weights.metadata();
    let architecture = metadata.get("general.architecture");
    let architecture = architecture.and_then(MetadataValue::as_str).unwrap_or("");
    let starts = ["general", "split", "tokenizer", architecture];
    let fields = metadata.iter().filter_map(|(name, value)| {
        let (start, _) = name.split_once('.')?;
        let is_list = start == "tokenizer" && value.as_array().is_some();
        let value = json_of(value).filter(|_| starts.contains(&start) && !is_list)?;
        Some((name.clone(), value))
    });
    Value::Object(fields.collect())
}

/// A value of a GGUF file's metadata as JSON. Equal numbers for all layers are one number.
pub(crate) fn json_of(value: &MetadataValue) -> Option<Value> {
    Some(match value {
        MetadataValue::Unsigned(number) => Value::from(*number),
        MetadataValue::Signed(number) => Value::from(*number),
        MetadataValue::Float(number) => match Number::from_f64(*number) {
            Some(number) => Value::Number(number),
            // No reader takes the text of NaN for a number.
            None => Value::from(number.to_string()),
        },
        MetadataValue::Bool(flag) => Value::from(*flag),
        MetadataValue::String(text) => Value::from(text.as_str()),
        MetadataValue::Array(elements) => {
            let elements: Vec<Value> = elements.iter().filter_map(json_of).collect();
            match elements.first() {
                Some(first) if first.is_number() && elements.iter().all(|one| one == first) => {
                    first.clone()
                }
                _ => Value::Array(elements),
            }
        }
        _ => return None,
    })
}

/// Path and contents of a file of JSON, if it exists.
pub(crate) fn read_json(path: &Path) -> Result<Option<(String, Value)>> {
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

    /// Loads the weights onto the client's first device, with the adapters added to them that peft or
    /// [`save_adapters`](halite_weights::save_adapters) wrote in `directory`. `names` are those of the
    /// model that the adapters are for.
    ///
    /// # Errors
    /// As [`load`](Self::load), and if the adapters cannot be read or do not fit the model.
    pub fn load_adapted(
        &self,
        client: &Client,
        names: &NameMap,
        directory: impl AsRef<Path>,
    ) -> Result<Of<M, Array>>
    where
        Of<M, Array>: Tree<Leaf = Array>,
    {
        let ignored = &self.source.ignored;
        // Before the weights, which take longer.
        let (_, adapters) =
            load_adapters_ignoring(client, names, self.model.described(), directory, ignored)?;
        let base = self.load(client)?;
        Adapted { base, adapters }.merged(client)
    }
}
