//! Shapes of BERT models, and the named ones.

use halite_core::Result;
use halite_nn::Activation;

use crate::Config;

/// Shape and options of a [`Bert`](super::Bert).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BertConfig {
    /// Vocabulary size.
    pub vocab_size: usize,
    /// Maximum length of a sequence, and number of learned positions.
    pub context_length: usize,
    /// Number of segments.
    pub types: usize,
    /// Number of layers (blocks).
    pub layers: usize,
    /// Hidden size: features of each position.
    pub hidden_size: usize,
    /// Number of attention heads, each of `hidden_size / heads` features.
    pub heads: usize,
    /// Size of the hidden layer of the MLP.
    pub mlp_size: usize,
    /// Activation of the MLP.
    pub activation: Activation,
    /// Epsilon of the norms.
    pub norm_eps: f64,
    /// Dropout rate of the embeddings and of the output of each half of a block.
    pub dropout: f64,
    /// Dropout rate of the attention weights.
    pub attention_dropout: f64,
    /// Whether the model has a pooler.
    pub pooler: bool,
}

impl BertConfig {
    /// BERT base, uncased: 110 million parameters.
    pub fn base() -> Self {
        BertConfig {
            vocab_size: 30_522,
            context_length: 512,
            types: 2,
            layers: 12,
            hidden_size: 768,
            heads: 12,
            mlp_size: 3072,
            activation: Activation::Gelu,
            norm_eps: 1e-12,
            dropout: 0.1,
            attention_dropout: 0.1,
            pooler: true,
        }
    }

    /// `all-MiniLM-L6-v2`: 23 million parameters.
    pub fn minilm_l6() -> Self {
        BertConfig {
            layers: 6,
            hidden_size: 384,
            mlp_size: 1536,
            ..Self::base()
        }
    }

    /// Reads the fields of a `config.json`. Whether the model has a pooler is not among them.
    ///
    /// # Errors
    /// If fields are missing or of another type, or describe another architecture: all in one error.
    pub fn from_config(mut config: Config<'_>) -> Result<Self> {
        config.expect_text("model_type", &["bert"]);
        if config.flag_or("is_causal", false) {
            config.problem("`is_causal` is true; supported: false");
        }
        config.expect_text(
            "hidden_act",
            &["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"],
        );
        let activation = match config.text("hidden_act") {
            Some("gelu_new" | "gelu_pytorch_tanh") => Activation::GeluTanh,
            Some("relu") => Activation::Relu,
            _ => Activation::Gelu,
        };
        let read = BertConfig {
            vocab_size: config.size("vocab_size"),
            context_length: config.size("max_position_embeddings"),
            types: config.size_or("type_vocab_size", 2),
            layers: config.size("num_hidden_layers"),
            hidden_size: config.size("hidden_size"),
            heads: config.size("num_attention_heads"),
            mlp_size: config.size("intermediate_size"),
            activation,
            norm_eps: config.number_or("layer_norm_eps", 1e-12),
            dropout: config.number_or("hidden_dropout_prob", 0.1),
            attention_dropout: config.number_or("attention_probs_dropout_prob", 0.1),
            pooler: true,
        };
        read.problems()
            .into_iter()
            .for_each(|problem| config.problem(problem));
        config.finish()?;
        Ok(read)
    }

    /// What is wrong with the sizes.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let sizes = [
            ("vocab size", self.vocab_size),
            ("context length", self.context_length),
            ("types", self.types),
            ("layers", self.layers),
            ("hidden size", self.hidden_size),
            ("heads", self.heads),
            ("MLP size", self.mlp_size),
        ];
        for (name, _) in sizes.iter().filter(|(_, size)| *size == 0) {
            problems.push(format!("{name} is 0; expected at least 1"));
        }
        if self.heads > 0 && !self.hidden_size.is_multiple_of(self.heads) {
            let BertConfig {
                hidden_size, heads, ..
            } = self;
            problems.push(format!(
                "a hidden size of {hidden_size} is not a multiple of {heads} heads"
            ));
        }
        for rate in [self.dropout, self.attention_dropout] {
            if !(0.0..1.0).contains(&rate) {
                problems.push(format!(
                    "a dropout rate of {rate}; expected 0 to less than 1"
                ));
            }
        }
        problems
    }
}
