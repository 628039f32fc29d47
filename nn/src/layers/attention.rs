//! Multi-head attention.
//!
//! Heads are a separate dimension in weights and activations, and are never merged with another by
//! a reshape, so that a partitioner can shard them: each device has whole heads.

use std::panic::Location;

use halite_core::{DType, Tree};
use halite_ir::Dot;

use super::Rotation;
use crate::{Dropout, Init, Param, Tensor, special::wide};

/// Multi-head self-attention (Vaswani et al. 2017), with grouped-query attention as an option
/// (Ainslie et al. 2023).
///
/// ```
/// use halite_core::{DType, TensorType};
/// use halite_nn::{Attention, Mask, Trace, summary};
///
/// let attention = Attention::new(64, 8, 16).kv_heads(2).without_bias();
/// assert!(summary(&attention).contains("k.weight  f32[64, 2, 16]"));
///
/// use halite_core::Tree;
/// let cx = Trace::new();
/// let attention = attention.map_leaves(|path, param| cx.input(param.ty, path.to_string()));
/// let x = cx.input(TensorType::new(DType::F32, [4, 10, 64]), "x");
/// assert_eq!(attention.forward(x, Mask::Causal, None).ty(), x.ty());
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Attention<L> {
    /// Query projection.
    pub q: ToHeads<L>,
    /// Key projection.
    pub k: ToHeads<L>,
    /// Value projection.
    pub v: ToHeads<L>,
    /// Output projection.
    pub o: FromHeads<L>,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
}

/// Dense layer from features to heads.
#[derive(Clone, Debug, Tree)]
pub struct ToHeads<L> {
    /// `[in, heads, width]`
    pub weight: L,
    /// `[heads, width]`
    pub bias: Option<L>,
}

/// Dense layer from heads to features.
#[derive(Clone, Debug, Tree)]
pub struct FromHeads<L> {
    /// `[heads, width, out]`
    pub weight: L,
    /// `[out]`
    pub bias: Option<L>,
}

/// Source positions that each position attends to.
#[derive(Clone, Copy, Debug)]
pub enum Mask<'t> {
    /// All positions.
    None,
    /// Positions up to its own. With more source positions than queries, the last ones are aligned.
    Causal,
    /// Positions where this is true: `bool`, broadcast to `[batch, heads, time, source]`. A fully
    /// masked position gives 0.
    Where(Tensor<'t>),
    /// Bias that is added to the scores, broadcast to `[batch, heads, time, source]`; -inf masks.
    Add(Tensor<'t>),
}

impl Attention<Param> {
    /// Creates self-attention over `features`, with `heads` heads of size `width`, and biases.
    /// Initialized uniformly within `1 / sqrt(inputs)`.
    pub fn new(features: usize, heads: usize, width: usize) -> Self {
        let projection = || ToHeads::new(features, heads, width);
        let o = FromHeads::new(heads, width, features);
        Attention {
            q: projection(),
            k: projection(),
            v: projection(),
            o,
            dropout: Dropout::new(0.0),
        }
    }

    /// Sets the number of key and value heads, which must divide the number of query heads.
    pub fn kv_heads(mut self, heads: usize) -> Self {
        for projection in [&mut self.k, &mut self.v] {
            for leaf in [Some(&mut projection.weight), projection.bias.as_mut()]
                .into_iter()
                .flatten()
            {
                let mut dims = leaf.ty.dims().to_vec();
                let place = dims.len() - 2;
                dims[place] = heads;
                leaf.ty = leaf.ty.with_dims(dims);
            }
        }
        self
    }

    /// Removes the biases.
    pub fn without_bias(mut self) -> Self {
        for projection in [&mut self.q, &mut self.k, &mut self.v] {
            projection.bias = None;
        }
        self.o.bias = None;
        self
    }

    /// Sets the dropout rate of the attention weights.
    pub fn dropout(mut self, rate: f64) -> Self {
        self.dropout = Dropout::new(rate);
        self
    }
}

impl<'t> Attention<Tensor<'t>> {
    /// Maps `x: [batch, time, features]` to the same type. `rotation` applies rotary position
    /// embeddings to queries and keys.
    #[track_caller]
    pub fn forward(
        &self,
        x: Tensor<'t>,
        mask: Mask<'t>,
        rotation: Option<Rotation<'t>>,
    ) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        let rotated = |x: Tensor<'t>| rotation.map_or(x, |rotation| rotation.forward(x));
        let (q, k, v) = (
            rotated(self.q.forward(x)),
            rotated(self.k.forward(x)),
            self.v.forward(x),
        );
        self.o.forward(attention(q, k, v, mask, self.dropout))
    }
}

