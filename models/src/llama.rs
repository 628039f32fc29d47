//! Decoders of Llama's form: rotary positions, RMS norm, SwiGLU, grouped-query attention.
//!
//! | model | paper | `model_type` |
//! |---|---|---|
//! | Llama 1 to 3.3 | Touvron et al. 2023, [2302.13971](https://arxiv.org/abs/2302.13971), [2307.09288](https://arxiv.org/abs/2307.09288); Grattafiori et al. 2024, [2407.21783](https://arxiv.org/abs/2407.21783) | `llama` |
//! | SmolLM2 135M, 360M, 1.7B | Ben Allal et al. 2025, [2502.02737](https://arxiv.org/abs/2502.02737) | `llama` |
//! | Mistral 7B | Jiang et al. 2023, [2310.06825](https://arxiv.org/abs/2310.06825) | `mistral` |
//! | Qwen2, Qwen2.5 | Yang et al. 2024, [2407.10671](https://arxiv.org/abs/2407.10671) | `qwen2` |
//!
//! All are [`Transformer`]s, whose documentation lists the parameters; a configuration is a
//! [`TransformerConfig`]. Attention within a sliding window (Mistral 7B v0.1) is full attention up
//! to the length of the window: the context length is that of the window.

use std::path::Path;

use halite_core::{DType, Error, Result};
use halite_nn::{Param, Positions, Rotary, RotaryScaling, Transformer, TransformerConfig};
use halite_weights::{Layout, NameMap, TensorSource, WeightFile};

use crate::{
    Config, Pretrained, PretrainedModel,
    decoder::{described, expect_causal},
};

/// Published decoders of Llama's form.
///
/// ```no_run
/// // Needs a model on disk.
/// use halite_models::Llama;
///
/// # fn main() -> halite_core::Result<()> {
/// # let client = halite_core::Client::new(halite_core::Null::new(1));
/// let published = Llama::from_pretrained("SmolLM2-135M-Instruct")?; // or a .gguf file
/// println!("{}", published.model.config);
/// let model = published.load(&client)?; // a `Transformer<Array>`
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Llama;

impl Llama {
    /// Opens a directory of Hugging Face, or a GGUF file of llama.cpp; nothing is loaded yet.
    ///
    /// # Errors
    /// If there is no such model; if the configuration is incomplete, describes another kind of
    /// model, or contradicts the weights.
    pub fn from_pretrained(path: impl AsRef<Path>) -> Result<PretrainedModel<Transformer<Param>>> {
        Llama::of(Pretrained::open(path)?)
    }

    /// The model of an opened directory or file.
    ///
    /// # Errors
    /// As [`from_pretrained`](Self::from_pretrained).
    pub fn of(source: Pretrained) -> Result<PretrainedModel<Transformer<Param>>> {
        let (config, names) = if source.is_gguf() {
            let (architecture, config) = gguf_config(&source)?;
            (config, Llama::gguf_names(&architecture, config.tied))
        } else {
            let config = Llama::config(source.config()?)?;
            (config, Llama::names(config.tied))
        };
        PretrainedModel::new(described(&config, &source)?, names, source)
    }

