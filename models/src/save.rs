//! Saving of decoders as model directories of Hugging Face.

use std::{fs, io, path::Path};

use halite_core::{Array, Error, ErrorKind, Result, files};
use halite_data::text::Tokenizer;
use halite_nn::{
    MlpKind, NormKind, Param, Positions, RotaryScaling, Transformer, TransformerConfig,
};
use halite_weights::{MetadataValue, NameMap, WeightSaver};
use serde_json::{Map, Value, json};

use crate::{
    Gpt2, Llama, PretrainedModel, pretrained::GENERATION_CONFIG, tokenizer::TOKENIZER_CONFIG,
};

const OPERATION: &str = "save model";

/// Files of a model directory beside weights, `config.json` and `tokenizer.json`: settings of
/// generation and of the tokenizer, its vocabulary in other forms, chat templates.
const COMPANIONS: &[&str] = &[
    GENERATION_CONFIG,
    TOKENIZER_CONFIG,
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    "encoder.json",
    "vocab.bpe",
    "vocab.txt",
    "tokenizer.model",
];

impl PretrainedModel<Transformer<Param>> {
    /// The names of the parameters in files of Hugging Face, which [`save`](Self::save) takes.
    pub fn saved_names(&self) -> NameMap {
        if self.source.is_gguf() {
            Llama::names(self.model.config.tied)
        } else {
            self.names.clone()
        }
    }

    /// The names of the parameters in the language model of transformers, which adapters of peft are
    /// for. Published weights of GPT-2 are those of the model without its output layer.
    ///
    /// # Errors
    /// If there is no `config.json`.
    pub fn adapter_names(&self) -> Result<NameMap> {
        let kind = self.source.config()?.text("model_type");
        Ok(match kind {
            Some("gpt2") => Gpt2::names("transformer."),
            _ => self.saved_names(),
        })
    }

    /// Checks that the model can be saved, before there are values of it.
    ///
    /// # Errors
    /// If it has no `config.json`, and none can be written.
    pub fn check_save(&self) -> Result<()> {
        self.saved_config()?;
        WeightSaver::new(&self.saved_names()).check(&self.model)
    }