impl ToHeads<Param> {
    /// Maps `inputs` features to `heads` heads of size `width`, with a bias. Initialized like
    /// [`Linear`](crate::Linear).
    pub fn new(inputs: usize, heads: usize, width: usize) -> Self {
        let init = Init::torch_default(inputs);
        ToHeads {
            weight: Param::new([inputs, heads, width], init),
            bias: Some(Param::new([heads, width], init)),
        }
    }
}

impl<'t> ToHeads<Tensor<'t>> {
    /// Maps `x: [.., in]` to `[.., heads, width]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        let y = contracted("to heads", x, self.weight, 1);
        self.bias.map_or(y, |bias| y + bias)
    }
}

impl FromHeads<Param> {
    /// Maps `heads` heads of size `width` to `outputs` features, with a bias. Initialized like
    /// [`Linear`](crate::Linear).
    pub fn new(heads: usize, width: usize, outputs: usize) -> Self {
        let init = Init::torch_default(heads * width);
        FromHeads {
            weight: Param::new([heads, width, outputs], init),
            bias: Some(Param::new([outputs], init)),
        }
    }
}

impl<'t> FromHeads<Tensor<'t>> {
    /// Maps `x: [.., heads, width]` to `[.., out]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        let y = contracted("from heads", x, self.weight, 2);
        self.bias.map_or(y, |bias| y + bias)
    }
}

/// Contracts the last `count` dimensions of `x` with the first ones of a weight of three
/// dimensions.
#[track_caller]
fn contracted<'t>(layer: &str, x: Tensor<'t>, weight: Tensor<'t>, count: usize) -> Tensor<'t> {
    let (a, b) = (x.ty(), weight.ty());
    let free = a.rank().saturating_sub(count);
    let mut dims = a.dims()[..free].to_vec();
    dims.extend(b.dims().iter().skip(count));
    if x.is_error() || weight.is_error() {
        return x.trace().error_like(Some(a.with_dims(dims)));
    }
    if a.dims()[free..] != b.dims()[..count.min(b.rank())] || b.rank() != 3 {
        let name = weight
            .name()
            .map_or(String::new(), |name| format!(" (`{name}`)"));
        let message = format!(
            "{a} with a weight of {b}{name}; its first {count} of three dimensions must be the last of the input"
        );
        return x.trace().fail(layer, message, Some(a.with_dims(dims)));
    }
    let pairs: Vec<(usize, usize)> = (0..count).map(|place| (free + place, place)).collect();
    x.tensordot(weight, &pairs)
}

/// Scaled dot-product attention: `softmax(q · k / sqrt(width)) · v`, with the softmax over the
/// source in `f32`.
///
/// `q: [batch, time, heads, width]`, `k: [batch, source, kv_heads, width]`,
/// `v: [batch, source, kv_heads, any]`, to `[batch, time, heads, any]`. Query head `h` uses
/// key head `h / (heads / kv_heads)`. `dropout` applies to the attention weights.
#[track_caller]
pub fn attention<'t>(
    q: Tensor<'t>,
    k: Tensor<'t>,
    v: Tensor<'t>,
    mask: Mask<'t>,
    dropout: Dropout,
) -> Tensor<'t> {
    let cx = q.trace();
    let _site = cx.called_from(Location::caller());
    if q.is_error() || k.is_error() || v.is_error() {
        return cx.error_like(Some(q.ty()));
    }
    let Some(sizes) = AttentionSizes::of(q, k, v) else {
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
    let q = sizes.split_heads(q);
    // [batch, kv heads, time, (groups,) source]: batch dimensions, then free dimensions of left and
    // right.
    let dot = Dot {
        left_batch: vec![0, 2],
        right_batch: vec![0, 2],
        left_contract: vec![q.rank() - 1],
        right_contract: vec![3],
        result: wide(q.dtype()),
    };
    let scores = q.dot_general(k, dot) * (1.0 / (sizes.width as f64).sqrt());
    let result = [sizes.batch, sizes.time, sizes.heads, v.dims()[3]];
    let Ok(scores) = sizes.masked(scores, mask) else {
        return cx.error_like(Some(v.ty().with_dims(result)));
    };
    let weights = dropout.forward(safe_softmax(scores)).convert(v.dtype());
    // [batch, kv heads, time, (groups,) any], then time before heads again.
    let dot = Dot {
        left_batch: vec![0, 1],
        right_batch: vec![0, 2],
        left_contract: vec![q.rank() - 1],
        right_contract: vec![1],
        result: v.dtype(),
    };
    weights.dot_general(v, dot).swap_dims(1, 2).reshape(result)
}

