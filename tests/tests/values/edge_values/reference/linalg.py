"""Decompositions of matrices and systems of equations, by their definitions."""
import numpy as np

from make import row

SOLVED = ["f32", "f64"]


def definite(x):
    return x @ x.transpose(0, 2, 1) / 64 + 2 * np.eye(6, dtype=x.dtype)


def cholesky(a):
    factor = np.zeros_like(a)
    for i in range(a.shape[-1]):
        for j in range(i + 1):
            rest = a[:, i, j] - (factor[:, i, :j] * factor[:, j, :j]).sum(-1)
            factor[:, i, j] = np.sqrt(rest) if i == j else rest / factor[:, j, j]
    return factor


def solve(a, b, left, lower, unit, transposed):
    """Substitution, one row of the solution at a time."""
    if not left:
        return solve(a, b.transpose(0, 2, 1), True, lower, unit, not transposed).transpose(0, 2, 1)
    a = np.tril(a) if lower else np.triu(a)
    if transposed:
        a, lower = a.transpose(0, 2, 1), not lower
    x = np.zeros_like(b)
    for i in range(a.shape[-1]) if lower else reversed(range(a.shape[-1])):
        rest = b[:, i] - sum(a[:, i, j, None] * x[:, j] for j in range(a.shape[-1]) if j != i)
        x[:, i] = rest if unit else rest / a[:, i, i, None]
    return x


def solved(x):
    each = [[bits >> bit & 1 == 1 for bit in range(4)] for bits in range(16)]
    return np.concatenate([solve(definite(x), x if left else x.transpose(0, 2, 1), left, *rest).reshape(-1) for left, *rest in each])


row("cholesky", "cubes", SOLVED, lambda x: cholesky(definite(x)))
row("triangular_solve", "cubes", SOLVED, solved)
