"""Gather, scatter, sort, and what is made of them."""
import jax, numpy as np
from jax import lax
from jax import numpy as jnp

from make import Draw, SHORT, case, dtype_of

draw = Draw("indexing")
int32 = lambda *values: np.array(values, "int32")

# ---- gather, as StableHLO has it: starts out of range are clamped so that the slice fits ----
GATHERS = [
    # variant, operand, indices, offset, collapsed, map, slice sizes, operand batching, indices batching
    ("rows", (5, 3), int32([4], [0], [4], [2]), (1,), (0,), (0,), (1, 3), (), ()),
    ("columns", (3, 5), int32([1], [3]), (0,), (1,), (1,), (3, 1), (), ()),
    ("points", (4, 3), int32([0, 2], [3, 1], [3, 1]), (), (0, 1), (0, 1), (1, 1), (), ()),
    ("points_swapped", (4, 3), int32([2, 0], [1, 3]), (), (0, 1), (1, 0), (1, 1), (), ()),
    ("windows", (6, 5), int32([0, 1], [3, 2]), (1, 2), (), (0, 1), (2, 3), (), ()),
    ("windows_out_of_range", (6, 5), int32([-4, 1], [5, 9]), (1, 2), (), (0, 1), (2, 3), (), ()),
    ("rows_out_of_range", (4, 2), int32([7], [-2], [1]), (1,), (0,), (0,), (1, 2), (), ()),
    ("grid_of_rows", (5, 2), int32([[0], [1]], [[4], [4]]), (2,), (0,), (0,), (1, 2), (), ()),
    ("batched", (3, 4), int32([[1], [0]], [[3], [3]], [[2], [0]]), (), (1,), (1,), (1, 1), (0,), (0,)),
    ("batched_windows", (2, 5, 3), int32([[1]], [[4]]), (2,), (1,), (1,), (1, 1, 3), (0,), (0,)),
    ("offset_in_front", (5, 3), int32([4], [0]), (0,), (0,), (0,), (1, 3), (), ()),
]
for variant, dims, indices, offset, collapsed, mapping, sizes, operand_batch, indices_batch in GATHERS:
    numbers = lax.GatherDimensionNumbers(offset, collapsed, mapping, operand_batch, indices_batch)
    gather = lambda x, indices: lax.gather(x, indices, numbers, sizes, mode=lax.GatherScatterMode.CLIP)
    attributes = dict(offset=offset, collapsed=collapsed, map=mapping, sizes=sizes, operand_batching=operand_batch, indices_batching=indices_batch)
    for dtype in ["float32", "float64"] if variant in ("rows", "windows") else ["float32"]:
        values = {"x": draw.normal(*dims, dtype=dtype), "indices": indices}
        case("indexing", "gather", f"{variant}.{SHORT[dtype]}", values, gather, grad="x", **attributes)
values = {"x": draw.integers(0, 99, 4), "indices": np.array([[3], [1]], "int64")}
numbers = lax.GatherDimensionNumbers((), (0,), (0,))
case("indexing", "gather", "s32_by_s64", values, lambda x, indices: lax.gather(x, indices, numbers, (1,)), offset=[], collapsed=[0], map=[0], sizes=[1],
     operand_batching=[], indices_batching=[])

