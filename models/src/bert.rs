//! BERT: bidirectional transformer encoders (Devlin et al., "BERT: Pre-training of Deep Bidirectional
//! Transformers", 2018), and the sentence encoders made from them, such as MiniLM (Wang et al. 2020;
//! Reimers and Gurevych, "Sentence-BERT", 2019).
//!
//! | path | dimensions | name in the file |
//! |---|---|---|
//! | `words.table` | `[vocab size, hidden size]` | `embeddings.word_embeddings.weight` |
//! | `positions.table` | `[positions, hidden size]` | `embeddings.position_embeddings.weight` |
//! | `types.table` | `[types, hidden size]` | `embeddings.token_type_embeddings.weight` |
//! | `norm.scale`, `.bias` | `[hidden size]` | `embeddings.LayerNorm` |
//! | `blocks.attention.q.weight`, `k`, `v` | `[layers, hidden size, heads, head size]` | `encoder.layer.{layer}.attention.self.query`, `key`, `value` |
//! | `blocks.attention.o.weight` | `[layers, heads, head size, hidden size]` | `encoder.layer.{layer}.attention.output.dense` |
//! | `blocks.attention_norm.scale` | `[layers, hidden size]` | `encoder.layer.{layer}.attention.output.LayerNorm` |
//! | `blocks.mlp.up.weight` | `[layers, hidden size, MLP size]` | `encoder.layer.{layer}.intermediate.dense` |
//! | `blocks.mlp.down.weight` | `[layers, MLP size, hidden size]` | `encoder.layer.{layer}.output.dense` |
//! | `blocks.mlp_norm.scale` | `[layers, hidden size]` | `encoder.layer.{layer}.output.LayerNorm` |
//! | `pooler.weight` | `[hidden size, hidden size]` | `pooler.dense`, if the file has it |
//!
//! `config.json`: `vocab_size`, `hidden_size`, `num_hidden_layers`, `num_attention_heads`,
//! `intermediate_size`, `hidden_act`, `max_position_embeddings`, `type_vocab_size`,
//! `layer_norm_eps`, `hidden_dropout_prob`, `attention_probs_dropout_prob`.

mod config;

use std::{panic::Location, path::Path};

use halite_core::{DType, Error, Result, TensorType, Tree};
use halite_nn::{
    Attention, Dropout, Embedding, FeedForward, Init, LayerNorm, Linear, Mask, Param, Stack, Tensor,
};
use halite_weights::{NameMap, TensorSource};

pub use self::config::BertConfig;
use crate::{Pretrained, PretrainedModel};

/// BERT encoder: from tokens to one vector for each.
///
/// ```
/// use halite_core::{DType, TensorType, Tree};
/// use halite_models::{Bert, BertConfig, Pooling};
/// use halite_nn::Trace;
///
/// let config = BertConfig { layers: 2, ..BertConfig::minilm_l6() };
/// let cx = Trace::new();
/// let model = Bert::new(&config)?.map_leaves(|path, param| cx.input(param.ty, path.to_string()));
/// let tokens = cx.input(TensorType::new(DType::U32, [4, 16]), "tokens");
/// let mask = cx.input(TensorType::new(DType::Bool, [4, 16]), "mask");
/// let features = model.forward(tokens, mask);
/// assert_eq!(features.dims(), [4, 16, 384]);
/// assert_eq!(Pooling::Mean.pool(features, mask).dims(), [4, 384]);
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Bert<L> {
    /// Token embedding.
    pub words: Embedding<L>,
    /// Learned position embedding.
    pub positions: Embedding<L>,
    /// Embedding of the segment of a token: the first or the second sentence of a pair.
    pub types: Embedding<L>,
    /// Norm of the sum of the embeddings.
    pub norm: LayerNorm<L>,
    /// The blocks, in order.
    pub blocks: Stack<BertBlock<L>>,
    /// Dense layer with tanh on the first token, for classification.
    pub pooler: Option<Linear<L>>,
    /// Shape and options.
    pub config: BertConfig,
}

/// Post-norm transformer block: attention and MLP, each added to its input and then normalized.
#[derive(Clone, Debug, Tree)]
pub struct BertBlock<L> {
    /// Self-attention over all positions.
    pub attention: Attention<L>,
    /// Norm after attention.
    pub attention_norm: LayerNorm<L>,
    /// MLP.
    pub mlp: FeedForward<L>,
    /// Norm after the MLP.
    pub mlp_norm: LayerNorm<L>,
    /// Dropout of the output of each half.
    pub dropout: Dropout,
}

/// How the vectors of the tokens become one of the text.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Pooling {
    /// Mean over the tokens, without padding.
    #[default]
    Mean,
    /// Vector of the first token, `[CLS]`.
    Cls,
    /// Largest value of each feature over the tokens, without padding.
    Max,
    /// Vector of the last token before padding.
    LastToken,
}

