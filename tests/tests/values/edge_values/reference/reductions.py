"""Reductions, softmax, cumulative operations, windows and sorting, of [patterns, size] along the second dimension."""
import numpy as np

from make import CURRENT, L, row, wide
from values import ALL, FLOATS, INTEGERS, NUMBERS, SIZES, facts

NOT_EMPTY = [size for size in SIZES if size]


def is_float(x):
    return x.dtype in (np.float64, np.longdouble)


def kept(reduced):
    return reduced, reduced[:, None]


def total(x):
    return x.sum(1) if is_float(x) else x.sum(1, dtype=x.dtype)


def product(x):
    return x.prod(1) if is_float(x) else x.prod(1, dtype=x.dtype)


def others(x, c):
    """The product of the other factors."""
    eye = np.eye(x.shape[1], dtype=bool)
    return c[:, None] * np.stack([np.where(eye[at], 1, x).prod(1) for at in range(x.shape[1])], 1) if x.shape[1] else np.zeros(x.shape, L)


def extreme(function, float_identity):
    def reduced(x):
        if x.shape[1]:
            return kept(function(x, axis=1))
        if is_float(x):
            return kept(np.full(len(x), float_identity, L))
        info = np.iinfo(x.dtype)
        return kept(np.full(len(x), info.max if float_identity > 0 else info.min, x.dtype))

    return reduced


def to_extremes(function):
    def back(x, c):
        if not x.shape[1]:
            return np.zeros(x.shape, L)
        hit = (x == function(x, axis=1)[:, None]) | np.isnan(x)
        return hit * (c / hit.sum(1))[:, None]

    return back


row("sum", "rows", NUMBERS, lambda x: (*kept(total(x)), total(x)), lambda x, c: np.broadcast_to(c[:, None], x.shape))
row("prod", "rows", NUMBERS, lambda x: kept(product(x)), others)
row("max", "rows", NUMBERS, extreme(np.max, -np.inf), to_extremes(np.max), exact=True)
row("min", "rows", NUMBERS, extreme(np.min, np.inf), to_extremes(np.min), exact=True)
row("all", "rows", ["bool"] + INTEGERS, lambda x: kept(np.bitwise_and.reduce(x, axis=1) if x.shape[1] else np.full(len(x), -1, np.int8).astype(x.dtype)))
row("any", "rows", ["bool"] + INTEGERS, lambda x: kept(np.bitwise_or.reduce(x, axis=1)))


def overflowing(sums):
    """Infinite beyond the range of the type of sums."""
    return np.where(np.abs(sums) > facts(wide(CURRENT[0]))["max"], np.copysign(np.inf, sums), sums)


def mean(x):
    return overflowing(x.sum(1)) / L(x.shape[1])


def variance(x):
    return overflowing(((x - mean(x)[:, None]) ** 2).sum(1)) / L(x.shape[1])


row("mean", "rows", FLOATS, lambda x: (*kept(mean(x)), mean(x)), lambda x, c: np.broadcast_to(c[:, None] / L(max(x.shape[1], 1)), x.shape))
row("var", "rows", FLOATS, lambda x: kept(variance(x)), lambda x, c: 2 * c[:, None] * (x - (x.sum(1) / max(x.shape[1], 1))[:, None]) / L(max(x.shape[1], 1)))


def top(x):
    return np.max(x, axis=1, initial=-np.inf)[:, None]


def softmax(x):
    powers = np.exp(x - top(x))
    return powers / powers.sum(1)[:, None]


def log_softmax(x):
    shifted = x - top(x)
    return shifted - np.log(np.exp(shifted).sum(1))[:, None]


def logsumexp(x):
    most = np.max(x, axis=1, initial=-np.inf)
    safe = np.where(np.isfinite(most), most, 0)
    return np.log(np.exp(x - safe[:, None]).sum(1)) + safe


