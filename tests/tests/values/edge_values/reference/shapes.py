"""Operations that move elements, whose bits stay."""
import numpy as np

from make import L, row
from values import ALL, NUMPY, FLOATS, INTEGERS

one = lambda x: x.dtype.type(1)


def moved(x):
    return x.reshape(-1), x.T, x[:, ::-1], x[:, None], np.broadcast_to(x, (2, *x.shape)), np.pad(x, [(1, 0), (0, 1)], constant_values=one(x))


row("moves", "rows", ALL, moved, lambda x, c: c.reshape(x.shape), exact=True)


def parts(x):
    zero = np.zeros_like(x)
    updated = x.copy()
    updated[1:3] = x[:2]
    last = x[3:4]
    return x[::2], x[1:3], last[0], x[2:4], updated, np.tril(x), np.triu(x, 1), np.concatenate([x, zero], 1), np.stack([x, zero], 1), x


def parts_back(x, c):
    back = np.zeros(x.shape, L)
    back[::2] = c
    return back


row("parts", "rows", ALL, parts, parts_back, exact=True)


def made(x):
    """Constants of the type, of as many columns as there are."""
    size = x.shape[1]
    counted = np.arange(size).astype(x.dtype)
    return counted, np.eye(size).astype(x.dtype), np.full(size, 1, x.dtype), np.tile(counted, (2, 1))


row("made", "rows", [dtype for dtype in ALL if dtype != "bool"], made, exact=True)
row("lower_triangle", "rows", ["f32"], lambda x: (np.tri(x.shape[1], x.shape[1], 0, dtype=bool), np.tri(3, x.shape[1], -1, dtype=bool)))
