//! Decompositions of matrices and systems of equations.

use expect_test::expect;
use halite_ir::{Op, Triangular};

use crate::infer::check;

#[test]
fn cholesky_errors() {
    let cholesky = || Op::Cholesky { lower: true };
    check(
        [
            (cholesky(), "f32[2,3]"),
            (cholesky(), "f32[3]"),
            (cholesky(), "bf16[3,3]"),
            (cholesky(), "s32[3,3]"),
            (cholesky(), ""),
        ],
        expect![[r#"
            cholesky: the matrix is f32[2, 3]; its last two dimensions must be the same
            cholesky: the matrix is f32[3]; its last two dimensions must be the same
            cholesky: takes f32 and f64, not bf16[3, 3] (convert first)
            cholesky: takes floats, not s32[3, 3] (convert first)
            cholesky: takes 1 operand, got none
        "#]],
    );
}

#[test]
fn triangular_solve_errors() {
    let solve = |left_side| {
        Op::TriangularSolve(Triangular {
            left_side,
            ..Triangular::default()
        })
    };
    check(
        [
            (solve(true), "f64[3,3] f64[2,3]"),
            (solve(false), "f64[3,3] f64[3,2]"),
            (solve(true), "f64[2,3,3] f64[3,3]"),
            (solve(true), "f64[3,3] f32[3,3]"),
            (solve(true), "f16[3,3] f16[3,3]"),
        ],
        expect![[r#"
            triangular_solve: the operands are f64[3, 3] and f64[2, 3]; they must have the same dimensions before the last two, and the size of the matrix must be dimension 0 of the second
            triangular_solve: the operands are f64[3, 3] and f64[3, 2]; they must have the same dimensions before the last two, and the size of the matrix must be dimension 1 of the second
            triangular_solve: the operands are f64[2, 3, 3] and f64[3, 3]; they must have one element type and rank
            triangular_solve: the operands are f64[3, 3] and f32[3, 3]; they must have one element type and rank
            triangular_solve: takes f32 and f64, not f16[3, 3] (convert first)
        "#]],
    );
}