def softmax_back(x, c):
    y = softmax(x)
    return y * (c - (c * y).sum(1)[:, None])


row("softmax", "rows", FLOATS, softmax, softmax_back)
row("log_softmax", "rows", FLOATS, log_softmax, lambda x, c: c - softmax(x) * c.sum(1)[:, None])
row("logsumexp", "rows", FLOATS, logsumexp, lambda x, c: c[:, None] * softmax(x))


def tails(c):
    return np.cumsum(c[:, ::-1], axis=1)[:, ::-1]


def cumulated(function):
    return lambda x: function(x) if is_float(x) else function(x).astype(x.dtype)


row("cumsum", "rows", NUMBERS, cumulated(lambda x: np.cumsum(x, axis=1)), lambda x, c: tails(c))
row("cumprod", "rows", ALL, cumulated(lambda x: np.cumprod(x, axis=1)))
row("cummax", "rows", ALL, lambda x: np.maximum.accumulate(x, axis=1), exact=True)
row("cummin", "rows", ALL, lambda x: np.minimum.accumulate(x, axis=1), exact=True)


def cumlogsumexp(x):
    return np.stack([logsumexp(x[:, : end + 1]) for end in range(x.shape[1])], 1) if x.shape[1] else x


def cumlogsumexp_back(x, c):
    back = np.zeros(x.shape, L)
    for end in range(x.shape[1]):
        back[:, : end + 1] += c[:, end : end + 1] * softmax(x[:, : end + 1])
    return back


row("cumlogsumexp", "rows", FLOATS, cumlogsumexp, cumlogsumexp_back)

s32 = lambda x: x.astype(np.int32)
row("argmax", "rows", NUMBERS, lambda x: (s32(x.argmax(1)), x.max(1), s32(x.argmax(1))), exact=True, sizes=NOT_EMPTY)
row("argmin", "rows", NUMBERS, lambda x: (s32(x.argmin(1)), x.min(1), s32(x.argmin(1))), exact=True, sizes=NOT_EMPTY)


def order(x, descending):
    """Stable; NaN, of either sign, is larger than all."""
    if descending:
        return x.shape[1] - 1 - x[:, ::-1].argsort(1, kind="stable")[:, ::-1]
    return x.argsort(1, kind="stable")


def sorted_by(x, descending):
    return np.take_along_axis(x, order(x, descending), 1)


def sort_back(x, c):
    back = np.zeros(x.shape, L)
    np.put_along_axis(back, order(x, False), c, 1)
    return back


row("sort", "rows", ALL, lambda x: (sorted_by(x, False), sorted_by(x, True)), sort_back, exact=True)
row("argsort", "rows", ALL, lambda x: (s32(order(x, False)), s32(order(x, True)), sorted_by(x, False), s32(order(x, False))), exact=True)


def top_k(x):
    count = min(2, x.shape[1])
    return sorted_by(x, True)[:, :count], s32(order(x, True)[:, :count])


row("top_k", "rows", ALL, top_k, exact=True)


