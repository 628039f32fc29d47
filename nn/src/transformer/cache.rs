//! Key-value cache: the forward pass of new positions given the keys and values of those before.
//!
//! Sequences of a batch end at the same position of the cache, so that one start is that of all: a
//! shorter one starts later, at `first` of it, and what is before is padding that nothing attends
//! to. Positions, learned or rotary, count from the first token of each sequence.

use std::panic::Location;

use halite_core::{DType, TensorType, Tree, tree::Empty};
use halite_ir::{DotAttributes, Reduction};

use super::{Block, Positions, Transformer, TransformerConfig};
use crate::{Dropout, Mask, Rotary, Rotation, Tensor, attention, special::wide};

/// Keys and values of the positions so far, in all layers.
#[derive(Clone, Copy, Debug, Tree)]
pub struct KeyValueCache<L> {
    /// Rotated keys, `[layers, batch, kv heads, length, head size]`.
    pub keys: L,
    /// Values, `[layers, batch, kv heads, length, head size]`.
    pub values: L,
}

impl TransformerConfig {
    /// Type of the keys, and of the values, of a [`KeyValueCache`] for `batch` sequences of at most
    /// `length` positions.
    ///
    /// # Panics
    /// If `heads` is 0.
    pub fn cache_type(&self, dtype: DType, batch: usize, length: usize) -> TensorType {
        let dims = [self.layers, batch, self.kv_heads, length, self.head_size()];
        TensorType::new(dtype, dims)
    }
}

impl<'t> Transformer<Tensor<'t>> {
    /// Forward pass of the first `tokens: [batch, time]`, integers: the input of the output layer,
    /// `[batch, time, hidden size]`, and a cache of `length` positions, of which the first `time` are
    /// set. `first: s32[batch]` is the position of the first token of each sequence; without it, all
    /// start at 0.
    ///
    /// Dropout is not applied.
    #[track_caller]
    pub fn prefill(
        &self,
        tokens: Tensor<'t>,
        first: Option<Tensor<'t>>,
        length: usize,
    ) -> (Tensor<'t>, KeyValueCache<Tensor<'t>>) {
        let cx = tokens.trace();
        let _site = cx.called_from(Location::caller());
        let start = cx.scalar(0.0, DType::S32);
        let (x, positions) = match self.embedded(tokens, start, first) {
            Ok(embedded) => embedded,
            Err(error) => return self.failed(error, length),
        };
        let [batch, time] = [tokens.dims()[0], tokens.dims()[1]];
        if length < time {
            let message = format!("{time} tokens for a cache of {length} positions");
            let like = x.ty();
            return self.failed(cx.fail("prefill", message, Some(like)), length);
        }
        let rotation = self.rotation(positions);
        let mask = match first {
            None => Mask::Causal,
            Some(first) => {
                let index = TensorType::new(DType::S32, [batch, 1, time, time]);
                let (query, source) = (cx.iota(&index, 2), cx.iota(&index, 3));
                let first = first.convert(DType::S32);
                let is_token = source.ge(first.broadcast_in_dim(index.dims(), [0]));
                Mask::Where(is_token.and(source.le(query)))
            }
        };
        let no_cache = Empty::new();
        let (x, new) = self.blocks.scan_over(cx, None, x, no_cache, |block, x, _| {
            block.with_new(x, rotation, |q, new| {
                attention(q, new.keys, new.values, mask, Dropout::new(0.0))
            })
        });
        let padding = [0, 0, 0, length - time, 0].map(|after| (0, after as i64));
        let padded = |x: Tensor<'t>| x.pad(0.0, padding);
        let cache = KeyValueCache {
            keys: padded(new.keys),
            values: padded(new.values),
        };
        (self.norm.forward(x), cache)
    }

