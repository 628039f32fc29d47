//! Operations that move elements, and reductions and products over dimensions.

use halite_ir::{Dot, Op, Reduction};

use crate::Tensor;

impl<'t> Tensor<'t> {
    /// The same elements, row-major, in other dimensions.
    #[track_caller]
    pub fn reshape(self, dims: impl AsRef<[usize]>) -> Tensor<'t> {
        if self.ty().dims() == dims.as_ref() {
            return self;
        }
        self.trace().push_one(Op::Reshape { dims: dims.as_ref().to_vec() }, &[self])
    }

    /// Dimension `i` of the result is dimension `permutation[i]` of this.
    #[track_caller]
    pub fn transpose(self, permutation: impl AsRef<[usize]>) -> Tensor<'t> {
        self.trace().push_one(Op::Transpose { permutation: permutation.as_ref().to_vec() }, &[self])
    }

    /// Sum over `dims`, which go away.
    #[track_caller]
    pub fn sum(self, dims: impl AsRef<[usize]>) -> Tensor<'t> {
        self.reduce(Reduction::Sum, dims)
    }

    /// Sum of all elements: a scalar.
    #[track_caller]
    pub fn sum_all(self) -> Tensor<'t> {
        self.sum((0..self.rank()).collect::<Vec<_>>())
    }

    /// Reduction over `dims`, which go away.
    #[track_caller]
    pub fn reduce(self, kind: Reduction, dims: impl AsRef<[usize]>) -> Tensor<'t> {
        let mut dims = dims.as_ref().to_vec();
        dims.sort_unstable();
        if dims.is_empty() { self } else { self.trace().push_one(Op::Reduce { kind, dims }, &[self]) }
    }

    /// `[.., m, k]` by `[.., k, n]` to `[.., m, n]`: equal leading dimensions are batches. `[.., k]` by `[k, n]` is a
    /// dense layer: a right operand of two dimensions has no batches.
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
            let message = format!("{a} by {b}: want [.., m, k] by [k, n], or equal leading dimensions on both");
            return self.trace().fail("matmul", message, Some(like()));
        }
        let dot = Dot {
            left_batch: (0..batches).collect(),
            right_batch: (0..batches).collect(),
            left_contract: vec![a.rank() - 1],
            right_contract: vec![b.rank() - 2],
            result: a.dtype(),
        };
        self.trace().push_one(Op::Dot(dot), &[self, right])
    }
}
