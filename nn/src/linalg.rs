//! Decompositions of matrices, and systems of equations.

use std::panic::Location;

use halite_ir::{Op, Triangular};

use crate::Tensor;

impl<'t> Tensor<'t> {
    /// The lower triangular `L` of symmetric, positive definite matrices `A = L Lᵀ`: `[.., n, n]`,
    /// of `f32` or `f64`.
    ///
    /// Of a matrix that is not symmetric, it is that of the mean with its transpose, so that
    /// gradients are symmetric. The triangle of a matrix that is not positive definite is NaN.
    /// Gradient: Murray, "Differentiation of the Cholesky decomposition", 2016.
    #[track_caller]
    pub fn cholesky(self) -> Tensor<'t> {
        let _site = self.trace().called_from(Location::caller());
        let symmetric = (self + self.t()) / 2;
        let factor = Op::Cholesky { lower: true };
        self.trace().push_one(factor, &[symmetric]).tril(0)
    }

    /// The solution `X` of `A X = B`, where this is the triangular `A`, `[.., n, n]`, and `b` is
    /// `[.., n, m]`; of `f32` or `f64`. `triangular` says which triangle is read, and chooses among
    /// `Aᵀ X = B`, `X A = B` and `X Aᵀ = B`.
    ///
    /// ```
    /// use halite_nn::{Trace, Triangular};
    /// use halite_core::{DType, TensorType};
    ///
    /// let cx = Trace::new();
    /// let a = cx.input(TensorType::new(DType::F64, [3, 3]), "a");
    /// let b = cx.input(TensorType::new(DType::F64, [3, 2]), "b");
    /// let l = a.cholesky();
    /// // A X = L Lᵀ X = B
    /// let y = l.triangular_solve(b, Triangular::default());
    /// let x = l.triangular_solve(y, Triangular { transposed: true, ..Triangular::default() });
    /// assert_eq!(x.dims(), [3, 2]);
    /// ```
    #[track_caller]
    pub fn triangular_solve(self, b: Tensor<'t>, triangular: Triangular) -> Tensor<'t> {
        let solve = Op::TriangularSolve(triangular);
        self.trace().push_one(solve, &[self, b])
    }
}
