//! Attention: every position takes a mean of values, weighted by how well its query fits their
//! keys.
//!
//! Heads are a dimension of their own, in weights and activations, and are never mixed with another
//! by a reshape: a partitioner can split them over devices, and each device has whole heads.

use std::panic::Location;

use halite_core::{DType, Tree};
use halite_ir::{Dot, Literal, Op};

use crate::{Dropout, Init, Param, Tensor, Trace, check::check, special::wide};

/// Multi-head attention of a sequence to itself (Vaswani et al. 2017), with as many heads of keys
/// and values as of queries, or fewer that groups of query heads share (Ainslie et al. 2023).
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
    /// To queries.
    pub q: ToHeads<L>,
    /// To keys.
    pub k: ToHeads<L>,
    /// To values.
    pub v: ToHeads<L>,
    /// From the heads' results back to features.
    pub o: FromHeads<L>,
    /// Of the weights by which values are averaged.
    pub dropout: Dropout,
}

/// From features to heads, each of some width: a dense layer.
#[derive(Clone, Debug, Tree)]
pub struct ToHeads<L> {
    /// `[in, heads, width]`
    pub weight: L,
    /// `[heads, width]`
    pub bias: Option<L>,
}

/// From heads, each of some width, to features: a dense layer.
#[derive(Clone, Debug, Tree)]
pub struct FromHeads<L> {
    /// `[heads, width, out]`
    pub weight: L,
    /// `[out]`
    pub bias: Option<L>,
}

/// Which positions of the source a position may look at.
#[derive(Clone, Copy, Debug)]
pub enum Mask<'t> {
    /// All of them.
    None,
    /// Those that are not after it. Of more sources than positions, the last source belongs to the
    /// last position.
    Causal,
    /// Where this is true: `bool`, broadcast to `[batch, heads, time, source]`. A position that may
    /// look at none gets 0.
    Where(Tensor<'t>),
    /// This is added to the scores, broadcast to `[batch, heads, time, source]`; -inf leaves out.
    Add(Tensor<'t>),
}

impl Attention<Param> {
    /// Of `features`, with so many heads of `width` each, and biases. First values are uniform
    /// within `1 / sqrt(inputs)`.
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

    /// So many heads of keys and values; the heads of queries are to be a multiple.
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

    /// Without biases.
    pub fn without_bias(mut self) -> Self {
        for projection in [&mut self.q, &mut self.k, &mut self.v] {
            projection.bias = None;
        }
        self.o.bias = None;
        self
    }

    /// Drops this part of the weights by which values are averaged.
    pub fn dropout(mut self, rate: f64) -> Self {
        self.dropout = Dropout::new(rate);
        self
    }
}

impl<'t> Attention<Tensor<'t>> {
    /// `x: [batch, time, features]` to the same. Queries and keys are turned by `rotation`, if
    /// there is one.
    #[track_caller]
    pub fn forward(
        &self,
        x: Tensor<'t>,
        mask: Mask<'t>,
        rotation: Option<Rotation<'t>>,
    ) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        let turned = |x: Tensor<'t>| rotation.map_or(x, |rotation| rotation.forward(x));
        let (q, k, v) = (
            turned(self.q.forward(x)),
            turned(self.k.forward(x)),
            self.v.forward(x),
        );
        self.o.forward(attention(q, k, v, mask, self.dropout))
    }
}

impl ToHeads<Param> {
    /// From `inputs` features to so many heads of `width`, with a bias. First values as of
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
    /// `x: [.., in]` to `[.., heads, width]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        let y = contracted("to heads", x, self.weight, 1);
        self.bias.map_or(y, |bias| y + bias)
    }
}

impl FromHeads<Param> {
    /// From so many heads of `width` to `outputs` features, with a bias. First values as of
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
    /// `x: [.., heads, width]` to `[.., out]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        let y = contracted("from heads", x, self.weight, 2);
        self.bias.map_or(y, |bias| y + bias)
    }
}

