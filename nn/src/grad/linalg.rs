//! Rules of decompositions and systems of equations.

use halite_ir::Triangular;

use super::{Back, Step};
use crate::Tensor;

impl<'t> Step<'_, 't> {
    /// Of the triangle that is read, for the only result: Murray, "Differentiation of the Cholesky
    /// decomposition", 2016, equation 10.
    #[track_caller]
    pub(super) fn cholesky(&self, lower: bool) -> Tensor<'t> {
        let as_lower = |x: Tensor<'t>| if lower { x } else { x.t() }.tril(0);
        let (l, g) = (as_lower(self.y(0)), as_lower(self.g()));
        let product = l.t().matmul(g);
        // The lower triangle with half of the diagonal, and its transpose.
        let half = (product.tril(0) + product.tril(-1)) / 2;
        let symmetric = half + half.t();
        // L⁻ᵀ (Φ + Φᵀ) L⁻¹
        let from_right = Triangular {
            left_side: false,
            ..Triangular::default()
        };
        let transposed = Triangular {
            transposed: true,
            ..Triangular::default()
        };
        let right = l.triangular_solve(symmetric, from_right);
        let both = l.triangular_solve(right, transposed) / 2;
        // An element of the triangle stands for its mirror image, too.
        let triangle = both.tril(0) + both.tril(-1);
        if lower { triangle } else { triangle.t() }
    }

    #[track_caller]
    pub(super) fn triangular_solve(&self, triangular: Triangular) -> Back<'t> {
        let (a, x) = (self.x(0), self.y(0));
        let adjoint = Triangular {
            transposed: !triangular.transposed,
            ..triangular
        };
        let of_b = a.triangular_solve(self.g(), adjoint);
        // The cotangent of A in the equation, which may have it transposed.
        let product = if triangular.left_side {
            of_b.matmul(x.t())
        } else {
            x.t().matmul(of_b)
        };
        let of_a = -if triangular.transposed {
            product.t()
        } else {
            product
        };
        let inside = i64::from(triangular.unit_diagonal);
        let read = if triangular.lower {
            of_a.tril(-inside)
        } else {
            of_a.triu(inside)
        };
        vec![Some(read), Some(of_b)]
    }
}
