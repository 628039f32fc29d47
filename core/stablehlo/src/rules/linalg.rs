//! Decompositions of matrices and systems of equations.

use super::{Check, TensorLike, check_class, ensure, take};
use crate::ops::classes::INEXACT;

/// The triangular factor of matrices `[.., n, n]`.
///
/// # Errors
/// If there is not one operand of square matrices of floats.
pub fn cholesky<T: TensorLike>(operands: &[&T]) -> Check<T> {
    let [a] = take(operands)?;
    check_square(a)?;
    Ok(a.clone())
}

fn check_square<T: TensorLike>(a: &T) -> Check {
    check_class(a, INEXACT)?;
    ensure!(
        matches!(a.dims(), [.., rows, columns] if rows == columns),
        "the matrix is {a}; its last two dimensions must be the same"
    );
    Ok(())
}

/// The solutions of systems of equations with triangular matrices `[.., n, n]`, which come first.
///
/// # Errors
/// If the second operand does not have a dimension of the matrices' size, the last but one if the
/// matrix is on the left side and the last if it is on the right, or other elements or batches.
pub fn triangular_solve<T: TensorLike>(operands: &[&T], left_side: bool) -> Check<T> {
    let [a, b] = take(operands)?;
    check_square(a)?;
    ensure!(
        a.element() == b.element() && a.rank() == b.rank(),
        "the operands are {a} and {b}; they must have one element type and rank"
    );
    let batch = a.rank() - 2;
    let side = if left_side { batch } else { batch + 1 };
    ensure!(
        a.dims()[..batch] == b.dims()[..batch] && a.dims()[batch] == b.dims()[side],
        "the operands are {a} and {b}; they must have the same dimensions before the last two, and \
         the size of the matrix must be dimension {side} of the second"
    );
    Ok(b.clone())
}