# ---- scatter: indices out of range write nothing ----
SCATTERS = [
    # variant, operand, indices, updates, window dims, inserted, map, operand batching, indices batching, no two the same
    ("rows", (5, 3), int32([4], [0], [2]), (3, 3), (1,), (0,), (0,), (), (), True),
    ("rows_twice", (5, 3), int32([4], [0], [4]), (3, 3), (1,), (0,), (0,), (), (), False),
    ("points", (4, 3), int32([0, 2], [3, 1], [1, 1]), (3,), (), (0, 1), (0, 1), (), (), True),
    ("points_twice", (4, 3), int32([3, 1], [0, 2], [3, 1]), (3,), (), (0, 1), (0, 1), (), (), False),
    ("windows", (6, 5), int32([0, 1], [3, 2]), (2, 2, 3), (1, 2), (), (0, 1), (), (), True),
    ("out_of_range", (4, 2), int32([7], [-2], [1]), (3, 2), (1,), (0,), (0,), (), (), True),
    ("window_out_of_range", (4, 4), int32([3, 1], [0, 0]), (2, 2, 2), (1, 2), (), (0, 1), (), (), True),
    ("batched", (3, 4), int32([[1], [0]], [[3], [2]], [[2], [0]]), (3, 2), (), (1,), (1,), (0,), (0,), True),
]
COMBINE = {"replace": lax.scatter, "sum": lax.scatter_add, "product": lax.scatter_mul, "min": lax.scatter_min, "max": lax.scatter_max}
for variant, dims, indices, updates, window, inserted, mapping, operand_batch, indices_batch, unique in SCATTERS:
    numbers = lax.ScatterDimensionNumbers(window, inserted, mapping, operand_batch, indices_batch)
    attributes = dict(window=window, inserted=inserted, map=mapping, operand_batching=operand_batch, indices_batching=indices_batch, unique=unique)
    for combine, function in COMBINE.items():
        if combine == "replace" and not unique:
            continue  # which of two updates stays is not said
        scatter = lambda x, indices, updates: function(x, indices, updates, numbers, unique_indices=unique, mode=lax.GatherScatterMode.FILL_OR_DROP)
        values = {"x": draw.normal(*dims), "indices": indices, "updates": draw.normal(*updates)}
        grad = "x updates" if unique or combine != "product" else ""
        case("scatter", f"scatter_{combine}", variant, values, scatter, grad=grad, **attributes)
    if variant in ("rows", "points_twice"):
        values = {"x": draw.integers(0, 9, *dims), "indices": indices, "updates": draw.integers(0, 9, *updates)}
        scatter = lambda x, indices, updates: lax.scatter_add(x, indices, updates, numbers, mode=lax.GatherScatterMode.FILL_OR_DROP)
        case("scatter", "scatter_sum", f"{variant}.s32", values, scatter, **attributes)

# And is the least, or the greatest, of truths as numbers.
for combine, function in [("and", lax.scatter_min), ("or", lax.scatter_max)]:
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    logical = lambda x, i, updates: function(x.astype("int32"), i, updates.astype("int32"), numbers, mode=lax.GatherScatterMode.FILL_OR_DROP).astype(bool)
    values = {"x": np.array([True, True, False, False]), "indices": int32([0], [1], [2], [3], [0], [9]), "updates": np.array([True, False, True, False, False, True])}
    case("scatter", f"scatter_{combine}", "bool", values, logical, window=[], inserted=[0], map=[0], operand_batching=[], indices_batching=[], unique=False)

# ---- what a user calls ----
table, ids = draw.normal(5, 3), int32([0, 4], [2, 2])
case("indexing", "take", "rows", {"x": table, "indices": ids}, lambda x, indices: jnp.take(x, indices, 0), grad="x", dim=0)
case("indexing", "take", "columns", {"x": table, "indices": int32(2, 0)}, lambda x, indices: jnp.take(x, indices, 1), grad="x", dim=1)
case("indexing", "take", "scalar_index", {"x": table, "indices": np.array(3, "int32")}, lambda x, indices: jnp.take(x, indices, 0), grad="x", dim=0)
case("indexing", "take", "u8_index", {"x": table, "indices": np.array([1, 1], "uint8")}, lambda x, indices: jnp.take(x, indices, 0), grad="x", dim=0)
case("indexing", "take", "middle", {"x": draw.normal(2, 4, 3), "indices": ids[:, :1] % 4}, lambda x, indices: jnp.take(x, indices, 1), grad="x", dim=1)
for variant, dims, indices, dim in [("last", (3, 4), int32([1], [0], [3]), 1), ("first", (3, 4), int32([1, 0, 2, 2]), 0), ("many", (2, 5), int32([4, 4, 0], [1, 2, 3]), 1),
                                    ("middle", (2, 3, 2), int32([[1, 0]], [[2, 2]]), 1)]:
    values = {"x": draw.normal(*dims), "indices": indices}
    case("indexing", "take_along", variant, values, lambda x, indices: jnp.take_along_axis(x, indices, dim), grad="x", dim=dim)
for dtype in ["float32", "bfloat16", "bool", "int32"]:
    case("indexing", "one_hot", SHORT[dtype], {"indices": int32([0, 3], [-1, 4], [2, 1])}, lambda indices: jax.nn.one_hot(indices, 4, dtype=dtype_of(dtype)), classes=4,
         dtype=SHORT[dtype], tolerance=0)