impl Pooling {
    /// Maps `features: [batch, time, hidden size]` to `[batch, hidden size]`. `mask: bool[batch,
    /// time]` is false at padding.
    #[track_caller]
    pub fn pool<'t>(self, features: Tensor<'t>, mask: Tensor<'t>) -> Tensor<'t> {
        let _site = features.trace().called_from(Location::caller());
        let kept = || mask.unsqueeze(2).broadcast_to(features.dims());
        match self {
            Pooling::Cls => features.index(1, 0),
            Pooling::Max => kept().select(features, f64::NEG_INFINITY).max([1]),
            Pooling::LastToken => {
                let index = TensorType::new(DType::S32, mask.dims());
                let place = mask.select(features.trace().iota(&index, 1), -1);
                let is_last = place.eq(place.max_keep([1])).and(mask);
                let is_last = is_last.unsqueeze(2).broadcast_to(features.dims());
                is_last.select(features, 0.0).sum([1])
            }
            Pooling::Mean => {
                // 16 bits do not count beyond 256 (`bf16`), and sums may overflow (`f16`).
                let wide = match features.dtype() {
                    DType::F64 => DType::F64,
                    _ => DType::F32,
                };
                let sum = kept().select(features.convert(wide), 0.0).sum([1]);
                let count = mask.unsqueeze(2).convert(wide).sum([1]);
                (sum / count.maximum(1.0)).convert(features.dtype())
            }
        }
    }
}

impl Bert<Param> {
    /// Describes a model of this shape, initialized as in the paper: normal with standard deviation
    /// 0.02, biases 0.
    ///
    /// # Errors
    /// If a size is 0, the heads do not divide the hidden size, or a dropout rate is not below 1.
    pub fn new(config: &BertConfig) -> Result<Self> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(Error::invalid("bert", problems.join("; ")));
        }
        let table = |count: usize| Embedding::new(count, config.hidden_size).table_init(NORMAL);
        let pooler = dense(config.hidden_size, config.hidden_size);
        Ok(Bert {
            words: table(config.vocab_size),
            positions: table(config.context_length),
            types: table(config.types),
            norm: LayerNorm::new(config.hidden_size).eps(config.norm_eps),
            blocks: Stack::new(config.layers, BertBlock::new(config)),
            pooler: config.pooler.then_some(pooler),
            config: *config,
        })
    }

    /// Opens a model directory of Hugging Face: description, name map and weights. Files of models
    /// with heads, whose names start with `bert.`, are read without their heads.
    ///
    /// # Errors
    /// If it cannot be opened, describes another architecture, or contradicts the weights.
    pub fn from_pretrained(path: impl AsRef<Path>) -> Result<PretrainedModel<Self>> {
        Bert::of(Pretrained::open(path)?)
    }

    /// The model of an opened directory: see [`from_pretrained`](Self::from_pretrained).
    ///
    /// # Errors
    /// As [`from_pretrained`](Self::from_pretrained).
    pub fn of(source: Pretrained) -> Result<PretrainedModel<Self>> {
        let mut config = BertConfig::from_config(source.config()?)?;
        let has = |name: &str| {
            source
                .weights()
                .tensors()
                .iter()
                .any(|tensor| tensor.name == name)
        };
        let prefix = if has("bert.embeddings.word_embeddings.weight") {
            "bert."
        } else {
            ""
        };
        config.pooler = has(&format!("{prefix}pooler.dense.weight"));
        let model = Bert::new(&config)?;
        PretrainedModel::new(model, names_below(prefix), source)
    }

    /// The names of the parameters in files of Hugging Face.
    pub fn names(&self) -> NameMap {
        names_below("")
    }
}

fn names_below(prefix: &str) -> NameMap {
    let layer = format!("{prefix}encoder.layer.{{layer}}");
    let names = [
        ("words", "embeddings.word_embeddings"),
        ("positions", "embeddings.position_embeddings"),
        ("types", "embeddings.token_type_embeddings"),
        ("norm", "embeddings.LayerNorm"),
        ("pooler", "pooler.dense"),
    ];
    let of_layer = [
        ("attention.q", "attention.self.query"),
        ("attention.k", "attention.self.key"),
        ("attention.v", "attention.self.value"),
        ("attention.o", "attention.output.dense"),
        ("attention_norm", "attention.output.LayerNorm"),
        ("mlp.up", "intermediate.dense"),
        ("mlp.down", "output.dense"),
        ("mlp_norm", "output.LayerNorm"),
    ];
    let map = NameMap::torch()
        // Files of the packages before `transformers`.
        .older_ending(".LayerNorm.weight", ".LayerNorm.gamma")
        .older_ending(".LayerNorm.bias", ".LayerNorm.beta")
        .ignore("**.position_ids")
        // Heads of other tasks.
        .ignore("cls.**")
        .ignore("classifier.*")
        .ignore("qa_outputs.*");
    let map = (names.into_iter()).fold(map, |map, (path, name)| {
        map.rename(path, &format!("{prefix}{name}"))
    });
    (of_layer.into_iter()).fold(map, |map, (path, name)| {
        map.rename(&format!("blocks.{path}"), &format!("{layer}.{name}"))
    })
}

