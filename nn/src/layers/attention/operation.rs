//! Attention as one operation with a gradient of its own, which programs compute by a kernel or by
//! operations of the compiler.
//!
//! It saves its operands, its result and the logarithms of the sums of exponentials, nothing of
//! `[batch, heads, time, source]`; the gradient recomputes the weights (Dao, "FlashAttention-2",
//! 2023).

use halite_core::{DType, TensorType, tree::Leaf};
use halite_ir::{ATTENTION, ATTENTION_GRADIENT, Attachment, Attribute, CustomCall, DotAttributes};

use super::{
    Mask,
    scaled_dot_product::{Block, Queries, Sizes, finite_or_zero, scores},
};
use crate::{CustomVjp, Dropout, Tensor, grad::GradientRule, special::wide};

/// Attention without a mask or with a causal one, and without dropout.
#[derive(Clone, Copy)]
pub(super) struct Attend {
    pub(super) sizes: Sizes,
    pub(super) is_causal: bool,
    /// Source positions of a block, where the compiler computes it.
    pub(super) block: usize,
}

impl Attend {
    /// The result `[batch, time, heads, any]` for scaled queries, keys and values.
    #[track_caller]
    pub(super) fn call<'t>(self, operands: [Tensor<'t>; 3]) -> Tensor<'t> {
        let rule = GradientRule::new(move |vjp: CustomVjp<3, 2>| self.gradient(vjp));
        let call = CustomCall {
            target: ATTENTION.to_owned(),
            attributes: self.attributes(),
            attachment: Some(Attachment::new(rule)),
            ..CustomCall::default()
        };
        let cx = operands[0].trace();
        let [result, _] = cx.composite(call, operands, |operands| self.forward(operands));
        result
    }

    fn attributes(self) -> Vec<(String, Attribute)> {
        vec![("causal".to_owned(), Attribute::Bool(self.is_causal))]
    }

    /// Queries without dropout.
    #[track_caller]
    fn queries<'t>(self, q: Tensor<'t>) -> Queries<'t> {
        Queries {
            sizes: self.sizes,
            q: self.sizes.split_heads(q),
            mask: if self.is_causal {
                Mask::Causal
            } else {
                Mask::None
            },
            dropout: Dropout::new(0.0),
        }
    }

    /// The result, and the logarithms of the sums of exponentials, `[batch, heads, time]`.
    #[track_caller]
    fn forward<'t>(self, operands: [Tensor<'t>; 3]) -> [Tensor<'t>; 2] {
        let [q, k, v] = operands;
        let sums = self.queries(q).attend_to(k, v, self.block);
        // -inf where all positions are masked.
        let logs = finite_or_zero(sums.max) + sums.sum.log();
        [
            self.sizes.attended(sums, v.dtype()),
            self.sizes.heads_first(logs),
        ]
    }

    #[track_caller]
    fn gradient<'t>(self, vjp: CustomVjp<'t, 3, 2>) -> [Option<Tensor<'t>>; 3] {
        let ([q, k, v], [result, logs]) = (vjp.operands, vjp.results);
        let [g, g_logs] = vjp.cotangents;
        let dtype = wide(g.dtype());
        let sums = (g.convert(dtype) * result.convert(dtype)).sum([3]);
        let sums = sums.swap_dims(1, 2) - g_logs;
        let call = CustomCall {
            target: ATTENTION_GRADIENT.to_owned(),
            attributes: self.attributes(),
            ..CustomCall::default()
        };
        let operands = [q, k, v, logs, g, sums];
        let cotangents = (vjp.cx).composite(call, operands, |operands| self.backward(operands));
        cotangents.map(Some)
    }

    /// The cotangents of the queries, keys and values, given the logarithms, the cotangent of the
    /// result, and the sums by which the cotangents of all scores of a query are reduced.
    #[track_caller]
    fn backward<'t>(self, operands: [Tensor<'t>; 6]) -> [Tensor<'t>; 3] {
        let [q, k, v, logs, g, sums] = operands;
        let (cx, sizes) = (q.trace(), self.sizes);
        let pass = Backward {
            queries: self.queries(q),
            g: sizes.split_heads(g),
            shift: finite_or_zero(sizes.like_sums(logs)),
            sums: sizes.like_sums(sums),
        };
        let whole = Block {
            k,
            v,
            mask: None,
            first: cx.scalar(0.0, DType::S64),
        };
        let (blocks, rest) = whole.split(self.block);
        let (mut dq, mut dk, mut dv) = (None, vec![], vec![]);
        if let Some(blocks) = blocks {
            let zero = cx.full(0.0, &pass.queries_type());
            let (Leaf(sum), stacked) = cx.scan(Leaf(zero), blocks, |Leaf(sum), block| {
                let [dq, dk, dv] = pass.block(&block);
                (Leaf(sum + dq), (Leaf(dk), Leaf(dv)))
            });
            dq = Some(sum);
            let (Leaf(keys), Leaf(values)) = stacked;
            dk.push(joined_blocks(keys));
            dv.push(joined_blocks(values));
        }
        if let Some(rest) = rest {
            let [last, keys, values] = pass.block(&rest);
            dq = Some(dq.map_or(last, |sum| sum + last));
            dk.push(keys);
            dv.push(values);
        }
        let dq = sizes.joined_heads(dq.expect("a source has blocks or a rest"));
        [
            dq.convert(q.dtype()),
            cx.concat(&dk, 1).convert(k.dtype()),
            cx.concat(&dv, 1).convert(v.dtype()),
        ]
    }
}