    /// The configuration that a `config.json` of Hugging Face describes.
    ///
    /// # Errors
    /// One error with every field that is missing, of another type, or not supported.
    pub fn config(mut fields: Config<'_>) -> Result<TransformerConfig> {
        fields.require_text("model_type", &["llama", "mistral", "qwen2"]);
        fields.expect_text("hidden_act", &["silu"]);
        expect_causal(&mut fields);
        let is_qwen = fields.text("model_type") == Some("qwen2");
        let is_mistral = fields.text("model_type") == Some("mistral");
        if fields.value("quantization_config").is_some() {
            fields.problem("`quantization_config`: quantized weights are read from GGUF files");
        }
        let biases = ["attention_bias", "mlp_bias"].map(|name| fields.flag_or(name, false));
        let bias = biases == [true; 2];
        if (is_mistral || is_qwen) && biases != [false; 2] {
            // Layers of these have the biases of their type, whatever the fields say.
            fields.problem("`attention_bias` or `mlp_bias` is true; supported: false");
        } else if biases[0] != biases[1] {
            fields.problem("only one of `attention_bias` and `mlp_bias` is true");
        }
        // Defaults are those of transformers, where a field that is `null` is not one that is left
        // out.
        let [positions_of_type, window_of_type] = match (is_mistral, is_qwen) {
            (true, _) => [131_072, 4096],
            (_, true) => [32_768, 4096],
            _ => [2048, usize::MAX],
        };
        let mut context_length = fields.size_or("max_position_embeddings", positions_of_type);
        let window = if fields.is_absent("sliding_window") {
            window_of_type
        } else {
            fields.size_or("sliding_window", usize::MAX)
        };
        if fields.flag_or("use_sliding_window", !is_qwen) {
            context_length = context_length.min(window);
        }
        let heads = fields.size("num_attention_heads");
        let kv_heads = if is_mistral && fields.is_absent("num_key_value_heads") {
            8
        } else {
            fields.size_or("num_key_value_heads", heads)
        };
        let has_head_size = fields.value("head_dim").is_some();
        let head_size = has_head_size.then(|| fields.size("head_dim"));
        let config = TransformerConfig {
            vocab_size: fields.size("vocab_size"),
            context_length,
            heads,
            kv_heads,
            head_size,
            positions: positions(&mut fields),
            norm_eps: fields.number_or("rms_norm_eps", 1e-6),
            bias,
            qkv_bias: is_qwen,
            tied: fields.flag_or("tie_word_embeddings", false),
            ..TransformerConfig::llama(
                fields.size("num_hidden_layers"),
                fields.size("hidden_size"),
                fields.size("intermediate_size"),
            )
        };
        fields.finish()?;
        Ok(without_default_head_size(config))
    }

    /// The names of Hugging Face: `model.layers.0.self_attn.q_proj.weight`. `tied` says that the
    /// output layer is the token embedding; a copy of it in the file is ignored.
    pub fn names(tied: bool) -> NameMap {
        let map = NameMap::torch()
            .rename("tokens", "model.embed_tokens")
            .rename(
                "blocks.attention_norm",
                "model.layers.{layer}.input_layernorm",
            )
            .rename(
                "blocks.attention.{projection}",
                "model.layers.{layer}.self_attn.{projection}_proj",
            )
            .rename(
                "blocks.mlp_norm",
                "model.layers.{layer}.post_attention_layernorm",
            )
            .rename(
                "blocks.mlp.{projection}",
                "model.layers.{layer}.mlp.{projection}_proj",
            )
            .rename("norm", "model.norm")
            .ignore("**.rotary_emb.inv_freq");
        if tied {
            map.ignore("lm_head.weight")
        } else {
            map.rename("head", "lm_head")
        }
    }

    /// The names of llama.cpp's GGUF files, `blk.0.attn_q.weight`, for their
    /// `general.architecture`: `llama`, whose queries and keys have the pairs that rotary
    /// embeddings rotate side by side, or `qwen2`.
    pub fn gguf_names(architecture: &str, tied: bool) -> NameMap {
        let map = NameMap::torch()
            .rename("tokens", "token_embd")
            .rename("blocks.attention_norm", "blk.{layer}.attn_norm")
            .rename("blocks.attention.o", "blk.{layer}.attn_output")
            .rename(
                "blocks.attention.{projection}",
                "blk.{layer}.attn_{projection}",
            )
            .rename("blocks.mlp_norm", "blk.{layer}.ffn_norm")
            .rename("blocks.mlp.{projection}", "blk.{layer}.ffn_{projection}")
            .rename("norm", "output_norm")
            .ignore("rope_freqs.weight");
        let map = match architecture {
            "qwen2" => map,
            _ => map.layout("blocks.attention.q|k.weight", Layout::ToHeadsInterleaved),
        };
        if tied {
            map
        } else {
            map.rename("head", "output")
        }
    }
}

