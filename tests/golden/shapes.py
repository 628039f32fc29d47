"""Constants, and operations that move elements."""
import jax, numpy as np
from jax import lax
from jax import numpy as jnp

from make import DTYPES, Draw, SHORT, case, dtype_of

draw = Draw("shapes")

# ---- made from nothing ----
for dtype in DTYPES:
    values = [0, 1, 1, 0] if dtype == "bool" else [0, 1, 2, 100]
    case("shapes", "constant", SHORT[dtype], {}, lambda: jnp.array(values).astype(dtype_of(dtype)).reshape(2, 2), dtype=SHORT[dtype], values=values,
         dims=[2, 2])
    case("shapes", "full", SHORT[dtype], {}, lambda: jnp.full((2, 3), 1).astype(dtype_of(dtype)), dtype=SHORT[dtype], value=1, dims=[2, 3])
    if dtype != "bool":
        for dim, dims in [(0, (4,)), (1, (2, 3)), (0, (2, 3)), (1, (2, 3, 2))]:
            variant = f"{SHORT[dtype]}.{'x'.join(map(str, dims))}.{dim}"
            case("shapes", "iota", variant, {}, lambda: lax.broadcasted_iota(dtype_of(dtype), dims, dim), dtype=SHORT[dtype], dims=dims, dim=dim)

# ---- one operand ----
def move(function, variant, x, compute, **attributes):
    case("shapes", function, variant, {"x": x}, compute, grad="x" if x.dtype.kind == "f" else "", **attributes)

for variant, x, dims, mapping in [
    ("vector_to_rows", draw.normal(3), (2, 3), (1,)),
    ("vector_to_columns", draw.normal(2), (2, 3), (0,)),
    ("size_one", draw.normal(2, 1), (2, 3), (0, 1)),
    ("middle", draw.normal(2, 4), (2, 3, 4), (0, 2)),
    ("scalar", draw.normal(), (2, 2), ()),
    ("f64", draw.normal(1, 2, dtype="float64"), (3, 2), (0, 1)),
    ("s32", draw.integers(0, 9, 2), (3, 2), (1,)),
    ("empty", draw.normal(2), (0, 2), (1,)),
]:
    move("broadcast_in_dim", variant, x, lambda x: lax.broadcast_in_dim(x, dims, mapping), dims=dims, mapping=mapping)
for variant, x, dims in [("new_dimension", draw.normal(3), (2, 3)), ("ones", draw.normal(2, 1, 3), (4, 2, 5, 3)), ("scalar", draw.normal(), (3,)),
                         ("same", draw.normal(2), (2,))]:
    move("broadcast_to", variant, x, lambda x: jnp.broadcast_to(x, dims), dims=dims)
for variant, x, dims in [("flat", draw.normal(2, 3), (6,)), ("split", draw.normal(6), (3, 2)), ("ones", draw.normal(2, 3), (1, 2, 1, 3)),
                         ("scalar", draw.normal(1, 1), ()), ("empty", draw.normal(0, 3), (3, 0, 2)), ("u8", draw.integers(0, 9, 4, dtype="uint8"), (2, 2))]:
    move("reshape", variant, x, lambda x: x.reshape(dims), dims=dims)
for variant, x, permutation in [("matrix", draw.normal(2, 3), (1, 0)), ("cycle", draw.normal(2, 3, 4), (2, 0, 1)), ("same", draw.normal(2, 3), (0, 1)),
                                ("four", draw.normal(2, 1, 3, 2), (0, 2, 3, 1)), ("f64", draw.normal(2, 2, 2, dtype="float64"), (1, 2, 0))]:
    move("transpose", variant, x, lambda x: x.transpose(permutation), permutation=permutation)
for variant, x, dims in [("one", draw.normal(4), (0,)), ("both", draw.normal(2, 3), (0, 1)), ("last", draw.normal(2, 3), (1,)), ("bool", np.array([True, False, False]), (0,))]:
    move("reverse", variant, x, lambda x: lax.rev(x, dims), dims=dims)
for variant, x, starts, limits, strides in [
    ("vector", draw.normal(7), (2,), (6,), (1,)),
    ("strides", draw.normal(7, 5), (1, 0), (7, 5), (2, 3)),
    ("all", draw.normal(2, 3), (0, 0), (2, 3), (1, 1)),
    ("nothing", draw.normal(4), (2,), (2,), (1,)),
    ("last", draw.normal(3, 4), (2, 3), (3, 4), (1, 1)),
    ("s64", draw.integers(0, 99, 6, dtype="int64"), (1,), (6,), (2,)),
]:
    move("slice", variant, x, lambda x: lax.slice(x, starts, limits, strides), starts=starts, limits=limits, strides=strides)

