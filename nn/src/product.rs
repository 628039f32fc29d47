//! Products of matrices, and of tensors in general.

use halite_ir::{Dot, Op};

use crate::Tensor;

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
            let names = self.trace().names(&[self, right]);
            let message = format!(
                "{a} by {b}: want [.., m, k] by [k, n], or equal leading dimensions on both{names}"
            );
            return self.trace().fail("matmul", message, Some(like()));
        }
        let dot = Dot {
            left_batch: (0..batches).collect(),
            right_batch: (0..batches).collect(),
            left_contract: vec![a.rank() - 1],
            right_contract: vec![b.rank() - 2],
            result: a.dtype(),
        };
        self.dot_general(right, dot)
    }

    /// Product over any dimensions. The result has the batch, then this tensor's free, then
    /// `right`'s free dimensions.
    #[track_caller]
    pub fn dot_general(self, right: Tensor<'t>, dot: Dot) -> Tensor<'t> {
        let low_rank = self.trace().low_rank(right);
        if let Some(product) = low_rank.and_then(|weight| weight.product(self, &dot)) {
            return product;
        }
        self.trace().push_one(Op::Dot(dot), &[self, right])
    }

    /// Sum of products over the paired dimensions `(of this, of right)`: the result has this
    /// tensor's other dimensions, then those of `right`.
    #[track_caller]
    pub fn tensordot(self, right: Tensor<'t>, pairs: &[(usize, usize)]) -> Tensor<'t> {
        let (left_contract, right_contract) = pairs.iter().copied().unzip();
        let (left_batch, right_batch) = (vec![], vec![]);
        let dot = Dot {
            left_batch,
            right_batch,
            left_contract,
            right_contract,
            result: self.dtype(),
        };
        self.dot_general(right, dot)
    }
}
