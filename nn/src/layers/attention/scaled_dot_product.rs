//! Scaled dot-product attention, with the whole source at once or in blocks of it.

use std::panic::Location;

use halite_core::{DType, TensorType, Tree, tree::Empty};
use halite_ir::{Dot, Literal};

use super::Mask;
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

/// [`attention`] that never holds all scores, `[batch, heads, time, source]`, in either pass: a scan
/// over blocks of `block` source positions with an online softmax (Milakov and Gimelshein 2018),
/// which the backward pass recomputes block by block (Dao et al. 2022). It equals [`attention`] but
/// for rounding, and for the random numbers of dropout.
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
    let mask = match sizes.like_scores(mask) {
        Ok(mask) => mask,
        Err(None) => return cx.error_like(Some(result)),
        Err(Some(message)) => return cx.fail("attention", message, Some(result)),
    };
    let queries = Queries {
        sizes,
        q: sizes.split_heads(q * (1.0 / (sizes.width as f64).sqrt())),
        mask,
        dropout,
    };
    let Sums { sum, values, .. } = queries.attend_to(k, v, block);
    // 0 if all positions are masked.
    let sum = sum.eq(0.0).select(sum.ones_like(), sum);
    // [batch, kv heads, time, (groups,) any] to time before heads.
    let mixed = (values / sum).convert(v.dtype());
    mixed.swap_dims(1, 2).reshape(result.dims())
}

/// Queries, with what applies to all blocks of the source.
struct Queries<'t> {
    sizes: Sizes,
    /// `[batch, time, kv heads, (groups,) width]`, scaled.
    q: Tensor<'t>,
    /// With dimensions like those of the scores.
    mask: Mask<'t>,
    dropout: Dropout,
}

/// A block of source positions.
#[derive(Tree)]
struct Block<L> {
    /// `[batch, positions, kv heads, width]`
    k: L,
    /// `[batch, positions, kv heads, any]`
    v: L,
    /// The block of a mask that is not the same for all positions.
    mask: Option<L>,
    /// Source position of the first: `s64[]`.
    first: L,
}

/// Sums over the source positions so far; the dimensions before the last are those of the scores:
/// `[batch, kv heads, time, (groups,)]`.
#[derive(Tree)]
struct Sums<L> {
    /// Largest score: `[.., 1]`.
    max: L,
    /// Sum of the weights, the exponentials of the scores less `max`: `[.., 1]`.
    sum: L,
    /// Sum of the values times their weights: `[.., any]`.
    values: L,
}