/// The last `count` dimensions of `x` summed over with the first ones of a weight of three
/// dimensions.
#[track_caller]
fn contracted<'t>(layer: &str, x: Tensor<'t>, weight: Tensor<'t>, count: usize) -> Tensor<'t> {
    let (a, b) = (x.ty(), weight.ty());
    let kept = a.rank().saturating_sub(count);
    let mut dims = a.dims()[..kept].to_vec();
    dims.extend(b.dims().iter().skip(count));
    if x.is_error() || weight.is_error() {
        return x.trace().error_like(Some(a.with_dims(dims)));
    }
    if a.dims()[kept..] != b.dims()[..count.min(b.rank())] || b.rank() != 3 {
        let name = weight
            .name()
            .map_or(String::new(), |name| format!(" (`{name}`)"));
        let message = format!(
            "{a} by a weight of {b}{name}: its first {count} of three dimensions are to be the last of the input"
        );
        return x.trace().fail(layer, message, Some(a.with_dims(dims)));
    }
    let pairs: Vec<(usize, usize)> = (0..count).map(|place| (kept + place, place)).collect();
    x.tensordot(weight, &pairs)
}

/// Attention by scaled products: `softmax(q · k / sqrt(width)) · v`, where softmax is taken over
/// the source, in `f32`.
///
/// `q: [batch, time, heads, width]`, `k: [batch, source, kv_heads, width]`,
/// `v: [batch, source, kv_heads, any]`, to `[batch, time, heads, any]`. Query head `h` looks at
/// head `h / (heads / kv_heads)`. `dropout` is that of the weights.
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
        let want = "want floats [batch, time, heads, width], [batch, source, kv heads, width] and [batch, source, kv heads, any], \
                    with heads a multiple of kv heads";
        return cx.fail(
            "attention",
            format!(
                "queries {}, keys {}, values {}: {want}",
                q.ty(),
                k.ty(),
                v.ty()
            ),
            Some(q.ty()),
        );
    }
    let (time, heads, width, source, kv_heads) = (qd[1], qd[2], qd[3], kd[1], kd[2]);
    let groups = heads / kv_heads;
    // Query heads that share keys side by side: a split of the heads' dimension, its slower part
    // first.
    let q = if groups == 1 {
        q
    } else {
        q.reshape([qd[0], time, kv_heads, groups, width])
    };
    let rank = q.rank();

    // [batch, kv heads, (groups,) time, source]. The order of a product is batch, free dimensions
    // of left, of right.
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

/// Scores `[batch, kv heads, time, (groups,) source]` with what may not be looked at at -inf.
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
            "a mask of {ty}: want {want} that broadcast to {wanted:?}, which is [batch, heads, time, source]"
        );
        return Err(cx.fail("attention", message, Some(scores.ty())));
    }
    // Four dimensions, the heads split as those of the queries, and then in the order of the
    // scores.
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

/// Softmax over the last dimension, where -inf is weight 0, and only -inf is weight 0 everywhere.
fn safe_softmax(x: Tensor<'_>) -> Tensor<'_> {
    let last = x.rank() - 1;
    let max = x.max_keep([last]).stop_gradient();
    let max = max.eq(f64::NEG_INFINITY).select(max.zeros_like(), max);
    let unnormalised = (x - max).exp();
    // The sum is at least 1, unless all are left out.
    unnormalised / unnormalised.sum_keep([last]).maximum(1e-30)
}

/// Rotary position embedding (Su et al. 2021): features of queries and keys are turned in pairs, by
/// angles that grow with the position, so that products depend on distances.
///
/// Feature `i` is paired with feature `i + width / 2`, as in Llama's weights for Hugging Face
/// ("halves"); the original pairs neighbours. Pair `i` turns by `theta^(-2 i / width)` radians for
/// each position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotary {
    /// The base of the wave lengths: 10,000.
    pub theta: f64,
}

/// What [`Rotary`] turns by: cosines and sines, `f32[time, width / 2]`.
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
    /// For `time` positions from 0, and heads of `width`, which is even.
    #[track_caller]
    pub fn rotation<'t>(&self, cx: &'t Trace, time: usize, width: usize) -> Rotation<'t> {
        let _site = cx.called_from(Location::caller());
        if !width.is_multiple_of(2) {
            let error = cx.fail(
                "rotary",
                format!("heads of width {width} have no pairs of features; want an even width"),
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
    /// `x: [batch, time, heads, width]` to the same, turned. Computed in `f32`.
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
                    "{} turned for {} positions of width {}: want [batch, time, heads, width]",
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
