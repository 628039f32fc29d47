//! Scaled dot-product attention, with the whole source at once or in blocks of it.

use std::panic::Location;

use halite_core::{DType, TensorType, Tree, tree::Empty};
use halite_ir::{DotAttributes, Literal};

use super::{Mask, operation::Attend};
use crate::{Dropout, Tensor, special::wide};

/// Least number of queries and of source positions that [`attention`] computes in blocks.
const LONG: usize = 2048;

/// Source positions of a block in [`attention`].
const BLOCK: usize = 256;

/// Scaled dot-product attention: `softmax(q · k / sqrt(width)) · v`, with the softmax over the
/// source in `f32`.
///
/// `q: [batch, time, heads, width]`, `k: [batch, source, kv_heads, width]`,
/// `v: [batch, source, kv_heads, any]`, to `[batch, time, heads, any]`. Query head `h` uses
/// key head `h / (heads / kv_heads)`. `dropout` applies to the attention weights.
///
/// Source positions that no query attends to, and queries that attend to none, are left out of the
/// result and of the gradients, also if they are not finite. A source position that is not finite
/// and that some query attends to may make the results of other queries NaN.
///
/// From 2048 queries and source positions on, it is [`attention_in_blocks`] of 256 positions.
#[track_caller]
pub fn attention<'t>(
    q: Tensor<'t>,
    k: Tensor<'t>,
    v: Tensor<'t>,
    mask: Mask<'t>,
    dropout: Dropout,
) -> Tensor<'t> {
    let _site = q.trace().called_from(Location::caller());
    let positions = |x: Tensor<'_>| x.dims().get(1).copied().unwrap_or(0);
    let is_long = positions(q).min(positions(k)) >= LONG;
    let block = if is_long { BLOCK } else { usize::MAX };
    attention_in_blocks(q, k, v, mask, dropout, block)
}

/// [`attention`] that never holds all scores, `[batch, heads, time, source]`, in either pass: a
/// scan over blocks of `block` source positions with an online softmax (Milakov and Gimelshein
/// 2018), which the backward pass recomputes block by block (Dao et al. 2022). It equals
/// [`attention`] but for rounding, and for the random numbers of dropout.
#[track_caller]
pub fn attention_in_blocks<'t>(
    q: Tensor<'t>,
    k: Tensor<'t>,
    v: Tensor<'t>,
    mask: Mask<'t>,
    dropout: Dropout,
    block: usize,
) -> Tensor<'t> {
    let cx = q.trace();
    let _site = cx.called_from(Location::caller());
    if q.is_error() || k.is_error() || v.is_error() {
        return cx.error_like(Some(q.ty()));
    }
    let Some(sizes) = Sizes::of(q, k, v) else {
        let message = format!(
            "queries {}, keys {}, values {}; expected floats [batch, time, heads, width], \
             [batch, source, kv heads, width] and [batch, source, kv heads, any], with heads a \
             multiple of kv heads",
            q.ty(),
            k.ty(),
            v.ty()
        );
        return cx.fail("attention", message, Some(q.ty()));
    };
    let result = v
        .ty()
        .with_dims([sizes.batch, sizes.time, sizes.heads, v.dims()[3]]);
    if block == 0 {
        let message = "blocks of 0 source positions; expected at least 1";
        return cx.fail("attention", message, Some(result));
    }
    let mask = match sizes.checked(mask) {
        Ok(mask) => mask,
        Err(None) => return cx.error_like(Some(result)),
        Err(Some(message)) => return cx.fail("attention", message, Some(result)),
    };
    let [q, k, v] = sizes.cleared(mask, [q, k, v]);
    let q = q * (1.0 / (sizes.width as f64).sqrt());
    if mask.tensor().is_none() && !dropout.is_active(cx) {
        let is_causal = matches!(mask, Mask::Causal);
        let operation = Attend {
            sizes,
            is_causal,
            block,
        };
        return operation.call([q, k, v]);
    }
    let queries = Queries {
        sizes,
        q: sizes.split_heads(q),
        mask: sizes.like_scores(mask),
        dropout,
    };
    sizes.attended(queries.attend_to(k, v, block), v.dtype())
}

