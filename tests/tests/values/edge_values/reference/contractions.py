"""Products over any dimensions, and convolutions of every attribute, by their definitions."""
import numpy as np

from make import row

SOME = ["f64", "s32"]


def dots(x):
    size = x.shape[2]
    long, rows, columns = x.reshape(-1), x.sum((0, 2), dtype=x.dtype), x.sum((1, 2), dtype=x.dtype)
    mixed = np.einsum("bikl,lkbj->bij", x.reshape(2, 2, 6, size), x.reshape(size, 6, 2, 2))
    return [x @ x.transpose(0, 2, 1), x @ x[:1].reshape(size, 6), long @ long, np.multiply.outer(rows, columns), (columns @ columns)[None, None], mixed]


row("dots", "cubes", SOME, dots)
row("dots_wider", "cubes", SOME, lambda x: [np.einsum("bik,bjk->bij", *[x.astype(to)] * 2) for to in ([np.int32, np.int64] if x.dtype == np.int32 else [x.dtype])])

VARIATIONS = [(1, 1, 1, 0), (2, 2, 2, 1), (2, 1, 1, 0), (1, 2, 1, 0), (1, 1, 2, 0), (1, 1, 1, 1), (1, 1, 1, 2)]
GROUPS = [(1, 1), (2, 1), (1, 2), (4, 1), (1, 4)]


def dilated(x, by, first=1, fill=0):
    """Gaps between the places of the dimensions from `first` on."""
    shape = list(x.shape)
    for dim, each in enumerate(by, first):
        shape[dim] = (shape[dim] - 1) * each + 1
    spread = np.full(shape, fill, x.dtype)
    spread[(slice(None),) * first + tuple(slice(None, None, each) for each in by)] = x
    return spread


def padded(x, padding, first=1, fill=0):
    """Negative padding cuts."""
    for dim, (low, high) in enumerate(padding, first):
        x = np.moveaxis(x, dim, 0)
        x = x[max(-low, 0) : len(x) - max(-high, 0)]
        edges = [np.full((max(count, 0), *x.shape[1:]), fill, x.dtype) for count in (low, high)]
        x = np.moveaxis(np.concatenate([edges[0], x, edges[1]]), 0, dim)
    return x


def convolution(x, kernel, strides, padding, of_input, of_kernel, reverse, groups):
    """`x: [batch, spatial.., in]`, `kernel: [spatial.., in, out]`, groups of features and of the batch."""
    spatial, (features, batches) = len(strides), groups
    x = padded(dilated(x, of_input), padding)
    kernel = np.flip(kernel, [dim for dim in range(spatial) if reverse[dim]])
    each_in, out, batch = kernel.shape[-2], kernel.shape[-1], len(x) // batches
    sizes = [(x.shape[1 + dim] - (kernel.shape[dim] - 1) * of_kernel[dim] - 1) // strides[dim] + 1 for dim in range(spatial)]
    result = np.zeros((batch, *sizes, out), x.dtype)
    for place in np.ndindex(*kernel.shape[:spatial]):
        starts = [at * by for at, by in zip(place, of_kernel)]
        part = x[(slice(None), *[slice(start, start + (size - 1) * by + 1, by) for start, size, by in zip(starts, sizes, strides)])]
        for feature in range(out):
            at, by = feature * features // out * each_in, feature * batches // out * batch
            result[..., feature] += part[by : by + batch, ..., at : at + each_in] @ kernel[place][:, feature]
    return result


def varied(x, spatial):
    results = []
    for stride, of_input, of_kernel, reversal in VARIATIONS[: {0: 1, 3: 2}.get(spatial)]:
        for groups in GROUPS:
            image, kernel = np.resize(x, (4, *[4] * spatial, 4)), np.resize(x, (*[2] * spatial, 4 // groups[0], 4))
            reverse = [reversal == 1 or reversal == 2 and dim == 0 for dim in range(spatial)]
            results.append(convolution(image, kernel, *([each] * spatial for each in (stride, (1, 0), of_input, of_kernel)), reverse, groups))
    return results


row("convolutions_of_sequences", "cubes", SOME, lambda x: varied(x, 1))
row("convolutions_of_images", "cubes", SOME, lambda x: varied(x, 2))
row("convolutions_of_volumes", "cubes", SOME, lambda x: varied(x, 3) + varied(x, 0))


def in_any_order(x):
    """`x: [in, width, batch, height]`, kernel `[height, out, width, in]`; results `[width, out, height, batch]`."""
    results = []
    for groups, features in [((1, 1), 3), ((1, 2), 3), ((2, 1), 6)]:
        image, kernel = np.resize(x, (features, 5, 4, 4)).transpose(2, 3, 1, 0), np.resize(x, (2, 4, 2, 3)).transpose(0, 2, 3, 1)
        result = convolution(image, kernel, [1, 2], [(1, 0), (2, 1)], [2, 1], [1, 2], [True, False], groups)
        results.append(result.transpose(2, 3, 1, 0))
    return results


row("convolutions_in_any_order", "cubes", SOME, in_any_order)


def few_places(x):
    each = [(size, kernel) for size in (1, 2, 3) for kernel in (1, 2, 3)]
    return [convolution(np.resize(x, (1, 1, size, 1)), np.resize(x, (2, kernel, 1, 1)), [1, 1], [(1, 0), (0, kernel)], [1, 2], [1, 1], [False] * 2, (1, 1))
            for size, kernel in each]


row("convolutions_of_few_places", "cubes", ["f64"], few_places)


def same(sizes, window, strides):
    """Padding that makes as many places as strides, with more at the end."""
    totals = [max((-(-size // by) - 1) * by + width - size, 0) for size, width, by in zip(sizes, window, strides)]
    return [(total // 2, total - total // 2) for total in totals]


def with_padding(x):
    image, kernel, ones = np.resize(x, (2, 5, 6, 2)), np.resize(x, (3, 2, 2, 3)), [1, 1]
    each = [([(0, 0)] * 2, ones, ones), (same((5, 6), (3, 2), ones), ones, ones), (same((5, 6), (3, 2), (2, 2)), [2, 2], ones),
            ([(2, 0), (-1, 3)], ones, ones), ([(-1, 1), (2, 0)], [2, 3], ones), ([(1, 2), (0, 1)], ones, [2, 3])]
    return [convolution(image, kernel, strides, padding, dilation, ones, [False] * 2, (1, 1)) for padding, strides, dilation in each]


row("padded_convolutions", "cubes", SOME, with_padding)
