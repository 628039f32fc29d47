//! Multi-head attention and rotary position embeddings.
//!
//! Heads are a separate dimension in weights and activations, and are never merged with another by
//! a reshape, so that a partitioner can shard them: each device has whole heads.

use std::panic::Location;

use halite_core::{DType, Tree};
use halite_ir::{Dot, Literal, Op};

use crate::{Dropout, Init, Param, Tensor, Trace, check::check, special::wide};

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
    let (qd, kd, vd) = (q.dims(), k.dims(), v.dims());
    let fits = qd.len() == 4
        && kd.len() == 4
        && vd.len() == 4
        && (qd[0], qd[3]) == (kd[0], kd[3])
        && kd[..3] == vd[..3]
        && kd[2] > 0
        && qd[2].is_multiple_of(kd[2])
        && q.dtype().is_float();
    if !fits {
        let want = "expected floats [batch, time, heads, width], [batch, source, kv heads, width] and [batch, source, kv heads, any], \
                    with heads a multiple of kv heads";
        return cx.fail(
            "attention",
            format!(
                "queries {}, keys {}, values {}; {want}",
                q.ty(),
                k.ty(),
                v.ty()
            ),
            Some(q.ty()),
        );
    }
    let (time, heads, width, source, kv_heads) = (qd[1], qd[2], qd[3], kd[1], kd[2]);
    let groups = heads / kv_heads;
    // Query heads that share keys are adjacent: the heads' dimension is split, groups last.
    let q = if groups == 1 {
        q
    } else {
        q.reshape([qd[0], time, kv_heads, groups, width])
    };
    let rank = q.rank();

    // [batch, kv heads, (groups,) time, source]: batch dimensions, then free dimensions of left and
    // right.
    let score_dtype = wide(q.dtype());
    let dot = Dot {
        left_batch: vec![0, 2],
        right_batch: vec![0, 2],
        left_contract: vec![rank - 1],
        right_contract: vec![3],
        result: score_dtype,
    };
    let scores = q.dot_general(k, dot) * (1.0 / (width as f64).sqrt());
    // [batch, kv heads, time, groups, source] with groups: the free dimensions of q keep their
    // order.
    let Ok(scores) = masked(scores, mask, time, source, groups) else {
        return cx.error_like(Some(v.ty().with_dims([qd[0], time, heads, vd[3]])));
    };
    let weights = dropout.forward(safe_softmax(scores)).convert(v.dtype());

    // [batch, kv heads, time, (groups,) any], then time before heads again.
    let dot = Dot {
        left_batch: vec![0, 1],
        right_batch: vec![0, 2],
        left_contract: vec![rank - 1],
        right_contract: vec![1],
        result: v.dtype(),
    };
    weights
        .dot_general(v, dot)
        .swap_dims(1, 2)
        .reshape([qd[0], time, heads, vd[3]])
}

