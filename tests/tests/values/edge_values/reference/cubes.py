"""Operations on three dimensions, by their definitions."""
import numpy as np

from contractions import dilated, padded, same
from make import L, row
from reductions import is_float

SOME, WITH_BOOL = ["f64", "s32"], ["f64", "s32", "bool"]
s32 = lambda x: x.astype(np.int32)

FUNCTIONS = {"sum": np.add, "product": np.multiply, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or}


def kinds(x):
    return ["and", "or"] if x.dtype == bool else list(FUNCTIONS)[: 4 if is_float(x) else 6]


def reduced(x, kind, dims):
    function, type_ = FUNCTIONS[kind], x.dtype
    for dim in sorted(dims, reverse=True):
        x = function.reduce(x, axis=dim, dtype=type_)
    return x


row("reductions", "cubes", WITH_BOOL, lambda x: [reduced(x, kind, dims) for kind in kinds(x) for dims in ([1], [0, 2], [])])


def neutral(x, kind):
    if x.dtype == bool:
        return kind == "and"
    low, high = (-np.inf, np.inf) if is_float(x) else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
    return {"sum": 0, "product": 1, "max": low, "min": high, "and": -1, "or": 0}[kind]


def window(x, kind, sizes, strides, padding, of_base=(1, 1, 1), of_window=(1, 1, 1)):
    """Windows over all dimensions."""
    fill = neutral(x, kind)
    x = padded(dilated(x, of_base, 0, fill), padding, 0, fill)
    out = [(size - (width - 1) * by - 1) // stride + 1 for size, width, by, stride in zip(x.shape, sizes, of_window, strides)]
    result = np.full(out, fill, x.dtype)
    for place in np.ndindex(*sizes):
        at = [slice(start * by, start * by + (size - 1) * stride + 1, stride) for start, by, size, stride in zip(place, of_window, out, strides)]
        result = FUNCTIONS[kind](result, x[tuple(at)])
    return result


def windows(x):
    plain = [(0, 0), (1, 0), (0, 2)]
    each = [((1, 2, 3), (1, 1, 1), plain), ((1, 2, 3), (1, 2, 1), plain), ((1, 2, 3), (1, 1, 1), plain, (1, 2, 1), (1, 1, 2)),
            ((1, 6, 1), (1, 1, 1), [(0, 0), (5, 0), (0, 0)])]
    return [window(x, kind, *how) for kind in kinds(x) for how in each]


row("windows", "cubes", WITH_BOOL, windows)


def differentiable(x):
    plain = [(0, 0), (1, 0), (0, 2)]
    each = [((1, 2, 3), (1, 1, 1), plain), ((1, 2, 3), (1, 2, 1), plain), ((1, 6, 1), (1, 1, 1), [(0, 0), (5, 0), (0, 0)])]
    wide = ((1, 5, 6), (1, 2, 1), [(0, 0), (1, 1), (2, 0)])
    dilated_ = ((1, 2, 3), (1, 1, 1), plain, (1, 2, 1), (1, 1, 2))
    sums = [window(x, "sum", *how) for how in (*each[:2], dilated_, each[2])]
    return sums + [window(x, kind, *how) for kind in ("max", "min") for how in (*each, wide)]


row("windows_of_sums_or_extremes", "cubes", ["f64"], differentiable)


def pool(x, kind, sizes, strides, padding=None):
    around = lambda inner, fill: [fill, *inner, fill]
    padding = same(x.shape[1:-1], sizes, strides) if padding == "same" else padding or [(0, 0)] * len(sizes)
    ones = (1,) * x.ndim
    pooled = window(x, kind, around(sizes, 1), around(strides, 1), around(padding, (0, 0)), ones, ones)
    return pooled / np.prod(sizes) if kind == "sum" else pooled


def pools(x):
    images = x.reshape(2, 2, 6, x.shape[2])
    return [pool(x, "max", [2], [2]), pool(x, "max", [3], [2], "same"), pool(x, "max", [3], [1], [(1, 1)]), pool(x, "sum", [2], [1], "same"),
            pool(images, "max", [2, 2], [2, 2]), pool(images, "max", [2, 3], [1, 2], "same"), pool(images, "sum", [2, 3], [1, 2], "same")]


row("pools", "cubes", ["f64"], pools)


def selected(x):
    """The source, added at the first extreme of each window of three along dimension 1."""
    source, results = x[::-1, :4], []
    for best in (np.argmax, np.argmin):
        for stride, count in ((1, 4), (2, 3)):
            sums = np.zeros_like(x)
            for batch, place, column in np.ndindex(len(x), count, x.shape[2]):
                part = x[batch, place * stride : place * stride + 3, column]
                sums[batch, place * stride + best(part), column] += source[batch, place, column]
            results.append(sums)
    return results


row("selected_and_scattered", "cubes", SOME, selected)


def order(x, dim, descending):
    """Stable."""
    if descending:
        return x.shape[dim] - 1 - np.flip(np.flip(x, dim).argsort(dim, kind="stable"), dim)
    return x.argsort(dim, kind="stable")


def sorts(x):
    sorted_by = lambda dim, descending: np.take_along_axis(x, order(x, dim, descending), dim)
    places = np.broadcast_to(np.arange(x.shape[2], dtype=np.int32), x.shape)
    return [sorted_by(1, False), sorted_by(2, True), s32(order(x, 1, True)), sorted_by(2, True)[..., :2], s32(order(x, 2, True)[..., :2]),
            s32(order(x, 1, True)[:, :2]), sorted_by(0, True), np.take_along_axis(places, order(x, 0, True), 0)]


row("sorts", "cubes", WITH_BOOL, sorts, exact=True)
row("extremes", "cubes", SOME, lambda x: [x.max(1), s32(x.argmax(1)), x.min(0), s32(x.argmin(0)), x.max(0), x.min((0, 1)), s32(x.argmin(0))], exact=True)
row("cumulative", "cubes", SOME, lambda x: [FUNCTIONS[kind].accumulate(x, dim, dtype=x.dtype) for kind, dim in [("sum", 1), ("product", 1), ("max", 1), ("min", 2)]])


def start(at, sizes, x):
    """Clamped into `x`."""
    return tuple(slice(first, first + size) for first, size in ((min(max(first, 0), all_ - size), size) for first, size, all_ in zip(at, sizes, x.shape)))


def reads(x):
    at, along = np.array([[2, 0, 2], [9, -4, 1]]), np.array([2, 0, 2, 200, 1, 0, 0, 5]).reshape(4, 2, 1)
    take = lambda dim: np.take(x, at, dim, mode="clip")
    updated = []
    for first in ([1, 2, 3], [9, -3, 1]):
        updated.append(x.copy())
        updated[-1][start(first, (2, 3, 2), x)] = x[:2, :3, :2]
    return [take(0), take(1), np.take_along_axis(x, np.broadcast_to(np.clip(along, 0, 5), (4, 2, x.shape[2])), 1),
            x[start([1, 2, 3], (2, 3, 2), x)], x[start([-3, 9, 1], (2, 3, 2), x)], *updated]


row("reads", "cubes", WITH_BOOL, reads, exact=True)


def gathers(x):
    vectors = np.stack([x[2, :, 4], x[1, :, 0]], 1)
    windows = np.stack([x[start((row, 0, column), (2, 6, 3), x)] for column, row in ((0, 1), (1, 0), (7, 7))])
    labels = (np.arange(24) * 7 % 8).reshape(4, 6, 1)
    return [vectors, windows, np.take_along_axis(x, labels, 2)[..., 0]]


row("gathers", "cubes", WITH_BOOL, gathers, exact=True)


def writes(x):
    parts = x[:, :3][:, ::-1]
    pieces = np.broadcast_to(x.transpose(1, 0, 2)[:3, None], (3, 2, *x[:, 0].shape)).transpose(2, 1, 0, 3)

    def at(indices, combine):
        """Those out of range are skipped."""
        y = x.copy()
        for number, place in enumerate(indices):
            if 0 <= place < x.shape[1]:
                y[:, place] = combine(y[:, place], parts[:, number])
        return y

    replace = lambda old, new: new
    results = [at([3, 0, 7], replace)]
    for kind in kinds(x):
        combine = FUNCTIONS[kind]
        results += [at([3, 0, 7 if kind == "product" else 3], combine), at([3, 0, 7], combine)]
        if kind == "sum" or x.dtype == bool:
            windows, batches = x.copy(), x.copy()
            for number, place in enumerate([4, 5, -1]):
                if 0 <= place <= x.shape[1] - 2:
                    windows[:, place : place + 2] = combine(windows[:, place : place + 2], pieces[:, :, number])
            for batch, number in np.ndindex(4, 2):
                place = [[1, 3], [0, 2], [5, 4], [2, 9]][batch][number]
                if place < x.shape[1]:
                    batches[batch, place] = combine(batches[batch, place], x[batch, 2 + number])
            results += [windows, batches]
    return [*results, at([3, 0, 7], replace), at([3, 0, 3], replace)]


row("writes", "cubes", WITH_BOOL, writes)


def sums_at_indices(x):
    y = x.copy()
    np.add.at(y, (slice(None), [2, 0, 2]), x[:, :3])
    return y


row("sums_at_indices", "cubes", SOME, sums_at_indices)


def rounded(x):
    """Of numbers that have as many digits as the type; the last column that is written is out of range."""
    x, written = x * 1.3, []
    for function in (np.add, np.multiply):
        y = x.copy()
        y[:, [3, 0]] = function(x[:, [3, 0]], x[:, :2])
        written.append(y)
    return [*written, x[:, 1:] + x[:, :-1], x[:, 1:] * x[:, :-1]]


row("rounded", "cubes", ["f64"], rounded, exact=True)


def shapes(x):
    first, size = x[0, 0, 0], x.shape[2]
    spread = lambda by: dilated(x, [gap + 1 for gap in by], 0, first)
    return [x.transpose(2, 0, 1), x[::-1, :, ::-1], x.reshape(6, 2, size, 2), x[1::2, ::3], x[2:2], np.broadcast_to(x[:, 2].T[:, None], (size, 3, 4)),
            np.broadcast_to(x[:, :1].transpose(2, 1, 0), (size, 5, 4)), np.broadcast_to(x[:, None], (4, 5, 6, size)), np.concatenate([x, x[:, 2:3]], 1),
            padded(spread([1, 0, 2]), [(-1, 1), (2, -1), (0, 1)], 0, first), padded(spread([2, 1, 0]), [(-2, 1), (1, -3), (0, 0)], 0, first)]


row("shapes", "cubes", WITH_BOOL, shapes, exact=True)


def broadcasts(x):
    row_, column = x[1, 1], x[:, :, :1]
    number = x.dtype.type
    return [x + row_, x * column, x.max() - x, np.maximum(column, row_), np.minimum(row_, x), (number(2) * x + number(1)) * (number(3) - x), x * x + x]


row("broadcasts", "cubes", SOME, broadcasts)


def choices(x):
    other, (low, high) = x[::-1, ::-1, ::-1], map(x.dtype.type, (1, 2))
    clamped = np.minimum(np.maximum(x, other), other + x.dtype.type(1))
    return [x if x.max() > 1 else other, np.where(x < other, x, low), np.clip(x, low, high), clamped, np.where(x[:1] > 0, x[:, :1], other)]


row("choices", "cubes", SOME, choices)