    /// Saves `values` as a model directory: `config.json`, `model.safetensors` with the names of
    /// `names`, `tokenizer.json`, and the settings of generation, of the tokenizer and of chats. All
    /// but the weights are those of the directory that was opened; for a GGUF file they are written.
    ///
    /// # Errors
    /// If the values do not fit the model, or a file cannot be read or written.
    pub fn save(
        &self,
        names: &NameMap,
        values: &Transformer<Array>,
        tokenizer: &Tokenizer,
        directory: impl AsRef<Path>,
    ) -> Result<()> {
        let directory = directory.as_ref();
        let failed = |error| {
            let message = format!("cannot write in `{}`", directory.display());
            Error::new(ErrorKind::Io, OPERATION, message).caused_by(error)
        };
        let config = self.saved_config()?;
        let companions = if self.source.is_gguf() {
            self.gguf_companions()?
        } else {
            self.companions()?
        };
        fs::create_dir_all(directory).map_err(failed)?;
        WeightSaver::new(names).save_directory(&self.model, values, directory)?;
        files::replace(&directory.join("config.json"), &text_of(&config)).map_err(failed)?;
        tokenizer.save(&directory.join("tokenizer.json"))?;
        for (name, content) in companions {
            let path = directory.join(name);
            match content {
                Some(content) => files::replace(&path, &content).map_err(failed)?,
                // Of an earlier save.
                None => match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(failed(error));
                    }
                    _ => {}
                },
            }
        }
        Ok(())
    }

    fn saved_config(&self) -> Result<Value> {
        match self.source.json("config.json")? {
            Some(config) if !self.source.is_gguf() => Ok(config),
            _ => self.gguf_config(),
        }
    }

    /// The files beside the model that was opened; `None` for those that it does not have.
    fn companions(&self) -> Result<Vec<Companion>> {
        let read = |name: &&'static str| {
            let path = self.source.directory().join(name);
            match files::read_input(&path) {
                Ok(content) => Ok((*name, Some(content))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((*name, None)),
                Err(error) => {
                    let message = format!("cannot read `{}`", path.display());
                    Err(Error::new(ErrorKind::Io, OPERATION, message).caused_by(error))
                }
            }
        };
        COMPANIONS.iter().map(read).collect()
    }

    /// What the metadata of a GGUF file says beside the model, in the files of Hugging Face.
    fn gguf_companions(&self) -> Result<Vec<Companion>> {
        let metadata = self.source.weights().metadata();
        let field = |name: &str| metadata.get(&format!("tokenizer.{name}"));
        let id = |name: &str| field(&format!("ggml.{name}_token_id"))?.as_usize();
        let tokens = field("ggml.tokens").and_then(MetadataValue::as_array);
        let token = |name: &str| tokens?.get(id(name)?)?.as_str();
        let mut generation = Map::new();
        let mut settings = Map::new();
        let stop = self.source.stop_tokens()?;
        if !stop.is_empty() {
            generation.insert("eos_token_id".into(), json!(stop));
        }
        for (name, of_files) in [("bos", "bos"), ("eos", "eos"), ("padding", "pad")] {
            if let Some(id) = id(name).filter(|_| name != "eos") {
                generation.insert(format!("{of_files}_token_id"), json!(id));
            }
            if let Some(text) = token(name) {
                settings.insert(format!("{of_files}_token"), json!(text));
            }
        }
        if let Some(template) = field("chat_template").and_then(MetadataValue::as_str) {
            settings.insert("chat_template".into(), json!(template));
        }
        settings.insert(
            "model_max_length".into(),
            json!(self.model.config.context_length),
        );
        settings.insert("tokenizer_class".into(), json!("PreTrainedTokenizerFast"));
        let companion = |name: &&'static str| {
            let content = match *name {
                GENERATION_CONFIG => Some(text_of(&Value::Object(generation.clone()))),
                TOKENIZER_CONFIG => Some(text_of(&Value::Object(settings.clone()))),
                _ => None,
            };
            (*name, content)
        };
        Ok(COMPANIONS.iter().map(companion).collect())
    }

    /// The `config.json` of a GGUF file.
    fn gguf_config(&self) -> Result<Value> {
        let mut config = llama_config(&self.model.config)?;
        let metadata = self.source.weights().metadata();
        for name in ["bos", "eos"] {
            let id = metadata.get(&format!("tokenizer.ggml.{name}_token_id"));
            if let Some(id) = id.and_then(MetadataValue::as_usize) {
                config[format!("{name}_token_id")] = json!(id);
            }
        }
        Ok(config)
    }
}

/// A file beside the weights, and its content if there is one.
type Companion = (&'static str, Option<Vec<u8>>);

fn text_of(value: &Value) -> Vec<u8> {
    serde_json::to_vec_pretty(value).expect("it has texts and numbers")
}

/// The `config.json` of a decoder of Llama's form.
fn llama_config(config: &TransformerConfig) -> Result<Value> {
    let unsupported = |what: &str| {
        let message = format!("a config.json of {what}; save a model that has its own");
        Error::new(ErrorKind::Unsupported, OPERATION, message)
    };
    let Positions::Rotary { theta, scaling } = config.positions else {
        return Err(unsupported("learned positions"));
    };
    if config.norm != NormKind::Rms || config.mlp != MlpKind::SwiGlu {
        return Err(unsupported("another form than Llama's"));
    }
    let scaling = match scaling {
        None => Value::Null,
        Some(RotaryScaling::Linear { factor }) => {
            json!({ "rope_type": "linear", "factor": factor })
        }
        Some(RotaryScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_context,
        }) => json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low_freq_factor,
            "high_freq_factor": high_freq_factor,
            "original_max_position_embeddings": original_context as u64,
        }),
    };
    let (kind, class) = if config.qkv_bias {
        ("qwen2", "Qwen2ForCausalLM")
    } else {
        ("llama", "LlamaForCausalLM")
    };
    Ok(json!({
        "architectures": [class],
        "model_type": kind,
        "hidden_act": "silu",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.mlp_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size(),
        "max_position_embeddings": config.context_length,
        "rope_theta": theta,
        "rope_scaling": scaling,
        "rms_norm_eps": config.norm_eps,
        "attention_bias": config.bias,
        "mlp_bias": config.bias,
        "tie_word_embeddings": config.tied,
        "torch_dtype": "float32",
    }))
}