/// Queries, with what applies to all blocks of the source.
pub(super) struct Queries<'t> {
    pub(super) sizes: Sizes,
    /// `[batch, time, kv heads, (groups,) width]`, scaled.
    pub(super) q: Tensor<'t>,
    /// With dimensions like those of the scores.
    pub(super) mask: Mask<'t>,
    pub(super) dropout: Dropout,
}

/// A block of source positions.
#[derive(Tree)]
pub(super) struct Block<L> {
    /// `[batch, positions, kv heads, width]`
    pub(super) k: L,
    /// `[batch, positions, kv heads, any]`
    pub(super) v: L,
    /// The block of a mask that is not the same for all positions.
    pub(super) mask: Option<L>,
    /// Source position of the first: `s64[]`.
    pub(super) first: L,
}

/// Sums over the source positions so far; the dimensions before the last are those of the scores:
/// `[batch, kv heads, time, (groups,)]`.
#[derive(Tree)]
pub(super) struct Sums<L> {
    /// Largest score: `[.., 1]`.
    pub(super) max: L,
    /// Sum of the weights, the exponentials of the scores less `max`: `[.., 1]`.
    pub(super) sum: L,
    /// Sum of the values times their weights: `[.., any]`.
    values: L,
}

impl<'t> Queries<'t> {
    /// The sums over all source positions.
    #[track_caller]
    pub(super) fn attend_to(&self, k: Tensor<'t>, v: Tensor<'t>, block: usize) -> Sums<Tensor<'t>> {
        let (cx, source) = (k.trace(), self.sizes.source);
        let mask = self.mask.tensor();
        let mask = mask.filter(|mask| mask.dims().last() == Some(&source));
        let (blocks, rest) = Block {
            k,
            v,
            mask,
            first: cx.scalar(0.0, DType::S64),
        }
        .split(block);
        let Some(blocks) = blocks else {
            return self.add(None, &rest.expect("there are no other positions"));
        };
        // The backward pass recomputes the weights of a block from its keys and the largest scores.
        let (sums, Empty { .. }) = cx.scan(self.no_sums(v), blocks, |sums, block| {
            (cx.checkpoint(|| self.add(Some(sums), &block)), Empty::new())
        });
        match rest {
            None => sums,
            Some(rest) => self.add(Some(sums), &rest),
        }
    }

    /// The sums over no source positions.
    fn no_sums(&self, v: Tensor<'t>) -> Sums<Tensor<'t>> {
        let (cx, mut dims) = (v.trace(), self.q.dims());
        dims.swap(1, 2);
        let last = dims.len() - 1;
        let mut full = |value, size| {
            dims[last] = size;
            cx.full(value, &TensorType::new(wide(self.q.dtype()), &dims))
        };
        Sums {
            max: full(f64::NEG_INFINITY, 1),
            sum: full(0.0, 1),
            values: full(0.0, v.dims()[3]),
        }
    }

    /// Adds a block to the sums over those before it.
    #[track_caller]
    fn add(&self, before: Option<Sums<Tensor<'t>>>, block: &Block<Tensor<'t>>) -> Sums<Tensor<'t>> {
        let scores = self.scores(block);
        let last = [scores.rank() - 1];
        let max = scores.max_keep(last);
        let max = before
            .as_ref()
            .map_or(max, |before| max.maximum(before.max));
        // The result does not depend on the maximum, which only prevents overflow.
        let max = max.stop_gradient();
        // Masked positions have score -inf and weight 0, also if there are no others.
        let shift = finite_or_zero(max);
        // The weights are normalized after the product with the values: the backward pass then needs
        // no other array of their size. With `d` the cotangent of the result, divided by `sum`,
        // dscores = weights * (d · v - rowsum(d * result)).
        let weights = (scores - shift).exp();
        let sum = weights.sum_keep(last);
        let dot = DotAttributes {
            lhs_batching: vec![0, 1],
            rhs_batching: vec![0, 2],
            lhs_contracting: last.to_vec(),
            rhs_contracting: vec![1],
            ..DotAttributes::default()
        };
        let weights = self.dropout.forward(weights).convert(block.v.dtype());
        let values = weights.dot_general(block.v, dot, sum.dtype());
        let Some(before) = before else {
            return Sums { max, sum, values };
        };
        let decay = (before.max - shift).exp();
        Sums {
            max,
            sum: before.sum * decay + sum,
            values: before.values * decay + values,
        }
    }

    /// The scores `[batch, kv heads, time, (groups,) positions]`; -inf where masked.
    #[track_caller]
    pub(super) fn scores(&self, block: &Block<Tensor<'t>>) -> Tensor<'t> {
        let scores = scores(self.q, block.k);
        match self.mask {
            Mask::None => scores,
            Mask::Causal => {
                let allowed = self.sizes.until_own(block);
                let allowed = allowed.broadcast_in_dim(scores.dims(), [2, scores.rank() - 1]);
                allowed.select(scores, f64::NEG_INFINITY)
            }
            Mask::Where(allowed) => {
                let allowed = block.mask.unwrap_or(allowed).broadcast_to(scores.dims());
                allowed.select(scores, f64::NEG_INFINITY)
            }
            Mask::Add(bias) => {
                let bias = block.mask.unwrap_or(bias).convert(scores.dtype());
                let bias = bias.broadcast_to(scores.dims());
                // A score there may be NaN.
                bias.eq(f64::NEG_INFINITY).select(bias, scores + bias)
            }
        }
    }
}

