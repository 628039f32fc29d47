//! Multi-head attention.
//!
//! Heads are a separate dimension in weights and activations, and are never merged with another by
//! a reshape, so that a partitioner can shard them: each device has whole heads.

mod cross;
mod masks;
mod operation;
mod scaled_dot_product;

use std::panic::Location;

use halite_core::Tree;

use super::Rotation;
use crate::{Dropout, Init, Param, ParamKind, Tensor};

pub use scaled_dot_product::{attention, attention_in_blocks};

/// Multi-head attention (Vaswani et al. 2017), with grouped-query attention as an option
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
    /// Positions where this is true: `bool`, broadcast to `[batch, heads, time, source]`. A query
    /// that attends to none gives 0.
    Where(Tensor<'t>),
    /// Bias that is added to the scores, broadcast to `[batch, heads, time, source]`; -inf masks.
    Add(Tensor<'t>),
}

impl<'t> Mask<'t> {
    fn tensor(self) -> Option<Tensor<'t>> {
        match self {
            Mask::None | Mask::Causal => None,
            Mask::Where(mask) | Mask::Add(mask) => Some(mask),
        }
    }
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
            weight: Param::new([inputs, heads, width], init).of_kind(ParamKind::ToHeads),
            bias: Some(Param::new([heads, width], init).of_kind(ParamKind::ToHeads)),
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
            weight: Param::new([heads, width, outputs], init).of_kind(ParamKind::FromHeads),
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
