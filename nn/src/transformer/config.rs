//! Shapes of transformers, and the named ones.

use std::{fmt, str::FromStr};

use halite_core::{Error, Result};
use halite_ir::Remat;

use super::Transformer;
use crate::{Param, RotaryScaling};

/// Shape and options of a [`Transformer`]. Named configurations are functions; their fields can be
/// changed.
///
/// ```
/// use halite_nn::TransformerConfig;
///
/// let config: TransformerConfig = "gpt2-124m".parse()?;
/// assert_eq!(config.parameters()?, 124_439_808);
/// let short = TransformerConfig { context_length: 256, dropout: 0.1, ..config };
/// assert_eq!(short.parameters()?, 124_439_808 - (1024 - 256) * 768);
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransformerConfig {
    /// Vocabulary size.
    pub vocab_size: usize,
    /// Context length: the maximum length of a sequence, and the number of learned positions.
    pub context_length: usize,
    /// Number of layers (blocks).
    pub layers: usize,
    /// Hidden size: features of each position.
    pub hidden_size: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Number of key and value heads (grouped-query attention); divides `heads`.
    pub kv_heads: usize,
    /// Features of a head; `None` is `hidden_size / heads`.
    pub head_size: Option<usize>,
    /// Size of the hidden layer of the MLP.
    pub mlp_size: usize,
    /// Position encoding.
    pub positions: Positions,
    /// Norm, before each half of a block and before the output layer.
    pub norm: NormKind,
    /// Epsilon of the norm.
    pub norm_eps: f64,
    /// MLP of a block.
    pub mlp: MlpKind,
    /// True if dense layers and layer norms have biases.
    pub bias: bool,
    /// True if the query, key and value projections have biases, whatever `bias` is: Qwen2.
    pub qkv_bias: bool,
    /// True if the output layer shares its weights with the token embedding.
    pub tied: bool,
    /// Dropout rate of embeddings, attention weights, and the output of each half of a block.
    pub dropout: f64,
    /// Rematerialization of each block in the backward pass; `None` saves all residuals.
    pub remat: Option<Remat>,
}

/// Position encoding of a [`Transformer`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Positions {
    /// Learned position embeddings, added to the token embeddings.
    Learned,
    /// Rotary position embeddings of queries and keys: [`Rotary`](crate::Rotary).
    Rotary {
        /// Base of the wavelengths: 10,000; larger for long contexts.
        theta: f64,
        /// Scaling of the frequencies for contexts longer than those of the first training.
        scaling: Option<RotaryScaling>,
    },
}

impl Positions {
    /// Rotary position embeddings of this base, without scaling.
    pub const fn rotary(theta: f64) -> Self {
        Positions::Rotary {
            theta,
            scaling: None,
        }
    }
}

/// Norm over the last dimension.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NormKind {
    /// [`LayerNorm`](crate::LayerNorm)
    Layer,
    /// [`RmsNorm`](crate::RmsNorm)
    Rms,
}

/// MLP of a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MlpKind {
    /// `down(gelu(up(x)))`, with the tanh approximation of GELU as in GPT-2.
    Gelu,
    /// `down(silu(gate(x)) * up(x))` (Shazeer 2020).
    SwiGlu,
}

impl TransformerConfig {
    /// Names that [`FromStr`] accepts.
    pub const NAMES: [&str; 9] = [
        "tiny",
        "small",
        "gpt2-124m",
        "gpt2-medium",
        "gpt2-large",
        "gpt2-xl",
        "llama-7b",
        "llama-13b",
        "llama3-8b",
    ];

