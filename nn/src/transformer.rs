//! Decoder-only transformers, GPT-2, Llama and mixtures of both: see [`TransformerConfig`].
//!
//! # Parameters
//!
//! | path | dimensions | |
//! |---|---|---|
//! | `tokens.table` | `[vocab size, hidden size]` | the output layer too, if tied |
//! | `positions.table` | `[context length, hidden size]` | if learned |
//! | `blocks.attention_norm.scale`, `.bias` | `[layers, hidden size]` | |
//! | `blocks.attention.q.weight`, `k`, `v` | `[layers, hidden size, heads, head size]` | `k`, `v`: heads of keys and values |
//! | `blocks.attention.q.bias`, `k`, `v` | `[layers, heads, head size]` | |
//! | `blocks.attention.o.weight`, `.bias` | `[layers, heads, head size, hidden size]`, `[layers, hidden size]` | |
//! | `blocks.mlp_norm.scale`, `.bias` | `[layers, hidden size]` | |
//! | `blocks.mlp.up.weight`, `gate` | `[layers, hidden size, MLP size]` | `gate`: SwiGLU only |
//! | `blocks.mlp.up.bias` | `[layers, MLP size]` | |
//! | `blocks.mlp.down.weight`, `.bias` | `[layers, MLP size, hidden size]`, `[layers, hidden size]` | |
//! | `norm.scale`, `.bias` | `[hidden size]` | |
//! | `head.weight` | `[hidden size, vocab size]` | if not tied |
//!
//! Blocks are a [`Stack`]: the first dimension counts layers, and the size of the program does not
//! depend on their number. For tensor parallelism (Shoeybi et al. 2019) split `heads` of `q`, `k`,
//! `v` and `o`, the MLP size of `up`, `gate` and `down`, and the vocab size of `tokens` and `head`; each
//! half of a block then needs one all-reduce. No reshape mixes such a split dimension with another.
//!
//! Initialization is GPT-2's: normal with standard deviation 0.02; `o` and `down`, which add to the
//! residual stream, with `0.02 / sqrt(2 layers)`; biases 0, scales 1.

mod cache;
mod config;

use std::panic::Location;

use halite_core::{Result, Tree};

pub use self::cache::KeyValueCache;
pub use self::config::{MlpKind, NormKind, Positions, TransformerConfig};
use crate::{
    Activation, Attention, AxisRole, Dropout, Embedding, Init, LayerNorm, Linear, Mask, Param,
    RmsNorm, Rotary, Rotation, Stack, Tensor,
};

/// Decoder-only transformer: from tokens to logits of the next token.
///
/// ```
/// use halite_core::{DType, TensorType, Tree};
/// use halite_nn::{Trace, Transformer, TransformerConfig};
///
/// let model = Transformer::new(&TransformerConfig::tiny())?;
/// let cx = Trace::new();
/// let model = model.map_leaves(|path, param| cx.input(param.ty, path.to_string()));
/// let tokens = cx.input(TensorType::new(DType::U32, [4, 10]), "tokens");
/// assert_eq!(model.forward(tokens).ty().to_string(), "f32[4, 10, 64]");
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Transformer<L> {
    /// Token embedding.
    pub tokens: Embedding<L>,
    /// Position embedding, if positions are learned.
    pub positions: Option<Embedding<L>>,
    /// The blocks, in order.
    pub blocks: Stack<Block<L>>,
    /// Norm before the output layer.
    pub norm: Norm<L>,
    /// Output layer, if it is not tied to the token embedding.
    pub head: Option<Linear<L>>,
    /// Shape and options.
    pub config: TransformerConfig,
}

/// Pre-norm transformer block: attention and MLP, each normalized before and added to its input.
#[derive(Clone, Debug, Tree)]
pub struct Block<L> {
    /// Norm before attention.
    pub attention_norm: Norm<L>,
    /// Self-attention.
    pub attention: Attention<L>,
    /// Norm before the MLP.
    pub mlp_norm: Norm<L>,
    /// MLP.
    pub mlp: FeedForward<L>,
    /// Dropout of the output of each half.
    pub dropout: Dropout,
}