# ---- pad: low, high, interior; negative cuts ----
for variant, dims, low, high, interior in [
    ("around", (3,), (2,), (1,), (0,)),
    ("interior", (3,), (0,), (0,), (2,)),
    ("all", (2, 3), (1, 0), (2, 1), (1, 3)),
    ("cut", (5,), (-1,), (-2,), (0,)),
    ("cut_one_side", (4, 3), (-1, 2), (2, -1), (0, 0)),
    ("cut_into_interior", (4,), (-2,), (-1,), (2,)),
    ("cut_everything", (3,), (-3,), (0,), (0,)),
    ("empty", (0, 2), (1, 0), (1, 0), (0, 0)),
]:
    values = {"x": draw.normal(*dims), "value": draw.normal()}
    config = list(zip(low, high, interior))
    case("shapes", "pad", variant, values, lambda x, value: lax.pad(x, value, config), grad="all", low=low, high=high, interior=interior)
values = {"x": draw.integers(0, 9, 3), "value": np.array(-1, "int32")}
case("shapes", "pad", "s32", values, lambda x, value: lax.pad(x, value, [(1, 1, 1)]), low=[1], high=[1], interior=[1])

# ---- many operands ----
for variant, shapes, dim in [("vectors", [(2,), (3,), (1,)], 0), ("columns", [(2, 1), (2, 3)], 1), ("rows", [(1, 3), (2, 3)], 0), ("one", [(2, 2)], 0),
                             ("empty", [(2, 0), (2, 2), (2, 0)], 1)]:
    values = {f"x{index}": draw.normal(*shape) for index, shape in enumerate(shapes)}
    case("shapes", "concatenate", variant, values, lambda *values: jnp.concatenate(values, dim), grad="all", dim=dim)
case("shapes", "concatenate", "bool", {"x0": np.array([True]), "x1": np.array([False, True])}, lambda x0, x1: jnp.concatenate([x0, x1]), dim=0)

# ---- dynamic slices: starts are clamped so that the slice fits ----
for variant, dims, sizes, starts in [("inside", (5, 4), (2, 3), (1, 1)), ("too_far", (5, 4), (2, 3), (9, 2)), ("negative", (5, 4), (2, 3), (-3, 0)), ("whole", (2, 2), (2, 2), (1, 1)),
                                     ("vector", (6,), (1,), (5,))]:
    values = {"x": draw.normal(*dims)} | {f"start{dim}": np.array(start, "int32") for dim, start in enumerate(starts)}
    slice_ = lambda x, *starts: lax.dynamic_slice(x, clamped(starts, x.shape, sizes), sizes)
    clamped = lambda starts, dims, sizes: [jnp.clip(start, 0, d - s) for start, d, s in zip(starts, dims, sizes)]
    case("shapes", "dynamic_slice", variant, values, slice_, grad="x", sizes=sizes)
    values = {"x": values.pop("x"), "update": draw.normal(*sizes)} | values
    update_ = lambda x, update, *starts: lax.dynamic_update_slice(x, update, clamped(starts, x.shape, update.shape))
    case("shapes", "dynamic_update_slice", variant, values, update_, grad="x update")
values = {"x": draw.integers(0, 9, 5, dtype="int64"), "start0": np.array(2, "uint8")}
case("shapes", "dynamic_slice", "u8_start", values, lambda x, start0: lax.dynamic_slice(x, [start0.astype("int32")], [2]), sizes=[2])

# ---- what a user calls ----
for variant, dims, a, b in [("matrix", (2, 3), 0, 1), ("outer", (2, 3, 4), 0, 2), ("same", (2, 3), 1, 1)]:
    move("swap_dims", variant, draw.normal(*dims), lambda x: jnp.swapaxes(x, a, b), a=a, b=b)
    move("move_dim", variant, draw.normal(*dims), lambda x: jnp.moveaxis(x, a, b), a=a, b=b)
move("matrix_transpose", "batch", draw.normal(2, 3, 4), lambda x: jnp.matrix_transpose(x))
move("flatten_from", "1", draw.normal(2, 3, 4), lambda x: x.reshape(2, 12), dim=1)
move("split", "columns", draw.normal(2, 6), lambda x: jnp.split(x, 3, 1), dim=1, parts=3)
move("index", "middle", draw.normal(2, 3, 4), lambda x: x[:, 1], dim=1, index=1)
for diagonal in (-1, 0, 1):
    move("tril", f"{diagonal}", draw.normal(2, 3, 4), lambda x: jnp.tril(x, diagonal), diagonal=diagonal)
    move("triu", f"{diagonal}", draw.normal(4, 3), lambda x: jnp.triu(x, diagonal), diagonal=diagonal)
case("shapes", "eye", "f32", {}, lambda: jnp.eye(3, dtype="float32"), size=3, dtype="f32")
values = {"x0": draw.normal(2, 3), "x1": draw.normal(2, 3)}
for dim in (0, 1, 2):
    case("shapes", "stack", f"{dim}", values, lambda x, y: jnp.stack([x, y], dim), grad="all", dim=dim)
