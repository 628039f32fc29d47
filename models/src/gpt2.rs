//! GPT-2: learned positions, layer norm, GELU, a tied output layer.
//!
//! Radford et al. 2019, "Language models are unsupervised multitask learners". Published as `gpt2`
//! (124M parameters), `gpt2-medium`, `gpt2-large` and `gpt2-xl`; DistilGPT2 has the same form.
//!
//! It is a [`Transformer`], whose documentation lists the parameters; a configuration is a
//! [`TransformerConfig`].

use std::path::Path;

use halite_core::Result;
use halite_nn::{Param, Transformer, TransformerConfig};
use halite_weights::{Layout, NameMap, TensorSource};

use crate::{
    Config, Pretrained, PretrainedModel,
    decoder::{described, expect_causal},
};

/// Published decoders of GPT-2's form.
///
/// ```no_run
/// // Needs a model on disk.
/// use halite_models::Gpt2;
///
/// # fn main() -> halite_core::Result<()> {
/// # let client = halite_core::Client::new(halite_core::Null::new(1));
/// let published = Gpt2::from_pretrained("gpt2")?; // a directory of Hugging Face
/// let model = published.load(&client)?; // a `Transformer<Array>`
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Gpt2;

impl Gpt2 {
    /// Opens a directory of Hugging Face; nothing is loaded yet.
    ///
    /// # Errors
    /// If there is no such model; if the configuration is incomplete, describes another kind of
    /// model, or contradicts the weights.
    pub fn from_pretrained(path: impl AsRef<Path>) -> Result<PretrainedModel<Transformer<Param>>> {
        Gpt2::of(Pretrained::open(path)?)
    }

    /// The model of an opened directory.
    ///
    /// # Errors
    /// As [`from_pretrained`](Self::from_pretrained).
    pub fn of(source: Pretrained) -> Result<PretrainedModel<Transformer<Param>>> {
        let config = Gpt2::config(source.config()?)?;
        let prefix = match source.weights().find("wte.weight") {
            Ok(_) => "",
            Err(_) => "transformer.",
        };
        let model = described(&config, &source)?;
        PretrainedModel::new(model, Gpt2::names(prefix), source)
    }

    /// The configuration that a `config.json` of Hugging Face describes.
    ///
    /// # Errors
    /// One error with every field that is missing, of another type, or not supported.
    pub fn config(mut fields: Config<'_>) -> Result<TransformerConfig> {
        fields.require_text("model_type", &["gpt2"]);
        expect_causal(&mut fields);
        // Both are the tanh approximation.
        let activations = ["gelu_new", "gelu_pytorch_tanh"];
        fields.expect_text("activation_function", &activations);
        if !fields.flag_or("tie_word_embeddings", true) {
            fields.problem("`tie_word_embeddings` is not true");
        }
        let (heads, hidden_size) = (fields.size("n_head"), fields.size("n_embd"));
        let config = TransformerConfig {
            vocab_size: fields.size("vocab_size"),
            context_length: fields.size("n_positions"),
            heads,
            kv_heads: heads,
            mlp_size: fields.size_or("n_inner", hidden_size.saturating_mul(4)),
            norm_eps: fields.number_or("layer_norm_epsilon", 1e-5),
            ..TransformerConfig::gpt2(fields.size("n_layer"), hidden_size)
        };
        fields.finish()?;
        Ok(config)
    }

    /// The names of Hugging Face, `h.0.attn.c_attn.weight`, after `prefix`: nothing, as in the
    /// published files, or `transformer.`, as `GPT2LMHeadModel` saves them.
    pub fn names(prefix: &str) -> NameMap {
        let layer = format!("{prefix}h.{{layer}}");
        NameMap::torch()
            .rename("tokens", &format!("{prefix}wte"))
            .rename("positions", &format!("{prefix}wpe"))
            .rename("blocks.attention_norm", &format!("{layer}.ln_1"))
            .fuse(
                [
                    "blocks.attention.q",
                    "blocks.attention.k",
                    "blocks.attention.v",
                ],
                &format!("{layer}.attn.c_attn"),
                1,
            )
            .rename("blocks.attention.o", &format!("{layer}.attn.c_proj"))
            .rename("blocks.mlp_norm", &format!("{layer}.ln_2"))
            .rename("blocks.mlp.up", &format!("{layer}.mlp.c_fc"))
            .rename("blocks.mlp.down", &format!("{layer}.mlp.c_proj"))
            .rename("norm", &format!("{prefix}ln_f"))
            // `Conv1D` has weights of [in, out].
            .layout(
                "blocks.attention.q|k|v.weight",
                Layout::Merged(vec![vec![0], vec![1, 2]]),
            )
            .layout(
                "blocks.attention.o.weight",
                Layout::Merged(vec![vec![0, 1], vec![2]]),
            )
            .layout("blocks.mlp.up|down.weight", Layout::Same)
            .ignore("**.attn.bias")
            .ignore("**.attn.masked_bias")
            .ignore("lm_head.weight")
    }
}