/// MLP of a transformer block: `down(f(up(x)))`, or gated, `down(f(gate(x)) * up(x))`.
#[derive(Clone, Debug, Tree)]
pub struct FeedForward<L> {
    /// `[in, hidden]`
    pub up: Linear<L>,
    /// `[in, hidden]`, of the gated form.
    pub gate: Option<Linear<L>>,
    /// `[hidden, out]`
    pub down: Linear<L>,
    /// `f`
    pub activation: Activation,
}

/// Norm over the last dimension: layer norm or RMS norm.
#[derive(Clone, Debug, Tree)]
pub struct Norm<L> {
    /// `[features]`
    pub scale: L,
    /// `[features]`, of layer norm only.
    pub bias: Option<L>,
    /// Kind of norm.
    pub kind: NormKind,
    /// Added to the variance or mean square, for numerical stability.
    pub eps: f64,
}

impl Transformer<Param> {
    /// Describes a model of this shape. Nothing of its size is allocated.
    ///
    /// # Errors
    /// If the configuration is invalid: see [`TransformerConfig::check`].
    pub fn new(config: &TransformerConfig) -> Result<Self> {
        config.check()?;
        let normal = |std: f64| Init::Normal { mean: 0.0, std };
        let table =
            |count: usize| Embedding::new(count, config.hidden_size).table_init(normal(STD));
        let positions = match config.positions {
            Positions::Learned => Some(table(config.context_length)),
            Positions::Rotary { .. } => None,
        };
        let head = Linear::new(config.hidden_size, config.vocab_size)
            .without_bias()
            .weight_init(normal(STD));
        let block = Block::new(
            config,
            normal(STD),
            normal(STD / (2.0 * config.layers as f64).sqrt()),
        );
        Ok(Transformer {
            tokens: table(config.vocab_size),
            positions,
            blocks: Stack::new(config.layers, block),
            norm: Norm::new(config),
            head: (!config.tied).then_some(head),
            config: *config,
        })
    }
}

/// Standard deviation of initial weights.
const STD: f64 = 0.02;