/// The rotary positions of a `config.json`: `rope_theta` and `rope_scaling`, or `rope_parameters`
/// with both.
fn positions(fields: &mut Config<'_>) -> Positions {
    // Precedence and defaults are those of transformers. A field inside of the object counts before
    // one beside it.
    let of = if fields.has("rope_scaling") {
        "rope_scaling"
    } else {
        "rope_parameters"
    };
    let field = |name: &str| format!("{of}.{name}");
    let theta = fields.number_or("rope_theta", 10_000.0);
    let theta = fields.number_or(&field("rope_theta"), theta);
    let rotated = fields.number_or("partial_rotary_factor", 1.0);
    let rotated = fields.number_or(&field("partial_rotary_factor"), rotated);
    if rotated != 1.0 {
        fields.problem(format!(
            "`partial_rotary_factor` is {rotated}; supported: 1"
        ));
    }
    let kinds = ["rope_type", "type"].map(|name| fields.text(&field(name)));
    let scaling = match kinds[0].or(kinds[1]) {
        None | Some("default") => {
            // Without a type, transformers passes over the rest.
            fields.value(&field("factor"));
            fields.value(&field("original_max_position_embeddings"));
            None
        }
        Some("linear") => {
            fields.value(&field("original_max_position_embeddings"));
            Some(RotaryScaling::Linear {
                factor: fields.number(&field("factor")),
            })
        }
        Some("llama3") => Some(RotaryScaling::Llama3 {
            factor: fields.number(&field("factor")),
            low_freq_factor: fields.number(&field("low_freq_factor")),
            high_freq_factor: fields.number(&field("high_freq_factor")),
            original_context: fields.number(&field("original_max_position_embeddings")),
        }),
        Some(other) => {
            fields.problem(format!(
                "rotary scaling `{}`; supported: `default`, `linear`, `llama3`",
                other.escape_debug()
            ));
            // One problem is enough.
            fields.value(of);
            None
        }
    };
    Positions::Rotary { theta, scaling }
}

/// Architecture and configuration of a GGUF file.
fn gguf_config(source: &Pretrained) -> Result<(String, TransformerConfig)> {
    let mut fields = source.config()?;
    fields.require_text("general.architecture", &["llama", "qwen2"]);
    let architecture = fields.text("general.architecture").unwrap_or("llama");
    let key = |name: &str| format!("{architecture}.{name}");
    let dims = |name: &str| {
        let index = source.weights().find(name).ok()?;
        Some(source.weights().tensors()[index].ty.dims().to_vec())
    };
    let heads = fields.size(&key("attention.head_count"));
    let hidden_size = fields.size(&key("embedding_length"));
    let has_head_size = fields.value(&key("attention.key_length")).is_some();
    let head_size = has_head_size.then(|| fields.size(&key("attention.key_length")));
    let theta = fields.number_or(&key("rope.freq_base"), 10_000.0);
    let scaling = gguf_scaling(&mut fields, key);
    let vocab_size = match dims("token_embd.weight").as_deref() {
        Some(&[rows, _]) => rows,
        _ => {
            fields.problem("there is no matrix `token_embd.weight`");
            1
        }
    };
    let context_length = fields.size(&key("context_length"));
    let window = fields.count_or(&key("attention.sliding_window"), 0);
    let window = if window == 0 { context_length } else { window };
    let mut config = TransformerConfig {
        vocab_size,
        context_length: context_length.min(window),
        heads,
        kv_heads: fields.size_or(&key("attention.head_count_kv"), heads),
        head_size,
        positions: Positions::Rotary { theta, scaling },
        norm_eps: fields.number(&key("attention.layer_norm_rms_epsilon")),
        qkv_bias: architecture == "qwen2",
        tied: dims("output.weight").is_none(),
        ..TransformerConfig::llama(
            fields.size(&key("block_count")),
            hidden_size,
            fields.size(&key("feed_forward_length")),
        )
    };
    check_head_sizes(
        &mut fields,
        architecture,
        head_size.unwrap_or(hidden_size / heads),
    );
    let has_factors = dims("rope_freqs.weight").is_some();
    if scaling.is_some() && has_factors {
        fields.problem(
            "`rope_freqs.weight` scales rotary positions that are scaled linearly as well",
        );
    }
    fields.finish()?;
    config = without_default_head_size(config);
    config.check()?;
    if has_factors {
        let scaling = Some(llama3_scaling(source.weights(), &config, theta)?);
        config.positions = Positions::Rotary { theta, scaling };
    }
    Ok((architecture.to_owned(), config))
}