const NORMAL: Init = Init::Normal {
    mean: 0.0,
    std: 0.02,
};

fn dense(inputs: usize, outputs: usize) -> Linear<Param> {
    Linear::new(inputs, outputs)
        .weight_init(NORMAL)
        .bias_init(Init::Zeros)
}

impl BertBlock<Param> {
    /// Describes a block of the shape of `config`.
    pub fn new(config: &BertConfig) -> Self {
        let BertConfig {
            hidden_size,
            heads,
            mlp_size,
            ..
        } = *config;
        let mut attention = Attention::new(hidden_size, heads, hidden_size / heads)
            .dropout(config.attention_dropout);
        attention.o.weight.init = NORMAL;
        for projection in [&mut attention.q, &mut attention.k, &mut attention.v] {
            projection.weight.init = NORMAL;
            projection
                .bias
                .iter_mut()
                .for_each(|bias| bias.init = Init::Zeros);
        }
        attention
            .o
            .bias
            .iter_mut()
            .for_each(|bias| bias.init = Init::Zeros);
        let norm = LayerNorm::new(hidden_size).eps(config.norm_eps);
        BertBlock {
            attention,
            attention_norm: norm.clone(),
            mlp: FeedForward {
                up: dense(hidden_size, mlp_size),
                gate: None,
                down: dense(mlp_size, hidden_size),
                activation: config.activation,
            },
            mlp_norm: norm,
            dropout: Dropout::new(config.dropout),
        }
    }
}

impl<'t> Bert<Tensor<'t>> {
    /// Maps `tokens: [batch, time]`, integers of one sentence, to `[batch, time, hidden size]`.
    /// `mask: bool[batch, time]` is false at padding, whose results have no meaning.
    #[track_caller]
    pub fn forward(&self, tokens: Tensor<'t>, mask: Tensor<'t>) -> Tensor<'t> {
        let _site = tokens.trace().called_from(Location::caller());
        self.forward_pair(tokens, tokens.zeros_like(), mask)
    }

    /// Like [`forward`](Self::forward) with the segment of each token, `types: [batch, time]`.
    #[track_caller]
    pub fn forward_pair(
        &self,
        tokens: Tensor<'t>,
        types: Tensor<'t>,
        mask: Tensor<'t>,
    ) -> Tensor<'t> {
        let cx = tokens.trace();
        let _site = cx.called_from(Location::caller());
        let dims = tokens.dims();
        let (longest, hidden) = (self.config.context_length, self.config.hidden_size);
        if dims.len() != 2 || dims[1] > longest || mask.dims() != dims || types.dims() != dims {
            let message = format!(
                "tokens {}, types {}, mask {}; expected all [batch, time], time at most {longest}",
                tokens.ty(),
                types.ty(),
                mask.ty()
            );
            let like = self
                .words
                .table
                .ty()
                .with_dims([&dims[..], &[hidden]].concat());
            return cx.fail("bert", message, Some(like));
        }
        let positions = self.positions.table.slice_dim(0, ..dims[1]);
        let x = self.words.forward(tokens) + self.types.forward(types) + positions;
        let x = Dropout::new(self.config.dropout).forward(self.norm.forward(x));
        let allowed = mask.unsqueeze(1).unsqueeze(1);
        self.blocks
            .scan(cx, x, |block, x| block.forward(x, Mask::Where(allowed)))
    }

    /// Maps the features of [`forward`](Self::forward) to those of the pooler,
    /// `[batch, hidden size]`; `None` if the model has none.
    #[track_caller]
    pub fn pooled(&self, features: Tensor<'t>) -> Option<Tensor<'t>> {
        let _site = features.trace().called_from(Location::caller());
        let pooler = self.pooler.as_ref()?;
        Some(pooler.forward(features.index(1, 0)).tanh())
    }
}

impl<'t> BertBlock<Tensor<'t>> {
    /// Maps `x: [batch, time, hidden size]` to the same type.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>, mask: Mask<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        let attended = self.dropout.forward(self.attention.forward(x, mask, None));
        let x = self.attention_norm.forward(x + attended);
        let mapped = self.dropout.forward(self.mlp.forward(x));
        self.mlp_norm.forward(x + mapped)
    }
}