    /// Forward pass of `tokens: [batch, time]`, integers, at the positions from `start: s32[]` on, of
    /// sequences of which `cache` has those before: the input of the output layer,
    /// `[batch, time, hidden size]`, and the cache with the new positions. `first` is that of
    /// [`prefill`](Self::prefill).
    ///
    /// A start from which the tokens do not fit the cache is moved back; the result is that of no
    /// sequence then. Dropout is not applied.
    #[track_caller]
    pub fn decode(
        &self,
        tokens: Tensor<'t>,
        cache: KeyValueCache<Tensor<'t>>,
        start: Tensor<'t>,
        first: Option<Tensor<'t>>,
    ) -> (Tensor<'t>, KeyValueCache<Tensor<'t>>) {
        let cx = tokens.trace();
        let _site = cx.called_from(Location::caller());
        let length = cache.keys.dims().get(3).copied().unwrap_or(0);
        let (x, positions) = match self.embedded(tokens, start, first) {
            Ok(embedded) => embedded,
            Err(error) => return self.failed(error, length),
        };
        let [batch, time] = [tokens.dims()[0], tokens.dims()[1]];
        let expected = self.config.cache_type(cache.keys.dtype(), batch, length);
        if cache.keys.ty() != expected || cache.values.ty() != expected || length < time {
            let [keys, values] = [cache.keys.ty(), cache.values.ty()];
            let message = format!(
                "a cache of keys {keys} and values {values} for {time} tokens; expected {expected} \
                 [layers, batch, kv heads, length, head size], length at least the number of tokens"
            );
            return self.failed(cx.fail("decode", message, Some(x.ty())), length);
        }
        let rotation = self.rotation(positions);
        let is_cached = is_cached(start, first, [batch, length]);
        let (x, new) = self
            .blocks
            .scan_over(cx, None, x, cache, |block, x, cache| {
                block.with_new(x, rotation, |q, new| attended(q, cache, is_cached, new))
            });
        let zero = cx.scalar(0.0, DType::S32);
        let starts = [zero, zero, zero, start.convert(DType::S32), zero];
        let cache = KeyValueCache {
            keys: cache.keys.dynamic_update_slice(new.keys, &starts),
            values: cache.values.dynamic_update_slice(new.values, &starts),
        };
        (self.norm.forward(x), cache)
    }

    /// Embeddings of tokens `[batch, time]` at the positions from `start` on, and these positions,
    /// `s32[batch, time]`, each counted from the first of its sequence. Padding is at position 0.
    #[track_caller]
    fn embedded(
        &self,
        tokens: Tensor<'t>,
        start: Tensor<'t>,
        first: Option<Tensor<'t>>,
    ) -> Result<(Tensor<'t>, Tensor<'t>), Tensor<'t>> {
        let (cx, dims) = (tokens.trace(), tokens.dims());
        let like = (self.tokens.table.ty())
            .with_dims([dims.clone(), vec![self.config.hidden_size]].concat());
        let all = [Some(tokens), Some(start), first];
        if all.iter().flatten().any(|tensor| tensor.is_error()) {
            return Err(cx.error_like(Some(like)));
        }
        let is_integer = |tensor: Tensor<'t>| tensor.dtype().is_integer();
        let fits = dims.len() == 2
            && dims[1] > 0
            && is_integer(tokens)
            && (is_integer(start) && start.rank() == 0)
            && first.is_none_or(|first| is_integer(first) && first.dims() == dims[..1]);
        if !fits {
            let first = first.map_or(String::new(), |first| format!(", first {}", first.ty()));
            let message = format!(
                "tokens {}, start {}{first}; expected integers [batch, time], [] and [batch]",
                tokens.ty(),
                start.ty()
            );
            return Err(cx.fail("transformer", message, Some(like)));
        }
        let places = TensorType::new(DType::S32, &dims);
        let mut positions = cx.iota(&places, 1) + start.convert(DType::S32).broadcast_to(&dims);
        if let Some(first) = first {
            let first = first.convert(DType::S32).broadcast_in_dim(&dims, [0]);
            positions = (positions - first).maximum(0);
        }
        let mut x = self.tokens.forward(tokens);
        if let Some(table) = &self.positions {
            x = x + table.forward(positions);
        }
        Ok((x, positions))
    }

    #[track_caller]
    fn rotation(&self, positions: Tensor<'t>) -> Option<Rotation<'t>> {
        match self.config.positions {
            Positions::Learned => None,
            Positions::Rotary { theta, scaling } => {
                let rotary = Rotary { theta, scaling };
                Some(rotary.rotation_at(positions, self.config.head_size()))
            }
        }
    }

    /// The results after a mistake.
    fn failed(
        &self,
        features: Tensor<'t>,
        length: usize,
    ) -> (Tensor<'t>, KeyValueCache<Tensor<'t>>) {
        let ty = features.ty();
        let batch = ty.dims().first().copied().unwrap_or(0);
        let cache = self.config.cache_type(ty.dtype(), batch, length);
        let error = features.trace().error_like(Some(cache));
        let cache = KeyValueCache {
            keys: error,
            values: error,
        };
        (features, cache)
    }
}

