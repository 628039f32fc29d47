//! Decompositions of matrices and systems of equations.

use halite_nn::{Tensor, Triangular};

use crate::edge_values::table::rows;

rows! {
    "cholesky" Cubes SOLVED [0] ["cholesky"] |x| definite(x[0]).cholesky();
    "triangular_solve" Cubes SOLVED [0] ["triangular_solve"] |x| solved(x[0]);
}

/// Symmetric, positive definite matrices, `[4, 6, 6]`.
fn definite(x: Tensor<'_>) -> Tensor<'_> {
    let diagonal = x.trace().eye(6, x.dtype()) * 2;
    x.matmul(x.t()) / 64 + diagonal.broadcast_to([4, 6, 6])
}

/// Solutions of all systems of equations with these matrices, in one tensor: gradients are those of
/// the first result.
fn solved(x: Tensor<'_>) -> Tensor<'_> {
    let (a, mut all) = (definite(x), Vec::new());
    for bits in 0..16 {
        let [left_side, lower, unit_diagonal, transposed] =
            [0, 1, 2, 3].map(|bit| bits >> bit & 1 == 1);
        let triangular = Triangular {
            left_side,
            lower,
            unit_diagonal,
            transposed,
        };
        let b = if left_side { x } else { x.t() };
        all.push(a.triangular_solve(b, triangular).flatten());
    }
    x.trace().concat(&all, 0)
}
