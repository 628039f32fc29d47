//! What a transformer looks like, and the ones that have names.

use std::{fmt, str::FromStr};

use halite_core::{Error, Result};
use halite_ir::Remat;

use super::Transformer;
use crate::Param;

/// The shape of a [`Transformer`]. The named ones are functions; their fields may be changed.
///
/// ```
/// use halite_nn::TransformerConfig;
///
/// let config: TransformerConfig = "gpt2-124m".parse()?;
/// assert_eq!(config.parameters()?, 124_439_808);
/// let short = TransformerConfig { context: 256, dropout: 0.1, ..config };
/// assert_eq!(short.parameters()?, 124_439_808 - (1024 - 256) * 768);
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransformerConfig {
    /// How many tokens there are.
    pub vocabulary: usize,
    /// The longest sequence. Learned positions have so many vectors; rotary ones take any length.
    pub context: usize,
    /// Blocks.
    pub layers: usize,
    /// Features of each position.
    pub width: usize,
    /// Heads of queries, each of `width / heads` features.
    pub heads: usize,
    /// Heads of keys and values; `heads` is a multiple.
    pub kv_heads: usize,
    /// Features inside the dense part of a block.
    pub hidden: usize,
    /// How a token knows where it stands.
    pub positions: Positions,
    /// What normalises, before each half of a block and at the end.
    pub norm: NormKind,
    /// Added to the variance or mean square that is divided by.
    pub norm_eps: f64,
    /// The dense part of a block.
    pub mlp: MlpKind,
    /// Dense layers have biases, and so have layer norms.
    pub bias: bool,
    /// The output layer is the table of tokens; else a matrix of its own.
    pub tied: bool,
    /// The part dropped in training, of embeddings, attention weights, and what each half of a
    /// block adds.
    pub dropout: f64,
    /// What of each block gradients compute again instead of keeping it; `None` keeps what they
    /// need.
    pub remat: Option<Remat>,
}

/// How a token knows where it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Positions {
    /// A learned vector for each position is added to the token's.
    Learned,
    /// Queries and keys are turned: [`Rotary`](crate::Rotary), with this base of wave lengths.
    Rotary {
        /// The base: 10,000; more for long contexts.
        theta: f64,
    },
}

/// A normalisation of the last dimension.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NormKind {
    /// [`LayerNorm`](crate::LayerNorm)
    Layer,
    /// [`RmsNorm`](crate::RmsNorm)
    Rms,
}

/// The dense part of a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MlpKind {
    /// `down(gelu(up(x)))`, with gelu by a tanh as in GPT-2.
    Gelu,
    /// `down(silu(gate(x)) * up(x))` (Shazeer 2020).
    SwiGlu,
}

impl TransformerConfig {
    /// The names that [`FromStr`] knows.
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

    /// GPT-2's form (Radford et al. 2019) of any size: learned positions, layer norm, gelu, biases,
    /// a tied output layer, heads of 64 features, 50,257 tokens, 1,024 positions.
    pub const fn gpt2(layers: usize, width: usize) -> Self {
        TransformerConfig {
            vocabulary: 50_257,
            context: 1024,
            layers,
            width,
            heads: width / 64,
            kv_heads: width / 64,
            hidden: 4 * width,
            positions: Positions::Learned,
            norm: NormKind::Layer,
            norm_eps: 1e-5,
            mlp: MlpKind::Gelu,
            bias: true,
            tied: true,
            dropout: 0.0,
            remat: None,
        }
    }

    /// Llama's form (Touvron et al. 2023) of any size: rotary positions, RMS norm, SwiGLU, no
    /// biases, an output layer of its own, heads of 128 features, 32,000 tokens, 2,048 positions.
    pub const fn llama(layers: usize, width: usize, hidden: usize) -> Self {
        TransformerConfig {
            vocabulary: 32_000,
            context: 2048,
            layers,
            width,
            heads: width / 128,
            kv_heads: width / 128,
            hidden,
            positions: Positions::Rotary { theta: 10_000.0 },
            norm: NormKind::Rms,
            norm_eps: 1e-6,
            mlp: MlpKind::SwiGlu,
            bias: false,
            tied: false,
            dropout: 0.0,
            remat: None,
        }
    }

    /// GPT-2's form in 7,872 parameters, for tests: two layers of 16 features, two heads, 64
    /// tokens, 16 positions.
    pub const fn tiny() -> Self {
        TransformerConfig {
            vocabulary: 64,
            context: 16,
            heads: 2,
            kv_heads: 2,
            ..TransformerConfig::gpt2(2, 16)
        }
    }

