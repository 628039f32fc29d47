"""Decompositions of matrices and systems of equations."""
import itertools

import numpy as np
from jax import lax
from jax import numpy as jnp

from make import Draw, FLOATS, SHORT, case

draw = Draw("linalg")


def definite(*dims, dtype):
    x = draw.normal(*dims, dtype=dtype)
    return x @ np.swapaxes(x, -1, -2) + dims[-1] * np.eye(dims[-1], dtype=dtype)


for variant, dims in [("one", (1, 1)), ("matrix", (5, 5)), ("batch", (3, 4, 4)), ("two_batches", (2, 3, 3, 3)), ("empty", (0, 2, 2))]:
    for dtype in FLOATS:
        values = {"x": definite(*dims, dtype=dtype)}
        case("linalg", "cholesky", f"{variant}.{SHORT[dtype]}", values, jnp.linalg.cholesky, grad="all")

for left, lower, unit, transposed in itertools.product([True, False], repeat=4):
    sides = ["left" if left else "right", "lower" if lower else "upper", *["unit"] * unit, *["transposed"] * transposed]
    for variant, batch in [("matrix", ()), ("batch", (2, 3))] if not unit else [("matrix", ())]:
        for dtype in FLOATS:
            matrix = draw.normal(*batch, 4, 4, dtype=dtype) / 2 + 2 * np.eye(4, dtype=dtype)
            values = {"x": matrix.astype(dtype), "y": draw.normal(*batch, *((4, 3) if left else (3, 4)), dtype=dtype)}
            solve = lambda x, y: lax.linalg.triangular_solve(x, y, left_side=left, lower=lower, unit_diagonal=unit, transpose_a=transposed)
            case("linalg", "triangular_solve", f"{'_'.join(sides)}_{variant}.{SHORT[dtype]}", values, solve, grad="all",
                 left_side=left, lower=lower, unit_diagonal=unit, transposed=transposed)
