//! Products of matrices, and of tensors in general.

use halite_core::DType;
use halite_ir::{DotAttributes, Op};

use crate::{Tensor, low_rank::LowRank, trace};

impl<'t> Tensor<'t> {
    /// `[.., m, k]` by `[.., k, n]` to `[.., m, n]`: equal leading dimensions are batches.
    /// `[.., k]` by `[k, n]` is a dense layer: a right operand of two dimensions has no batches.
    #[track_caller]
    pub fn matmul(self, right: Tensor<'t>) -> Tensor<'t> {
        let (a, b) = (self.ty(), right.ty());
        let batches = if b.rank() <= 2 { 0 } else { b.rank() - 2 };
        let like = || {
            let mut dims = a.dims().to_vec();
            if let (Some(last), Some(&size)) = (dims.last_mut(), b.dims().last()) {
                *last = size;
            }
            a.with_dims(dims)
        };
        if self.is_error() || right.is_error() {
            return self.trace().error_like(Some(like()));
        }
        if a.rank() == 0 || b.rank() < 2 || (batches > 0 && a.rank() != b.rank()) {
            let names = trace::names(&[self, right]);
            let message = format!(
                "{a} by {b}: want [.., m, k] by [k, n], or equal leading dimensions on both{names}"
            );
            return self.trace().fail("matmul", message, Some(like()));
        }
        let dot = DotAttributes {
            lhs_batching: (0..batches).collect(),
            rhs_batching: (0..batches).collect(),
            lhs_contracting: vec![a.rank() - 1],
            rhs_contracting: vec![b.rank() - 2],
            ..DotAttributes::default()
        };
        self.dot_general(right, dot, a.dtype())
    }

    /// Product over any dimensions. The result has the batch, then this tensor's free, then
    /// `right`'s free dimensions; `result` is its element type, at least as wide as the operands'.
    #[track_caller]
    pub fn dot_general(self, right: Tensor<'t>, dot: DotAttributes, result: DType) -> Tensor<'t> {
        let low_rank = LowRank::of(right);
        if let Some(product) = low_rank.and_then(|weight| weight.product(self, &dot, result)) {
            return product;
        }
        self.trace().push_one(Op::Dot(dot, result), &[self, right])
    }

    /// Sum of products over the paired dimensions `(of this, of right)`: the result has this
    /// tensor's other dimensions, then those of `right`.
    #[track_caller]
    pub fn tensordot(self, right: Tensor<'t>, pairs: &[(usize, usize)]) -> Tensor<'t> {
        let (lhs_contracting, rhs_contracting) = pairs.iter().copied().unzip();
        let (lhs_batching, rhs_batching) = (vec![], vec![]);
        let dot = DotAttributes {
            lhs_batching,
            rhs_batching,
            lhs_contracting,
            rhs_contracting,
            ..DotAttributes::default()
        };
        self.dot_general(right, dot, self.dtype())
    }
}