/// What the gradient computes for every block of the source; the dimensions before the last are
/// those of the scores: `[batch, kv heads, time, (groups,)]`.
struct Backward<'t> {
    queries: Queries<'t>,
    /// Cotangent of the result, `[batch, time, kv heads, (groups,) any]`.
    g: Tensor<'t>,
    /// Logarithms of the sums of exponentials; 0 where all positions are masked: `[.., 1]`.
    shift: Tensor<'t>,
    /// Sums by which the cotangents of the scores are reduced: `[.., 1]`.
    sums: Tensor<'t>,
}

impl<'t> Backward<'t> {
    /// Type of the cotangents of queries, `[.., width]`.
    fn queries_type(&self) -> TensorType {
        let q = self.queries.q;
        let mut dims = q.dims();
        dims.swap(1, 2);
        TensorType::new(wide(q.dtype()), &dims)
    }

    /// The part of a block in the cotangents of the queries, `[.., width]`, and the cotangents of
    /// its keys and values.
    #[track_caller]
    fn block(&self, block: &Block<Tensor<'t>>) -> [Tensor<'t>; 3] {
        let q = self.queries.q;
        let weights = (self.queries.scores(block) - self.shift).exp();
        let slopes = scores(self.g, block.v);
        let slopes = (weights * (slopes - self.sums)).convert(block.k.dtype());
        let by_queries = DotAttributes {
            lhs_batching: vec![0, 1],
            rhs_batching: vec![0, 2],
            lhs_contracting: vec![slopes.rank() - 1],
            rhs_contracting: vec![1],
            ..DotAttributes::default()
        };
        [
            slopes.dot_general(block.k, by_queries, wide(q.dtype())),
            by_positions(slopes, q),
            by_positions(weights.convert(self.g.dtype()), self.g),
        ]
    }
}

/// Sums over all queries of products with a weight for each position: weights `[batch, kv heads,
/// time, (groups,) positions]` and `[batch, time, kv heads, (groups,) any]` to `[batch, positions,
/// kv heads, any]`.
#[track_caller]
fn by_positions<'t>(weights: Tensor<'t>, x: Tensor<'t>) -> Tensor<'t> {
    let groups = 3..x.rank() - 1;
    let dot = DotAttributes {
        lhs_batching: vec![0, 1],
        rhs_batching: vec![0, 2],
        lhs_contracting: [2].into_iter().chain(groups.clone()).collect(),
        rhs_contracting: [1].into_iter().chain(groups).collect(),
        ..DotAttributes::default()
    };
    weights.dot_general(x, dot, wide(x.dtype())).swap_dims(1, 2)
}

/// `[blocks, batch, positions, ..]` to `[batch, blocks * positions, ..]`.
#[track_caller]
fn joined_blocks(x: Tensor<'_>) -> Tensor<'_> {
    let mut dims = x.dims();
    let positions = dims.remove(0) * dims[1];
    dims[1] = positions;
    x.move_dim(0, 1).reshape(dims)
}
