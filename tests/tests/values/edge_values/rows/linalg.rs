//! Decompositions of matrices and systems of equations.

use halite_core::HostArray;
use halite_nn::{Tensor, Triangular};
use halite_tests::eval::try_eval_on;

use crate::edge_values::{job::Executor, table::rows};

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

#[test]
fn matrix_that_is_not_definite_has_no_factor() {
    // Of the batch, the first matrix alone has one.
    let x = [4.0, 2.0, 2.0, 5.0, 1.0, 2.0, 2.0, 1.0];
    let x = HostArray::from_slice(&x, [2, 2, 2]).unwrap();
    for executor in [Executor::Cpu, Executor::Embedded, Executor::Oracle] {
        let inputs = std::slice::from_ref(&x);
        let results = try_eval_on(executor.client(), |_, x| vec![x[0].cholesky()], inputs);
        let results = results.unwrap();
        let values = results[0].as_slice::<f64>().unwrap();
        assert_eq!(values[..4], [2.0, 0.0, 1.0, 2.0], "{executor}");
        let lower = [values[4], values[6], values[7]];
        assert!(
            lower.iter().all(|value| value.is_nan()),
            "{executor}: {values:?}"
        );
    }
}
