//! Decompositions of matrices and systems of equations.

use halite_nn::Triangular;
use halite_tests::functions;

functions! {
    cholesky(g) g.x().cholesky();
    triangular_solve(g) g.x().triangular_solve(g.y(), Triangular {
        left_side: g.get("left_side"),
        lower: g.get("lower"),
        unit_diagonal: g.get("unit_diagonal"),
        transposed: g.get("transposed"),
    });
}