impl<'t> Queries<'t> {
    /// The sums over all source positions.
    #[track_caller]
    fn attend_to(&self, k: Tensor<'t>, v: Tensor<'t>, block: usize) -> Sums<Tensor<'t>> {
        let (cx, source) = (k.trace(), self.sizes.source);
        if source <= block {
            let (mask, first) = (None, cx.scalar(0.0, DType::S64));
            return self.add(None, &Block { k, v, mask, first });
        }
        let mask = self
            .mask
            .tensor()
            .filter(|mask| mask.dims().last() == Some(&source));
        let in_blocks = source - source % block;
        let blocks = Block {
            k: stacked_blocks(k.slice_dim(1, ..in_blocks), 1, block),
            v: stacked_blocks(v.slice_dim(1, ..in_blocks), 1, block),
            mask: mask.map(|mask| {
                let last = mask.rank() - 1;
                stacked_blocks(mask.slice_dim(last, ..in_blocks), last, block)
            }),
            first: cx.arange(in_blocks / block, DType::S64) * block as f64,
        };
        // The backward pass recomputes the weights of a block from its keys and the largest scores.
        let (sums, Empty { .. }) = cx.scan(self.no_sums(v), blocks, |sums, block| {
            (cx.checkpoint(|| self.add(Some(sums), &block)), Empty::new())
        });
        if in_blocks == source {
            return sums;
        }
        let rest = Block {
            k: k.slice_dim(1, in_blocks..),
            v: v.slice_dim(1, in_blocks..),
            mask: mask.map(|mask| mask.slice_dim(mask.rank() - 1, in_blocks..)),
            first: cx.literal(Literal::splat(in_blocks as i64, [])),
        };
        self.add(Some(sums), &rest)
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
        let shift = max.eq(f64::NEG_INFINITY).select(max.zeros_like(), max);
        // The weights are normalized after the product with the values: the backward pass then needs
        // no other array of their size. With `d` the cotangent of the result, divided by `sum`,
        // dscores = weights * (d · v - rowsum(d * result)).
        let weights = (scores - shift).exp();
        let sum = weights.sum_keep(last);
        let dot = Dot {
            left_batch: vec![0, 1],
            right_batch: vec![0, 2],
            left_contract: last.to_vec(),
            right_contract: vec![1],
            result: sum.dtype(),
        };
        let weights = self.dropout.forward(weights).convert(block.v.dtype());
        let values = weights.dot_general(block.v, dot);
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
    fn scores(&self, block: &Block<Tensor<'t>>) -> Tensor<'t> {
        let dot = Dot {
            left_batch: vec![0, 2],
            right_batch: vec![0, 2],
            left_contract: vec![self.q.rank() - 1],
            right_contract: vec![3],
            result: wide(self.q.dtype()),
        };
        let scores = self.q.dot_general(block.k, dot);
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
            Mask::Add(bias) => scores + block.mask.unwrap_or(bias).convert(scores.dtype()),
        }
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
struct Sizes {
    batch: usize,
    time: usize,
    source: usize,
    /// Query heads.
    heads: usize,
    kv_heads: usize,
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

    /// Number of query heads that share keys.
    fn groups(self) -> usize {
        self.heads / self.kv_heads
    }

    /// Splits the heads of the queries into kv heads and groups, if any share keys. Query heads
    /// that share keys are adjacent, so groups are the inner dimension.
    #[track_caller]
    fn split_heads(self, q: Tensor<'_>) -> Tensor<'_> {
        let Sizes {
            batch,
            time,
            kv_heads,
            width,
            ..
        } = self;
        match self.groups() {
            1 => q,
            groups => q.reshape([batch, time, kv_heads, groups, width]),
        }
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

    /// The mask with its heads split like those of the queries, and its dimensions in the order of
    /// the scores.
    ///
    /// # Errors
    /// What is wrong with the mask; `None` after an earlier mistake.
    fn like_scores(self, mask: Mask<'_>) -> Result<Mask<'_>, Option<String>> {
        Ok(match mask {
            Mask::None | Mask::Causal => mask,
            Mask::Where(allowed) => {
                let is_bool = |dtype| dtype == DType::Bool;
                Mask::Where(self.split_mask(allowed, is_bool, "bool")?)
            }
            Mask::Add(bias) => Mask::Add(self.split_mask(bias, DType::is_float, "floats")?),
        })
    }

    /// A mask whose element type satisfies `fits`, which messages call `expected`.
    fn split_mask<'t>(
        self,
        mask: Tensor<'t>,
        fits: fn(DType) -> bool,
        expected: &str,
    ) -> Result<Tensor<'t>, Option<String>> {
        if mask.is_error() {
            return Err(None);
        }
        let ty = mask.ty();
        let full = [self.batch, self.heads, self.time, self.source];
        let mut sizes = ty.dims().iter().rev().zip(full.iter().rev());
        let broadcasts = ty.rank() <= 4 && sizes.all(|(&size, &full)| size == 1 || size == full);
        if !broadcasts || !fits(ty.dtype()) {
            return Err(Some(format!(
                "a mask of {ty}; expected {expected} that broadcast to {full:?}, which is \
                 [batch, heads, time, source]"
            )));
        }
        let mut shape = vec![1; 4 - ty.rank()];
        shape.extend(ty.dims());
        let mask = mask.reshape(&shape);
        if self.groups() == 1 {
            return Ok(mask);
        }
        let [kv_heads, groups] = match shape[1] {
            1 => [1, 1],
            _ => [self.kv_heads, self.groups()],
        };
        Ok(mask
            .reshape([shape[0], kv_heads, groups, shape[2], shape[3]])
            .swap_dims(2, 3))
    }
}