    /// GPT-2 (Radford et al. 2019) of any size: learned positions, layer norm, GELU, biases, a tied
    /// output layer, heads of 64 features, vocabulary size 50,257, context length 1,024.
    pub const fn gpt2(layers: usize, hidden_size: usize) -> Self {
        TransformerConfig {
            vocab_size: 50_257,
            context_length: 1024,
            layers,
            hidden_size,
            heads: hidden_size / 64,
            kv_heads: hidden_size / 64,
            head_size: None,
            mlp_size: hidden_size.saturating_mul(4),
            positions: Positions::Learned,
            norm: NormKind::Layer,
            norm_eps: 1e-5,
            mlp: MlpKind::Gelu,
            bias: true,
            qkv_bias: false,
            tied: true,
            dropout: 0.0,
            remat: None,
        }
    }

    /// Llama (Touvron et al. 2023) of any size: rotary positions, RMS norm, SwiGLU, no biases, an
    /// untied output layer, heads of 128 features, vocabulary size 32,000, context length 2,048.
    pub const fn llama(layers: usize, hidden_size: usize, mlp_size: usize) -> Self {
        TransformerConfig {
            vocab_size: 32_000,
            context_length: 2048,
            layers,
            hidden_size,
            heads: hidden_size / 128,
            kv_heads: hidden_size / 128,
            head_size: None,
            mlp_size,
            positions: Positions::rotary(10_000.0),
            norm: NormKind::Rms,
            norm_eps: 1e-6,
            mlp: MlpKind::SwiGlu,
            bias: false,
            qkv_bias: false,
            tied: false,
            dropout: 0.0,
            remat: None,
        }
    }

    /// GPT-2 with 7,872 parameters, for tests: two layers, hidden size 16, two heads, vocabulary size
    /// 64, context length 16.
    pub const fn tiny() -> Self {
        TransformerConfig {
            vocab_size: 64,
            context_length: 16,
            heads: 2,
            kv_heads: 2,
            ..TransformerConfig::gpt2(2, 16)
        }
    }

    /// A model that two cores train in minutes: four layers, hidden size 128, four heads, context
    /// length 128, vocabulary size 256; rotary positions, RMS norm, SwiGLU, a tied output layer.
    pub const fn small() -> Self {
        TransformerConfig {
            vocab_size: 256,
            context_length: 128,
            heads: 4,
            kv_heads: 4,
            tied: true,
            ..TransformerConfig::llama(4, 128, 384)
        }
    }

    /// Sets the vocabulary size.
    pub const fn vocab_size(mut self, tokens: usize) -> Self {
        self.vocab_size = tokens;
        self
    }

    /// Sets the context length.
    pub const fn context_length(mut self, positions: usize) -> Self {
        self.context_length = positions;
        self
    }

    /// Number of features of a head.
    ///
    /// # Panics
    /// If `heads` is 0.
    pub const fn head_size(&self) -> usize {
        match self.head_size {
            Some(size) => size,
            None => self.hidden_size / self.heads,
        }
    }

    /// Number of trained parameters.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn parameters(&self) -> Result<usize> {
        let model = Transformer::<Param>::new(self)?;
        Ok(halite_core::Tree::leaves(&model)
            .iter()
            .map(|param| param.ty.elements())
            .sum())
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// The first inconsistency, with its values.
    pub fn check(&self) -> Result<()> {
        let invalid = |message: String| Err(Error::invalid("transformer", message));
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("context_length", self.context_length),
            ("layers", self.layers),
            ("hidden_size", self.hidden_size),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("mlp_size", self.mlp_size),
            ("head_size", self.head_size.unwrap_or(1)),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return invalid(format!("`{name}` is 0; it must be at least 1"));
        }
        if self.head_size.is_none() && !self.hidden_size.is_multiple_of(self.heads) {
            return invalid(format!(
                "`hidden_size` {} is not a multiple of `heads` {}",
                self.hidden_size, self.heads
            ));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let message = format!(
                "`heads` {} is not a multiple of `kv_heads` {}",
                self.heads, self.kv_heads
            );
            return invalid(message);
        }
        if matches!(self.positions, Positions::Rotary { .. }) && !self.head_size().is_multiple_of(2)
        {
            let message = match self.head_size {
                Some(size) => format!("`head_size` {size}"),
                None => format!(
                    "`hidden_size` {} / `heads` {}",
                    self.hidden_size, self.heads
                ),
            };
            return invalid(format!(
                "rotary positions need an even head size, but {message} is odd"
            ));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return invalid(format!("`dropout` {} is not in [0, 1)", self.dropout));
        }
        Ok(())
    }
}