/// Sets masked scores `[batch, kv heads, time, (groups,) source]` to -inf.
fn masked<'t>(
    scores: Tensor<'t>,
    mask: Mask<'t>,
    time: usize,
    source: usize,
    groups: usize,
) -> Result<Tensor<'t>, Tensor<'t>> {
    let cx = scores.trace();
    let rank = scores.rank();
    let given = match mask {
        Mask::None => return Ok(scores),
        Mask::Causal => {
            let allowed = cx.lower_triangle(time, source, source as i64 - time as i64);
            let allowed = allowed.broadcast_in_dim(scores.dims(), [2, rank - 1]);
            return Ok(allowed.select(scores, f64::NEG_INFINITY));
        }
        Mask::Where(given) | Mask::Add(given) => given,
    };
    if given.is_error() {
        return Err(given);
    }
    let ty = given.ty();
    let dims = scores.dims();
    let wanted = [dims[0], dims[1] * groups, time, source];
    let fits = ty.rank() <= 4
        && ty
            .dims()
            .iter()
            .rev()
            .zip(wanted.iter().rev())
            .all(|(&size, &want)| size == 1 || size == want);
    let dtype_fits = if matches!(mask, Mask::Where(_)) {
        ty.dtype() == DType::Bool
    } else {
        ty.dtype().is_float()
    };
    if !fits || !dtype_fits {
        let want = if matches!(mask, Mask::Where(_)) {
            "bool"
        } else {
            "floats"
        };
        let message = format!(
            "a mask of {ty}; expected {want} that broadcast to {wanted:?}, which is [batch, heads, time, source]"
        );
        return Err(cx.fail("attention", message, Some(scores.ty())));
    }
    // Four dimensions, with the heads split like those of the queries, in the order of the scores.
    let mut shape = vec![1; 4 - ty.rank()];
    shape.extend(ty.dims());
    let mut given = given.reshape(&shape);
    if groups > 1 {
        let split = if shape[1] == 1 {
            [1, 1]
        } else {
            [dims[1], groups]
        };
        given = given
            .reshape([shape[0], split[0], split[1], shape[2], shape[3]])
            .swap_dims(2, 3);
    }
    Ok(match mask {
        Mask::Add(_) => scores + given.convert(scores.dtype()),
        _ => given.broadcast_to(&dims).select(scores, f64::NEG_INFINITY),
    })
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

/// Rotary position embedding (Su et al. 2021): rotates pairs of features of queries and keys by
/// angles proportional to the position, so that attention scores depend on relative positions.
///
/// Feature `i` is paired with feature `i + width / 2`, as in Llama's weights for Hugging Face
/// ("halves"); the original pairs neighbors. Pair `i` rotates by `theta^(-2 i / width)` radians
/// per position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotary {
    /// Base of the wavelengths: 10,000.
    pub theta: f64,
}

/// Cosines and sines of [`Rotary`], `f32[time, width / 2]`.
#[derive(Clone, Copy, Debug)]
pub struct Rotation<'t> {
    cos: Tensor<'t>,
    sin: Tensor<'t>,
}

impl Default for Rotary {
    fn default() -> Self {
        Rotary { theta: 10_000.0 }
    }
}

impl Rotary {
    /// The rotation for `time` positions from 0, and heads of an even size `width`.
    #[track_caller]
    pub fn rotation<'t>(&self, cx: &'t Trace, time: usize, width: usize) -> Rotation<'t> {
        let _site = cx.called_from(Location::caller());
        if !width.is_multiple_of(2) {
            let error = cx.fail(
                "rotary",
                format!("heads of size {width}; expected an even size"),
                None,
            );
            return Rotation {
                cos: error,
                sin: error,
            };
        }
        let half = width / 2;
        let frequencies: Vec<f32> = (0..half)
            .map(|i| self.theta.powf(-((2 * i) as f64) / width as f64) as f32)
            .collect();
        let frequencies = Literal::new(&frequencies, [half]).expect("as many frequencies as pairs");
        let frequencies = cx.push_one(Op::Constant(frequencies), &[]);
        let positions = cx.arange(time, DType::F32);
        let angles = positions.unsqueeze(1).broadcast_to([time, half]) * frequencies;
        Rotation {
            cos: angles.cos(),
            sin: angles.sin(),
        }
    }
}

impl<'t> Rotation<'t> {
    /// Rotates `x: [batch, time, heads, width]`, in `f32`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let cx = x.trace();
        let _site = cx.called_from(Location::caller());
        check!(x.check_float("rotary"));
        if self.cos.is_error() {
            return cx.error_like(Some(x.ty()));
        }
        let (dims, table) = (x.dims(), self.cos.dims());
        if dims.len() != 4 || dims[1] != table[0] || dims[3] != 2 * table[1] {
            let message = || {
                format!(
                    "{} rotated for {} positions of size {}; expected [batch, time, heads, width]",
                    x.ty(),
                    table[0],
                    2 * table[1]
                )
            };
            return x.mistake("rotary", message);
        }
        let wide = wide(x.dtype());
        let half = table[1];
        let value = x.convert(wide);
        let (first, second) = (value.slice_dim(3, ..half), value.slice_dim(3, half..));
        let spread = |table: Tensor<'t>| table.convert(wide).broadcast_in_dim(first.dims(), [1, 3]);
        let (cos, sin) = (spread(self.cos), spread(self.sin));
        cx.concat(&[first * cos - second * sin, second * cos + first * sin], 3)
            .convert(x.dtype())
    }
}