impl<'t> Block<Tensor<'t>> {
    /// The block with an attention of the caller's, from queries `[batch, time, heads, width]` and
    /// new keys and values `[batch, time, kv heads, width]` to `[batch, time, heads, width]`. Returns
    /// `x: [batch, time, hidden size]`, and the new keys and values as in a cache,
    /// `[batch, kv heads, time, width]`.
    #[track_caller]
    fn with_new(
        &self,
        x: Tensor<'t>,
        rotation: Option<Rotation<'t>>,
        attend: impl FnOnce(Tensor<'t>, KeyValueCache<Tensor<'t>>) -> Tensor<'t>,
    ) -> (Tensor<'t>, KeyValueCache<Tensor<'t>>) {
        let rotated = |x: Tensor<'t>| rotation.map_or(x, |rotation| rotation.forward(x));
        let normed = self.attention_norm.forward(x);
        let q = rotated(self.attention.q.forward(normed));
        let new = KeyValueCache {
            keys: rotated(self.attention.k.forward(normed)),
            values: self.attention.v.forward(normed),
        };
        let x = x + self.attention.o.forward(attend(q, new));
        let x = x + self.mlp.forward(self.mlp_norm.forward(x));
        let cached = KeyValueCache {
            keys: new.keys.swap_dims(1, 2),
            values: new.values.swap_dims(1, 2),
        };
        (x, cached)
    }
}

/// Whether a position of the cache has a token before `start`: `bool[batch, length]`.
#[track_caller]
fn is_cached<'t>(start: Tensor<'t>, first: Option<Tensor<'t>>, size: [usize; 2]) -> Tensor<'t> {
    let [batch, length] = size;
    let index = TensorType::new(DType::S32, [batch, length]);
    let index = start.trace().iota(&index, 1);
    let before = index.lt(start.convert(DType::S32).broadcast_to(index.dims()));
    let Some(first) = first else {
        return before;
    };
    let first = first.convert(DType::S32);
    before.and(index.ge(first.broadcast_in_dim(index.dims(), [0])))
}

/// Attention of `q: [batch, time, heads, width]` to the positions of a layer's cache,
/// `[batch, kv heads, length, width]`, where `is_cached: bool[batch, length]`, and, causally, to the
/// new ones, `[batch, time, kv heads, width]`. The softmax is over both, in f32. Query heads that
/// share keys are a dimension of the products: keys are not repeated.
#[track_caller]
fn attended<'t>(
    q: Tensor<'t>,
    cache: KeyValueCache<Tensor<'t>>,
    is_cached: Tensor<'t>,
    new: KeyValueCache<Tensor<'t>>,
) -> Tensor<'t> {
    let (cx, dims) = (q.trace(), q.dims());
    let [batch, time, heads, width] = [dims[0], dims[1], dims[2], dims[3]];
    let kv_heads = new.keys.dims()[2];
    let wide = wide(q.dtype());
    let q = q * (1.0 / (width as f64).sqrt());
    let q = q.reshape([batch, time, kv_heads, heads / kv_heads, width]);
    // `[batch, kv heads, time, groups, positions]`; `kv` is the dimension of kv heads.
    let scores = |keys: Tensor<'t>, kv: usize| {
        let dot = DotAttributes {
            lhs_batching: vec![0, 2],
            rhs_batching: vec![0, kv],
            lhs_contracting: vec![4],
            rhs_contracting: vec![3],
            ..DotAttributes::default()
        };
        q.dot_general(keys, dot, wide)
    };
    let masked = |scores: Tensor<'t>, allowed: Tensor<'t>, dims: &[usize]| {
        let allowed = allowed.broadcast_in_dim(scores.dims(), dims);
        allowed.select(scores, f64::NEG_INFINITY)
    };
    let old_scores = masked(scores(cache.keys, 1), is_cached, &[0, 4]);
    let mut new_scores = scores(new.keys, 2);
    if time > 1 {
        let square = TensorType::new(DType::S32, [time, time]);
        let until_own = cx.iota(&square, 1).le(cx.iota(&square, 0));
        new_scores = masked(new_scores, until_own, &[2, 4]);
    }
    let max = |scores: Tensor<'t>| scores.reduce_keep(Reduction::Max, [4]);
    // A query attends to its own position at least.
    let max = max(old_scores).maximum(max(new_scores));
    let (old, new_weights) = ((old_scores - max).exp(), (new_scores - max).exp());
    let sum = old.sum_keep([4]) + new_weights.sum_keep([4]);
    // `[batch, kv heads, time, groups, width]`; `kv` and `positions` are dimensions of the values.
    let weighted = |weights: Tensor<'t>, values: Tensor<'t>, kv: usize, positions: usize| {
        let dot = DotAttributes {
            lhs_batching: vec![0, 1],
            rhs_batching: vec![0, kv],
            lhs_contracting: vec![4],
            rhs_contracting: vec![positions],
            ..DotAttributes::default()
        };
        weights
            .convert(values.dtype())
            .dot_general(values, dot, wide)
    };
    let values = weighted(old, cache.values, 1, 2) + weighted(new_weights, new.values, 2, 1);
    let result = (values / sum).convert(new.values.dtype());
    result.swap_dims(1, 2).reshape(dims)
}