impl FromStr for TransformerConfig {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Ok(match name {
            "tiny" => TransformerConfig::tiny(),
            "small" => TransformerConfig::small(),
            "gpt2-124m" => TransformerConfig::gpt2(12, 768),
            "gpt2-medium" => TransformerConfig::gpt2(24, 1024),
            "gpt2-large" => TransformerConfig::gpt2(36, 1280),
            "gpt2-xl" => TransformerConfig::gpt2(48, 1600),
            "llama-7b" => TransformerConfig::llama(32, 4096, 11_008),
            "llama-13b" => TransformerConfig::llama(40, 5120, 13_824),
            "llama3-8b" => TransformerConfig {
                vocab_size: 128_256,
                context_length: 8192,
                kv_heads: 8,
                positions: Positions::rotary(500_000.0),
                norm_eps: 1e-5,
                ..TransformerConfig::llama(32, 4096, 14_336)
            },
            _ => {
                let message = format!(
                    "unknown transformer `{name}`; expected one of {}",
                    TransformerConfig::NAMES.join(", ")
                );
                return Err(Error::invalid("transformer", message));
            }
        })
    }
}

/// `12 layers of 768, 12 heads, 50257 tokens, context 1024`.
impl fmt::Display for TransformerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TransformerConfig {
            vocab_size,
            context_length,
            layers,
            hidden_size,
            heads,
            kv_heads,
            ..
        } = self;
        write!(f, "{layers} layers of {hidden_size}, {heads} heads")?;
        if kv_heads != heads {
            write!(f, " ({kv_heads} of keys and values)")?;
        }
        write!(f, ", {vocab_size} tokens, context {context_length}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_models_have_the_published_parameter_counts() {
        for (name, parameters) in [
            ("tiny", 7_872),
            ("gpt2-124m", 124_439_808),
            ("gpt2-medium", 354_823_168),
            ("gpt2-large", 774_030_080),
            ("gpt2-xl", 1_557_611_200),
            ("llama-7b", 6_738_415_616),
            ("llama-13b", 13_015_864_320),
            ("llama3-8b", 8_030_261_248),
        ] {
            let config: TransformerConfig = name.parse().unwrap();
            assert_eq!(config.parameters().unwrap(), parameters, "{name}");
        }
        for name in TransformerConfig::NAMES {
            name.parse::<TransformerConfig>().unwrap().check().unwrap();
        }
    }

    #[test]
    fn check_names_inconsistent_values() {
        let base = TransformerConfig::small();
        for (config, message) in [
            (TransformerConfig { layers: 0, ..base }, "`layers` is 0"),
            (
                TransformerConfig { heads: 3, ..base },
                "`hidden_size` 128 is not a multiple of `heads` 3",
            ),
            (
                TransformerConfig {
                    kv_heads: 3,
                    ..base
                },
                "`heads` 4 is not a multiple of `kv_heads` 3",
            ),
            (
                TransformerConfig {
                    hidden_size: 12,
                    ..base
                },
                "rotary positions need an even head size, but `hidden_size` 12 / `heads` 4 is odd",
            ),
            (
                TransformerConfig {
                    dropout: 1.0,
                    ..base
                },
                "`dropout` 1 is not in [0, 1)",
            ),
        ] {
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let error = "gpt5".parse::<TransformerConfig>().unwrap_err().to_string();
        assert!(
            error.contains("unknown transformer `gpt5`; expected one of tiny, small"),
            "{error}"
        );
    }
}