impl<'t> Transformer<Tensor<'t>> {
    /// Maps `tokens: [batch, time]`, integers, to logits `[batch, time, vocab size]`. The logits at a
    /// position are for the next token, and depend on no later one.
    #[track_caller]
    pub fn forward(&self, tokens: Tensor<'t>) -> Tensor<'t> {
        let _site = tokens.trace().called_from(Location::caller());
        self.logits(self.features(tokens))
    }

    /// The output layer: maps `features: [.., hidden size]` to logits `[.., vocab size]`.
    #[track_caller]
    pub fn logits(&self, features: Tensor<'t>) -> Tensor<'t> {
        let _site = features.trace().called_from(Location::caller());
        match &self.head {
            Some(head) => head.forward(features),
            None => self.tokens.attend(features),
        }
    }

    /// Maps `tokens: [batch, time]`, integers, to the input of the output layer:
    /// `[batch, time, hidden size]`.
    #[track_caller]
    pub fn features(&self, tokens: Tensor<'t>) -> Tensor<'t> {
        let cx = tokens.trace();
        let _site = cx.called_from(Location::caller());
        let config = &self.config;
        let like = self
            .tokens
            .table
            .ty()
            .with_dims([tokens.dims(), vec![config.hidden_size]].concat());
        if tokens.is_error() {
            return cx.error_like(Some(like));
        }
        let dims = tokens.dims();
        if dims.len() != 2 || !tokens.dtype().is_integer() || dims[1] > config.context_length {
            let message = format!(
                "tokens are {}; expected integers [batch, time], time at most {}",
                tokens.ty(),
                config.context_length
            );
            return cx.fail("transformer", message, Some(like));
        }
        let mut x = self.tokens.forward(tokens);
        let mut rotation = None;
        match (config.positions, &self.positions) {
            (Positions::Rotary { theta, scaling }, _) => {
                let rotary = Rotary { theta, scaling };
                rotation = Some(rotary.rotation(cx, dims[1], config.head_size()))
            }
            (Positions::Learned, Some(positions)) => {
                x = x + positions.table.slice_dim(0, ..dims[1])
            }
            (Positions::Learned, None) => {
                return cx.fail(
                    "transformer",
                    "`positions` is `Learned`, but the model has no position embedding",
                    Some(like),
                );
            }
        }
        x = shard_by_samples(Dropout::new(config.dropout).forward(x));
        let block = |block: &Block<Tensor<'t>>, x| {
            shard_by_samples(block.forward(shard_by_samples(x), Mask::Causal, rotation))
        };
        let x = self.blocks.scan_with(cx, config.remat, x, block);
        shard_by_samples(self.norm.forward(x))
    }
}

/// Shards `x: [batch, ..]` by samples. Weights that are fully sharded are split over the same axes;
/// without this the compiler may split the activations between blocks as it finds the weights split,
/// and compute all samples on every device.
fn shard_by_samples(x: Tensor<'_>) -> Tensor<'_> {
    x.role_constraint([Some(AxisRole::Batch)])
}

impl Block<Param> {
    /// Describes a block of the shape of `config`, with initialization `weights`, and `residual` for
    /// the layers that add to the residual stream.
    pub fn new(config: &TransformerConfig, weights: Init, residual: Init) -> Self {
        let mut attention = Attention::new(config.hidden_size, config.heads, config.head_size())
            .kv_heads(config.kv_heads)
            .dropout(config.dropout);
        for projection in [&mut attention.q, &mut attention.k, &mut attention.v] {
            projection.weight.init = weights;
            projection
                .bias
                .iter_mut()
                .for_each(|bias| bias.init = Init::Zeros);
        }
        attention.o.weight.init = residual;
        attention
            .o
            .bias
            .iter_mut()
            .for_each(|bias| bias.init = Init::Zeros);

        let dense = |inputs, outputs, init| {
            Linear::new(inputs, outputs)
                .weight_init(init)
                .bias_init(Init::Zeros)
        };
        let up = || dense(config.hidden_size, config.mlp_size, weights);
        let (gate, activation) = match config.mlp {
            MlpKind::Gelu => (None, Activation::GeluTanh),
            MlpKind::SwiGlu => (Some(up()), Activation::Silu),
        };
        let mut mlp = FeedForward {
            up: up(),
            gate,
            down: dense(config.mlp_size, config.hidden_size, residual),
            activation,
        };
        if !config.bias {
            mlp = mlp.without_bias();
            attention.o.bias = None;
        }
        if !(config.bias || config.qkv_bias) {
            attention = attention.without_bias();
        }
        let dropout = Dropout::new(config.dropout);
        Block {
            attention_norm: Norm::new(config),
            attention,
            mlp_norm: Norm::new(config),
            mlp,
            dropout,
        }
    }
}

impl<'t> Block<Tensor<'t>> {
    /// Maps `x: [batch, time, hidden size]` to the same type.
    #[track_caller]
    pub fn forward(
        &self,
        x: Tensor<'t>,
        mask: Mask<'t>,
        rotation: Option<Rotation<'t>>,
    ) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        let x = x + self.dropout.forward(self.attention.forward(
            self.attention_norm.forward(x),
            mask,
            rotation,
        ));
        x + self
            .dropout
            .forward(self.mlp.forward(self.mlp_norm.forward(x)))
    }
}

impl FeedForward<Param> {
    /// Removes the biases.
    pub fn without_bias(mut self) -> Self {
        for layer in [Some(&mut self.up), self.gate.as_mut(), Some(&mut self.down)]
            .into_iter()
            .flatten()
        {
            layer.bias = None;
        }
        self
    }
}

impl<'t> FeedForward<Tensor<'t>> {
    /// Maps `x: [.., in]` to `[.., out]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        let up = self.up.forward(x);
        let hidden = match &self.gate {
            Some(gate) => self.activation.forward(gate.forward(x)) * up,
            None => self.activation.forward(up),
        };
        self.down.forward(hidden)
    }
}

impl Norm<Param> {
    /// Describes a norm as in `config`.
    pub fn new(config: &TransformerConfig) -> Self {
        let has_bias = config.norm == NormKind::Layer && config.bias;
        Norm {
            scale: Param::new([config.hidden_size], Init::Ones),
            bias: has_bias.then(|| Param::new([config.hidden_size], Init::Zeros)),
            kind: config.norm,
            eps: config.norm_eps,
        }
    }
}

impl<'t> Norm<Tensor<'t>> {
    /// Normalizes `x: [.., features]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let Norm {
            scale,
            bias,
            kind,
            eps,
        } = *self;
        match kind {
            NormKind::Layer => LayerNorm { scale, bias, eps }.forward(x),
            NormKind::Rms => RmsNorm { scale, eps }.forward(x),
        }
    }
}