# ---- sort: stable, NaN last ----
special = np.array([3, np.nan, -np.inf, 2, np.inf, -1, 2, 0], "float32")
for descending in (False, True):
    direction = "down" if descending else "up"
    flip = (lambda x: lax.rev(x, [x.ndim - 1])) if descending else (lambda x: x)

    def sort(*operands, dim):
        """Descending and stable: the order of the negated first operand, equal ones as they were."""
        first = operands[0]
        order = jnp.argsort(first, axis=dim, stable=True, descending=descending)
        return [jnp.take_along_axis(operand, order, dim) for operand in operands]

    for variant, dims, dim in [("vector", (7,), 0), ("rows", (3, 4), 1), ("columns", (4, 2), 0), ("one", (1,), 0), ("middle", (2, 3, 2), 1)]:
        case("sort", "sort", f"{direction}.{variant}", {"x": draw.distinct(*dims)}, lambda x: sort(x, dim=dim), grad="x", dim=dim, descending=descending)
    case("sort", "sort", f"{direction}.special", {"x": special}, lambda x: sort(x, dim=0), tolerance=0, dim=0, descending=descending)
    case("sort", "sort", f"{direction}.s32", {"x": draw.integers(-5, 5, 9)}, lambda x: sort(x, dim=0), dim=0, descending=descending)
    case("sort", "sort", f"{direction}.u8", {"x": draw.integers(0, 255, 9, dtype="uint8")}, lambda x: sort(x, dim=0), dim=0, descending=descending)
    case("sort", "sort", f"{direction}.f64", {"x": draw.distinct(6, dtype="float64")}, lambda x: sort(x, dim=0), grad="x", dim=0, descending=descending)
    values = {"x": draw.integers(0, 3, 3, 5), "y": draw.normal(3, 5), "z": np.arange(15, dtype="int32").reshape(3, 5)}
    case("sort", "sort", f"{direction}.stable_pairs", values, lambda x, y, z: sort(x, y, z, dim=1), grad="y", dim=1, descending=descending)
    values = {"x": draw.distinct(2, 4), "y": draw.normal(2, 4)}
    case("sort", "sort", f"{direction}.two_gradients", values, lambda x, y: sort(x, y, dim=1), grad="all", dim=1, descending=descending)
    for variant, x in [("rows", draw.distinct(3, 5)), ("ties", draw.integers(0, 3, 2, 6)), ("special", special)]:
        case("sort", "argsort", f"{direction}.{variant}", {"x": x}, lambda x: jnp.argsort(x, axis=-1, stable=True, descending=descending).astype("int32"),
             dim=x.ndim - 1, descending=descending)
for variant, x, k in [("rows", draw.distinct(3, 6), 2), ("all", draw.distinct(4), 4), ("ties", np.array([1, 3, 3, 2, 3], "float32"), 2), ("one", draw.distinct(2, 3), 1)]:
    case("sort", "top_k", variant, {"x": x}, lambda x: lax.top_k(x, k), grad="x", k=k)
case("sort", "top_k", "s32", {"x": draw.integers(-50, 50, 2, 8)}, lambda x: lax.top_k(x, 3), k=3)
out_of_range = int32(-2, 9, 3)
case("indexing", "take", "out_of_range", {"x": table, "indices": out_of_range}, lambda x, indices: jnp.take(x, indices, 0, mode="clip"), grad="x", dim=0)
clip = lambda x, indices: jnp.take_along_axis(x, jnp.clip(indices, 0, x.shape[1] - 1), 1)
case("indexing", "take_along", "out_of_range", {"x": draw.normal(2, 3), "indices": int32([-1, 5], [0, 3])}, clip, grad="x", dim=1)
for variant, dims, indices, dim in [("rows", (5, 3), int32([4, 0], [2, 1]), 0), ("columns", (3, 5), int32(4, 2), 1), ("out_of_range", (4, 2), int32(-1, 2, 4), 0)]:
    updates = draw.normal(*dims[:dim], *indices.shape, *dims[dim + 1:])
    at = (slice(None),) * dim
    drop = lambda indices: jnp.where(indices < 0, dims[dim], indices)  # JAX counts negative indices from the end
    values = {"x": draw.normal(*dims), "indices": indices, "updates": updates}
    case("scatter", "scatter_add", variant, values, lambda x, indices, updates: x.at[(*at, drop(indices))].add(updates, mode="drop"), grad="x updates", dim=dim)
    case("scatter", "scatter_set", variant, values, lambda x, indices, updates: x.at[(*at, drop(indices))].set(updates, mode="drop", unique_indices=True),
         grad="x updates", dim=dim)
case("scatter", "scatter_add", "twice", {"x": draw.normal(3, 2), "indices": int32(1, 1, 0), "updates": draw.normal(3, 2)},
     lambda x, indices, updates: x.at[indices].add(updates), grad="x updates", dim=0)