/// Products `[batch, kv heads, time, (groups,) positions]` of `q: [batch, time, kv heads, (groups,)
/// width]` and `k: [batch, positions, kv heads, width]`.
#[track_caller]
pub(super) fn scores<'t>(q: Tensor<'t>, k: Tensor<'t>) -> Tensor<'t> {
    let dot = DotAttributes {
        lhs_batching: vec![0, 2],
        rhs_batching: vec![0, 2],
        lhs_contracting: vec![q.rank() - 1],
        rhs_contracting: vec![3],
        ..DotAttributes::default()
    };
    q.dot_general(k, dot, wide(q.dtype()))
}

/// 0 in place of -inf.
#[track_caller]
pub(super) fn finite_or_zero(x: Tensor<'_>) -> Tensor<'_> {
    x.eq(f64::NEG_INFINITY).select(x.zeros_like(), x)
}

impl<'t> Block<Tensor<'t>> {
    /// The whole source as blocks of `size` positions, stacked along a new first dimension, and the
    /// positions after them. One block is not stacked.
    #[track_caller]
    pub(super) fn split(self, size: usize) -> (Option<Self>, Option<Self>) {
        let (cx, source) = (self.k.trace(), self.k.dims()[1]);
        if source <= size {
            // The scores have the dimensions of the whole mask.
            return (None, Some(Block { mask: None, ..self }));
        }
        let end = source - source % size;
        let last = |mask: Tensor<'_>| mask.rank() - 1;
        let stacked = |x: Tensor<'t>, dim| stacked_blocks(x.slice_dim(dim, ..end), dim, size);
        let blocks = Block {
            k: stacked(self.k, 1),
            v: stacked(self.v, 1),
            mask: self.mask.map(|mask| stacked(mask, last(mask))),
            first: cx.arange(end / size, DType::S64) * size as f64,
        };
        let rest = (end < source).then(|| Block {
            k: self.k.slice_dim(1, end..),
            v: self.v.slice_dim(1, end..),
            mask: self.mask.map(|mask| mask.slice_dim(last(mask), end..)),
            first: cx.literal(Literal::splat(end as i64, [])),
        });
        (Some(blocks), rest)
    }
}

/// Splits a dimension of a multiple of `block` elements; blocks are stacked along a new first
/// dimension.
#[track_caller]
fn stacked_blocks(x: Tensor<'_>, dim: usize, block: usize) -> Tensor<'_> {
    let mut dims = x.dims();
    dims.splice(dim..=dim, [dims[dim] / block, block]);
    x.reshape(dims).move_dim(dim, 0)
}

/// Sizes of queries and keys that fit each other.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) time: usize,
    pub(super) source: usize,
    /// Query heads.
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    /// Features of a head.
    width: usize,
}

impl Sizes {
    /// The sizes, if the tensors fit each other.
    fn of(q: Tensor<'_>, k: Tensor<'_>, v: Tensor<'_>) -> Option<Self> {
        let (qd, kd, vd) = (q.dims(), k.dims(), v.dims());
        let fits = qd.len() == 4
            && kd.len() == 4
            && vd.len() == 4
            && (qd[0], qd[3]) == (kd[0], kd[3])
            && kd[..3] == vd[..3]
            && kd[2] > 0
            && qd[2].is_multiple_of(kd[2])
            && q.dtype().is_float();
        fits.then(|| Sizes {
            batch: qd[0],
            time: qd[1],
            source: kd[1],
            heads: qd[2],
            kv_heads: kd[2],
            width: qd[3],
        })
    }

    /// `[batch, kv heads, time, (groups,) 1]` to `[batch, heads, time]`.
    #[track_caller]
    pub(super) fn heads_first(self, x: Tensor<'_>) -> Tensor<'_> {
        let x = match self.groups() {
            1 => x,
            _ => x.swap_dims(2, 3),
        };
        x.reshape([self.batch, self.heads, self.time])
    }

    /// `[batch, heads, time]` to the dimensions of the scores, with one position:
    /// `[batch, kv heads, time, (groups,) 1]`.
    #[track_caller]
    pub(super) fn like_sums(self, x: Tensor<'_>) -> Tensor<'_> {
        let (batch, time, kv_heads) = (self.batch, self.time, self.kv_heads);
        match self.groups() {
            1 => x.reshape([batch, kv_heads, time, 1]),
            groups => {
                let x = x.reshape([batch, kv_heads, groups, time, 1]);
                x.swap_dims(2, 3)
            }
        }
    }

    /// Number of query heads that share keys.
    pub(super) fn groups(self) -> usize {
        self.heads / self.kv_heads
    }

    /// Splits the heads of `[batch, time, heads, any]` into kv heads and groups, if any share keys.
    /// Query heads that share keys are adjacent, so groups are the inner dimension.
    #[track_caller]
    pub(super) fn split_heads(self, x: Tensor<'_>) -> Tensor<'_> {
        let Sizes {
            batch,
            time,
            kv_heads,
            ..
        } = self;
        match self.groups() {
            1 => x,
            groups => x.reshape([batch, time, kv_heads, groups, x.dims()[3]]),
        }
    }

    /// The result `[batch, time, heads, any]` from the sums over the whole source.
    #[track_caller]
    pub(super) fn attended<'t>(self, sums: Sums<Tensor<'t>>, dtype: DType) -> Tensor<'t> {
        let Sums { sum, values, .. } = sums;
        // 0 if all positions are masked.
        let sum = sum.eq(0.0).select(sum.ones_like(), sum);
        self.joined_heads((values / sum).convert(dtype))
    }

    /// `[batch, kv heads, time, (groups,) any]` to `[batch, time, heads, any]`.
    #[track_caller]
    pub(super) fn joined_heads(self, x: Tensor<'_>) -> Tensor<'_> {
        let last = x.dims()[x.rank() - 1];
        let dims = [self.batch, self.time, self.heads, last];
        x.swap_dims(1, 2).reshape(dims)
    }

    /// Whether a query is at or after a position of a block, with the last positions of the source
    /// and of the queries aligned: `bool[time, positions]`.
    #[track_caller]
    fn until_own<'t>(self, block: &Block<Tensor<'t>>) -> Tensor<'t> {
        let (cx, positions) = (block.k.trace(), block.k.dims()[1]);
        let index = TensorType::new(DType::S64, [self.time, positions]);
        let offset = self.source as i64 - self.time as i64;
        let own = cx.iota(&index, 0) + cx.literal(Literal::splat(offset, []));
        (cx.iota(&index, 1) + block.first).le(own)
    }
}