/// Sizes of queries and keys that fit each other.
#[derive(Clone, Copy)]
struct AttentionSizes {
    batch: usize,
    time: usize,
    source: usize,
    /// Query heads.
    heads: usize,
    kv_heads: usize,
    /// Features of a head.
    width: usize,
}

impl AttentionSizes {
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
        fits.then(|| AttentionSizes {
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
        let AttentionSizes {
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

    /// Sets masked scores `[batch, kv heads, time, (groups,) source]` to -inf.
    fn masked<'t>(self, scores: Tensor<'t>, mask: Mask<'t>) -> Result<Tensor<'t>, Tensor<'t>> {
        let (time, source) = (self.time, self.source);
        match mask {
            Mask::None => Ok(scores),
            Mask::Causal => {
                let offset = source as i64 - time as i64;
                let allowed = scores.trace().lower_triangle(time, source, offset);
                let allowed = allowed.broadcast_in_dim(scores.dims(), [2, scores.rank() - 1]);
                Ok(allowed.select(scores, f64::NEG_INFINITY))
            }
            Mask::Where(allowed) => {
                let allowed =
                    self.like_scores(allowed, |dtype| dtype == DType::Bool, "bool", scores)?;
                let allowed = allowed.broadcast_to(scores.dims());
                Ok(allowed.select(scores, f64::NEG_INFINITY))
            }
            Mask::Add(bias) => {
                let bias = self.like_scores(bias, DType::is_float, "floats", scores)?;
                Ok(scores + bias.convert(scores.dtype()))
            }
        }
    }

    /// A mask with its heads split like those of the queries and dimensions in the order of the
    /// scores. Its element type must satisfy `fits`, which messages call `expected`.
    fn like_scores<'t>(
        self,
        mask: Tensor<'t>,
        fits: fn(DType) -> bool,
        expected: &str,
        scores: Tensor<'t>,
    ) -> Result<Tensor<'t>, Tensor<'t>> {
        if mask.is_error() {
            return Err(mask);
        }
        let ty = mask.ty();
        let full = [self.batch, self.heads, self.time, self.source];
        let mut sizes = ty.dims().iter().rev().zip(full.iter().rev());
        let broadcasts = ty.rank() <= 4 && sizes.all(|(&size, &full)| size == 1 || size == full);
        if !broadcasts || !fits(ty.dtype()) {
            let message = format!(
                "a mask of {ty}; expected {expected} that broadcast to {full:?}, which is \
                 [batch, heads, time, source]"
            );
            let error = scores.trace().fail("attention", message, Some(scores.ty()));
            return Err(error);
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

/// Softmax over the last dimension, where rows of only -inf give 0 everywhere.
fn safe_softmax(x: Tensor<'_>) -> Tensor<'_> {
    let last = x.rank() - 1;
    let max = x.max_keep([last]).stop_gradient();
    let max = max.eq(f64::NEG_INFINITY).select(max.zeros_like(), max);
    let unnormalized = (x - max).exp();
    // The sum is at least 1, unless all positions are masked.
    unnormalized / unnormalized.sum_keep([last]).maximum(1e-30)
}