/// Notes heads that are rotated in part, or whose values have another size.
fn check_head_sizes(fields: &mut Config<'_>, architecture: &str, head: usize) {
    for name in ["rope.dimension_count", "attention.value_length"] {
        let size = fields.size_or(&format!("{architecture}.{name}"), head);
        if size != head {
            fields.problem(format!(
                "`{architecture}.{name}` is {size}; supported: {head}, the size of a head"
            ));
        }
    }
}

/// The scaling of rotary positions in a GGUF file. As in llama.cpp, a factor without a type scales
/// linearly, and one of 0 does not.
fn gguf_scaling(fields: &mut Config<'_>, key: impl Fn(&str) -> String) -> Option<RotaryScaling> {
    let older = fields.number_or(&key("rope.scale_linear"), 0.0);
    let factor = fields.number_or(&key("rope.scaling.factor"), older);
    match fields.text(&key("rope.scaling.type")) {
        None | Some("linear") if factor < 0.0 => {
            fields.problem(format!(
                "rotary scaling by {factor}; expected a positive factor"
            ));
            None
        }
        None | Some("linear") if factor != 0.0 && factor != 1.0 => {
            Some(RotaryScaling::Linear { factor })
        }
        None | Some("linear" | "none") => None,
        Some(other) => {
            let other = other.escape_debug();
            fields.problem(format!("rotary scaling `{other}`; supported: `linear`"));
            None
        }
    }
}

/// The scaling of Llama 3.1 or 3.2 whose factors a GGUF file has as a tensor: by what the frequency
/// of each pair is divided.
fn llama3_scaling(
    weights: &WeightFile,
    config: &TransformerConfig,
    theta: f64,
) -> Result<RotaryScaling> {
    let published = weights.read("rope_freqs.weight")?.to_float(DType::F64)?;
    let published: &[f64] = published.as_slice()?;
    let plain = Rotary::new(theta).frequencies(config.head_size());
    for factor in [8.0, 32.0] {
        let scaling = RotaryScaling::Llama3 {
            factor,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 8192.0,
        };
        let scaled = Rotary {
            theta,
            scaling: Some(scaling),
        }
        .frequencies(config.head_size());
        let ratios = plain
            .iter()
            .zip(&scaled)
            .map(|(plain, scaled)| plain / scaled);
        let is_same = |(ratio, &published): (f64, &f64)| (ratio / published - 1.0).abs() < 1e-4;
        if published.len() == plain.len() && ratios.zip(published).all(is_same) {
            return Ok(scaling);
        }
    }
    let message = format!(
        "{}: `rope_freqs.weight` is not the scaling of Llama 3.1 (a factor of 8) or 3.2 (32)",
        weights.origin()
    );
    Err(Error::invalid("open model", message))
}

/// `head_size` as `None` where it is `hidden_size / heads`.
fn without_default_head_size(config: TransformerConfig) -> TransformerConfig {
    let default = config.hidden_size.checked_div(config.heads);
    let is_default = config.hidden_size.is_multiple_of(config.heads) && config.head_size == default;
    TransformerConfig {
        head_size: config.head_size.filter(|_| !is_default),
        ..config
    }
}
