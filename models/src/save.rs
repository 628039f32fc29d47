//! Saving of decoders as model directories of Hugging Face.

use std::{fs, path::Path};

use halite_core::{Array, Error, ErrorKind, Result, files};
use halite_data::text::Tokenizer;
use halite_nn::{MlpKind, NormKind, Param, Positions, Transformer, TransformerConfig};
use halite_weights::{NameMap, WeightSaver};
use serde_json::{Value, json};

use crate::PretrainedModel;

impl PretrainedModel<Transformer<Param>> {
    /// Saves `values` as a model directory: `config.json`, `model.safetensors` with the names of
    /// `names`, and `tokenizer.json`. The configuration is a copy of that of the directory that was
    /// opened; for a GGUF file it is written.
    ///
    /// # Errors
    /// If the values do not fit the model; if it is of a GGUF file and has scaled rotary positions;
    /// if a file cannot be read or written.
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
            Error::new(ErrorKind::Io, "save model", message).caused_by(error)
        };
        let config = match self.source.json("config.json")? {
            Some(config) if !self.source.is_gguf() => config,
            _ => llama_config(&self.model.config)?,
        };
        fs::create_dir_all(directory).map_err(failed)?;
        WeightSaver::new(names).save_directory(&self.model, values, directory)?;
        let text = serde_json::to_vec_pretty(&config).expect("it has texts and numbers");
        files::replace(&directory.join("config.json"), &text).map_err(failed)?;
        tokenizer.save(&directory.join("tokenizer.json"))
    }
}

/// The `config.json` of a decoder of Llama's form.
fn llama_config(config: &TransformerConfig) -> Result<Value> {
    let unsupported = |what: &str| {
        let message = format!("a config.json of {what}; save a model that has its own");
        Error::new(ErrorKind::Unsupported, "save model", message)
    };
    let Positions::Rotary {
        theta,
        scaling: None,
    } = config.positions
    else {
        return Err(unsupported("scaled rotary positions"));
    };
    if config.norm != NormKind::Rms || config.mlp != MlpKind::SwiGlu {
        return Err(unsupported("another form than Llama's"));
    }
    let (kind, class) = match config.qkv_bias {
        true => ("qwen2", "Qwen2ForCausalLM"),
        false => ("llama", "LlamaForCausalLM"),
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
        "rms_norm_eps": config.norm_eps,
        "attention_bias": config.bias,
        "mlp_bias": config.bias,
        "tie_word_embeddings": config.tied,
        "torch_dtype": "float32",
    }))
}