    /// What two cores train in minutes: four layers of 128 features, four heads, 128 positions, 256
    /// tokens; rotary positions, RMS norm, SwiGLU, a tied output layer.
    pub const fn small() -> Self {
        TransformerConfig {
            vocabulary: 256,
            context: 128,
            heads: 4,
            kv_heads: 4,
            tied: true,
            ..TransformerConfig::llama(4, 128, 384)
        }
    }

    /// So many tokens.
    pub const fn vocabulary(mut self, tokens: usize) -> Self {
        self.vocabulary = tokens;
        self
    }

    /// So many positions.
    pub const fn context(mut self, positions: usize) -> Self {
        self.context = positions;
        self
    }

    /// Features of a head.
    ///
    /// # Panics
    /// If there are no heads.
    pub const fn head_width(&self) -> usize {
        self.width / self.heads
    }

    /// Numbers that are trained.
    ///
    /// # Errors
    /// If the shape fits no model: see [`check`](Self::check).
    pub fn parameters(&self) -> Result<usize> {
        let model = Transformer::<Param>::new(self)?;
        Ok(halite_core::Tree::leaves(&model)
            .iter()
            .map(|param| param.ty.elements())
            .sum())
    }

    /// That there is a model of this shape.
    ///
    /// # Errors
    /// What does not fit, with its values.
    pub fn check(&self) -> Result<()> {
        let invalid = |message: String| Err(Error::invalid("transformer", message));
        let sizes = [
            ("vocabulary", self.vocabulary),
            ("context", self.context),
            ("layers", self.layers),
            ("width", self.width),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("hidden", self.hidden),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return invalid(format!("`{name}` is 0; it must be at least 1"));
        }
        if !self.width.is_multiple_of(self.heads) {
            return invalid(format!(
                "a width of {} does not divide among {} heads",
                self.width, self.heads
            ));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let message = format!(
                "{} heads do not divide among {} heads of keys and values",
                self.heads, self.kv_heads
            );
            return invalid(message);
        }
        if matches!(self.positions, Positions::Rotary { .. })
            && !self.head_width().is_multiple_of(2)
        {
            return invalid(format!(
                "rotary positions need heads of even width, and {} / {} is odd",
                self.width, self.heads
            ));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return invalid(format!("dropout {} is not in 0 to 1", self.dropout));
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
                vocabulary: 128_256,
                context: 8192,
                kv_heads: 8,
                positions: Positions::Rotary { theta: 500_000.0 },
                norm_eps: 1e-5,
                ..TransformerConfig::llama(32, 4096, 14_336)
            },
            _ => {
                let message = format!(
                    "there is no transformer `{name}`; there are {}",
                    TransformerConfig::NAMES.join(", ")
                );
                return Err(Error::invalid("transformer", message));
            }
        })
    }
}

/// In words: `12 layers of 768, 12 heads, 50257 tokens, context 1024`.
impl fmt::Display for TransformerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TransformerConfig {
            vocabulary,
            context,
            layers,
            width,
            heads,
            kv_heads,
            ..
        } = self;
        write!(f, "{layers} layers of {width}, {heads} heads")?;
        if kv_heads != heads {
            write!(f, " ({kv_heads} of keys and values)")?;
        }
        write!(f, ", {vocabulary} tokens, context {context}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_models_have_as_many_parameters_as_the_published_ones() {
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
    fn shapes_that_fit_no_model_say_what_does_not_fit() {
        let base = TransformerConfig::small();
        for (config, message) in [
            (TransformerConfig { layers: 0, ..base }, "`layers` is 0"),
            (
                TransformerConfig { heads: 3, ..base },
                "a width of 128 does not divide among 3 heads",
            ),
            (
                TransformerConfig {
                    kv_heads: 3,
                    ..base
                },
                "4 heads do not divide among 3",
            ),
            (
                TransformerConfig { width: 12, ..base },
                "rotary positions need heads of even width, and 12 / 4 is odd",
            ),
            (
                TransformerConfig {
                    dropout: 1.0,
                    ..base
                },
                "dropout 1 is not in 0 to 1",
            ),
        ] {
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let error = "gpt5".parse::<TransformerConfig>().unwrap_err().to_string();
        assert!(
            error.contains("no transformer `gpt5`; there are tiny, small"),
            "{error}"
        );
    }
}