# ---- windows of [patterns, size, 1] ----
def windows(x, width, stride, low, high, fill):
    x = np.pad(x, [(0, 0), (low, high)], constant_values=fill)
    count = max((x.shape[1] - width) // stride + 1, 0)
    return np.stack([x[:, at * stride : at * stride + width] for at in range(count)], 1) if count else np.zeros((len(x), 0, width), x.dtype)


def least(x):
    return -np.inf if is_float(x) else np.iinfo(x.dtype).min


ENOUGH = [size for size in SIZES if size >= 2]
row("max_pool", "rows", NUMBERS, lambda x: (windows(x, 2, 2, 0, 0, 0).max(2)[..., None], windows(x, 2, 1, 1, 0, least(x)).max(2)[..., None], x.max(1)[:, None]),
    exact=True, sizes=ENOUGH)


def pooled(x):
    sums = [overflowing(windows(x, 2, *how, 0).sum(2)) for how in ((2, 0, 0), (1, 1, 0))]
    return *(of[..., None] / 2 for of in sums), mean(x)[:, None]


row("avg_pool", "rows", FLOATS, pooled, sizes=ENOUGH)
def halves(x):
    """The first and the second half, which share an element of an odd number."""
    size = x.shape[1]
    return x[:, : (size + 1) // 2], x[:, size // 2 :]


row("adaptive_avg_pool", "rows", FLOATS, lambda x: (np.stack([mean(half) for half in halves(x)], 1)[..., None], mean(x)[:, None, None]), sizes=NOT_EMPTY)
row("adaptive_max_pool", "rows", NUMBERS, lambda x: (np.stack([half.max(1) for half in halves(x)], 1)[..., None], x.max(1)[:, None, None]), exact=True, sizes=NOT_EMPTY)


def interpolated(x):
    """Means between neighbors, each element twice, and the elements at a quarter and three quarters."""
    size = x.shape[1]
    after = np.concatenate([x[:, 1:], x[:, -1:]], 1)
    places = np.stack([x + 0 * after, x / 2 + after / 2], 2).reshape(len(x), -1)[:, : 2 * size - 1] if size > 1 else x
    return places[..., None], np.repeat(x, 2, 1)[..., None], x[:, [size // 4, min(3 * size // 4, size - 1)]][..., None]


row("interpolate", "rows", FLOATS, interpolated, sizes=NOT_EMPTY)
row("reduce_window", "rows", NUMBERS, lambda x: [function(windows(x, 2, 1, 0, 0, 0)) if is_float(x) else function(windows(x, 2, 1, 0, 0, 0)).astype(x.dtype)
    for function in (lambda w: w.sum(2), lambda w: w.prod(2), lambda w: w.min(2))], sizes=ENOUGH)


# ---- products ----
def convolution(x):
    """Kernel [2, 1], one zero on each side."""
    padded = np.pad(x, [(0, 0), (1, 1)])
    return (x.dtype.type(2) * padded[:, :-1] + padded[:, 1:])[..., None]


row("conv", "rows", NUMBERS, convolution, sizes=ENOUGH)


def transposed(x):
    """Kernel [2, 1] with strides 1 and 2."""
    doubled = x.dtype.type(2) * x
    both = np.pad(doubled, [(0, 0), (0, 1)]) + np.pad(x, [(0, 0), (1, 0)])
    return both[..., None], np.stack([doubled, x], 2).reshape(len(x), -1, 1)


row("conv_transpose", "rows", NUMBERS, transposed, sizes=NOT_EMPTY)


def products(x):
    """By a vector of 1, 2, 1, 2, .."""
    by = (np.arange(x.shape[1]) % 2 + 1).astype(x.dtype)
    result = (x * by).sum(1) if is_float(x) else (x * by).sum(1, dtype=x.dtype)
    return result[:, None], result[:, None], result[:, None]


row("matmul", "rows", NUMBERS, products, lambda x, c: c * (np.arange(x.shape[1]) % 2 + 1))


# ---- of columns ----
spread = lambda x, c: np.broadcast_to(c[:, None], x.shape)
row("columns", "rows", NUMBERS, lambda x: (total(x), product(x), x.max(1), x.min(1), s32(x.argmax(1)), s32(x.argmin(1)), cumulated(lambda x: np.cumsum(x, axis=1))(x)),
    spread, sizes=NOT_EMPTY)
row("columns_floats", "rows", FLOATS, lambda x: (mean(x), variance(x), softmax(x), log_softmax(x), logsumexp(x)), lambda x, c: spread(x, c) / L(x.shape[1]), sizes=NOT_EMPTY)
row("columns_sorted", "rows", ALL, lambda x: (sorted_by(x, False), sorted_by(x, True), s32(order(x, False)), s32(order(x, True)), *top_k(x)), sort_back)
