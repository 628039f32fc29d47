"""Reductions, windows, pooling, cumulative operations."""
import jax, numpy as np
from jax import lax
from jax import numpy as jnp

from make import Draw, SHORT, case, dtype_of

draw = Draw("reductions")
inf, nan = np.inf, np.nan

# ---- reduce ----
REDUCE = {"sum": jnp.sum, "product": jnp.prod, "max": jnp.max, "min": jnp.min}
for kind, function in REDUCE.items():
    values = lambda *dims, dtype="float32": draw.distinct(*dims, dtype=dtype) if kind in ("max", "min") else draw.uniform(-2, 2, *dims, dtype=dtype)
    for variant, dims, over in [("all", (3, 4), (0, 1)), ("first", (3, 4), (0,)), ("last", (3, 4), (1,)), ("outer", (2, 3, 4), (0, 2)), ("middle", (2, 3, 4), (1,)), ("one", (3, 1), (1,))]:
        for dtype in ["float32", "float64"] if variant in ("all", "outer") else ["float32"]:
            case("reduce", "reduce", f"{kind}.{variant}.{SHORT[dtype]}", {"x": values(*dims, dtype=dtype)}, lambda x: function(x, over), grad="x", kind=kind, dims=over)
    initial = {"sum": 0, "product": 1, "max": -inf, "min": inf}[kind]
    empty = lambda x: function(x, 0, initial=initial)
    case("reduce", "reduce", f"{kind}.empty", {"x": draw.normal(0, 3)}, empty, kind=kind, dims=[0])
    case("reduce", "reduce", f"{kind}.special", {"x": np.array([[nan, 1], [inf, 2], [-inf, 3], [1, 2]], "float32")}, lambda x: function(x, 1), tolerance=0, kind=kind, dims=[1])
    for dtype in ["int32", "int64", "uint8", "int8", "uint32"]:
        reduced = lambda x: function(x, 0) if kind in ("max", "min") else function(x, 0, dtype=x.dtype)
        case("reduce", "reduce", f"{kind}.{SHORT[dtype]}", {"x": draw.integers(0, 100, 4, 2, dtype=dtype)}, reduced, kind=kind, dims=[0])
    case("reduce", "reduce", f"{kind}.bf16", {"x": draw.integers(-3, 3, 4, 3).astype(dtype_of("bfloat16"))}, lambda x: function(x, 0), kind=kind, dims=[0])
for kind, function in [("and", jnp.all), ("or", jnp.any)]:
    x = np.array([[True, True, False], [True, False, False]])
    case("reduce", "reduce", f"{kind}.bool", {"x": x}, lambda x: function(x, 0), kind=kind, dims=[0])
    case("reduce", "reduce", f"{kind}.bool_all", {"x": x}, lambda x: function(x), kind=kind, dims=[0, 1])
    case("reduce", "reduce", f"{kind}.bool_empty", {"x": np.zeros((2, 0), bool)}, lambda x: function(x, 1), kind=kind, dims=[1])
reduce_bits = lambda x, kind: lax.reduce(x, np.array(-1 if kind == "and" else 0, x.dtype), lax.bitwise_and if kind == "and" else lax.bitwise_or, (0,))
for kind in ("and", "or"):
    case("reduce", "reduce", f"{kind}.s32", {"x": draw.integers(0, 255, 3, 2)}, lambda x: reduce_bits(x, kind), kind=kind, dims=[0])
case("reduce", "reduce", "product.zeros", {"x": np.array([[2, 0, 3], [0, 4, 0], [1, 2, 3]], "float32")}, lambda x: jnp.prod(x, 1), grad="x", kind="product", dims=[1])

# ---- arg-max: the first of equals, NaN wins ----
for name, function, extreme in [("argmax", jnp.argmax, jnp.max), ("argmin", jnp.argmin, jnp.min)]:
    for variant, x, dim in [("rows", draw.distinct(3, 5), 1), ("columns", draw.distinct(3, 5), 0), ("ties", np.array([[1, 3, 3], [2, 2, 2]], "float32"), 1),
                            ("nan", np.array([[1, nan, 3], [nan, nan, 0], [inf, -inf, inf]], "float32"), 1), ("s32", draw.integers(-9, 9, 2, 6), 1),
                            ("f64", draw.distinct(7, dtype="float64"), 0)]:
        case("reduce", name, variant, {"x": x}, lambda x: function(x, dim).astype("int32"), dim=dim)
        both = lambda x: (extreme(x, dim), function(x, dim).astype("int32"))
        grad = "x" if variant in ("rows", "columns", "f64") else ""
        case("reduce", f"{name}_pair", variant, {"x": x}, both, grad=grad, dim=dim)

# ---- statistics ----
for dtype in ["float32", "float64"]:
    short = SHORT[dtype]
    for variant, dims, over in [("all", (3, 4), (0, 1)), ("last", (2, 5), (1,)), ("outer", (2, 3, 4), (0, 2))]:
        x = draw.normal(*dims, dtype=dtype)
        case("statistics", "mean", f"{variant}.{short}", {"x": x}, lambda x: x.mean(over), grad="x", dims=over)
        case("statistics", "var", f"{variant}.{short}", {"x": x}, lambda x: x.var(over), grad="x", dims=over)
        case("statistics", "logsumexp", f"{variant}.{short}", {"x": x * 3}, lambda x: jax.nn.logsumexp(x, over), grad="x", dims=over)
    for variant, dims, dim in [("last", (3, 5), 1), ("first", (3, 5), 0), ("middle", (2, 3, 2), 1)]:
        x = draw.normal(*dims, dtype=dtype, scale=2)
        case("statistics", "softmax", f"{variant}.{short}", {"x": x}, lambda x: jax.nn.softmax(x, dim), grad="x", dim=dim)
        case("statistics", "log_softmax", f"{variant}.{short}", {"x": x}, lambda x: jax.nn.log_softmax(x, dim), grad="x", dim=dim)
large = np.array([[1e4, 1e4 - 1, -1e4], [-3e38, 0, 1], [88, 89, 90]], "float32")
case("statistics", "softmax", "large", {"x": large}, lambda x: jax.nn.softmax(x, 1), grad="x", dim=1)
case("statistics", "log_softmax", "large", {"x": large}, lambda x: jax.nn.log_softmax(x, 1), grad="x", dim=1)
case("statistics", "logsumexp", "large", {"x": large}, lambda x: jax.nn.logsumexp(x, 1), grad="x", dims=[1])
masked = np.array([[0, -inf, 1], [-inf, -inf, 2]], "float32")
case("statistics", "softmax", "masked", {"x": masked}, lambda x: jax.nn.softmax(x, 1), grad="x", dim=1)
case("statistics", "log_softmax", "masked", {"x": masked}, lambda x: jax.nn.log_softmax(x, 1), dim=1)
case("statistics", "logsumexp", "masked", {"x": np.array([[0, -inf], [-inf, -inf], [inf, 0]], "float32")}, lambda x: jax.nn.logsumexp(x, 1), dims=[1])

# ---- reduce_window ----
IDENTITY = {"sum": 0, "product": 1, "max": -inf, "min": inf}
STEP = {"sum": lax.add, "product": lax.mul, "max": lax.max, "min": lax.min}
WINDOWS = [
    # variant, dims, sizes, strides, padding, base dilation, window dilation
    ("plain", (6,), (3,), (1,), ((0, 0),), (1,), (1,)),
    ("pool", (1, 4, 6, 2), (1, 2, 2, 1), (1, 2, 2, 1), ((0, 0),) * 4, (1,) * 4, (1,) * 4),
    ("pool_overlap", (1, 5, 5, 1), (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)), (1,) * 4, (1,) * 4),
    ("leaves_a_rest", (7,), (3,), (3,), ((0, 0),), (1,), (1,)),
    ("padding", (4, 3), (2, 3), (1, 1), ((1, 0), (2, 1)), (1, 1), (1, 1)),
    ("dilated_window", (7, 4), (3, 2), (2, 1), ((0, 1), (1, 1)), (1, 1), (2, 2)),
    ("dilated_base", (4, 3), (2, 2), (1, 2), ((0, 1), (1, 0)), (2, 3), (1, 1)),
    ("everything", (5, 4), (2, 2), (2, 1), ((1, 2), (0, 3)), (2, 2), (3, 2)),
    ("large", (9, 8), (6, 5), (2, 1), ((1, 2), (0, 1)), (1, 1), (1, 1)),
    ("whole", (3, 2), (3, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
]
for variant, dims, sizes, strides, padding, base, dilation in WINDOWS:
    attributes = dict(sizes=sizes, strides=strides, padding=padding, base_dilations=base, window_dilations=dilation)
    for kind in STEP:
        x = draw.distinct(*dims) if kind in ("max", "min") else draw.uniform(-2, 2, *dims)
        window = lambda x: lax.reduce_window(x, np.array(IDENTITY[kind], x.dtype), STEP[kind], sizes, strides, padding, base, dilation)
        plain = all(size == 1 for size in (*base, *dilation))
        grad = "x" if kind == "sum" or (kind in ("max", "min") and plain) else ""
        case("windows", "reduce_window", f"{kind}.{variant}", {"x": x}, window, grad=grad, kind=kind, **attributes)
        if grad and kind in ("max", "min"):  # the gradient's own gradient, by its source
            source = draw.normal(*jax.eval_shape(window, x).shape)
            pulled = lambda x, source: jax.vjp(window, x)[1](source)[0]
            case("windows", "select_and_scatter", f"{kind}.{variant}", {"x": x, "source": source}, pulled, grad="source", kind=kind, **attributes)
integer_windows = dict(sizes=[2], strides=[1], padding=[(0, 0)], base_dilations=[1], window_dilations=[1])
for kind, identity in [("sum", 0), ("max", np.iinfo("int32").min), ("min", np.iinfo("int32").max)]:
    window = lambda x: lax.reduce_window(x, np.array(identity, x.dtype), STEP[kind], (2,), (1,), "VALID")
    case("windows", "reduce_window", f"{kind}.s32", {"x": draw.integers(-9, 9, 5)}, window, kind=kind, **integer_windows)
case("windows", "reduce_window", "max.f64", {"x": draw.distinct(5, dtype="float64")}, lambda x: lax.reduce_window(x, -inf, lax.max, (2,), (1,), "VALID"), grad="x", kind="max",
     **integer_windows)
case("windows", "reduce_window", "max.nan", {"x": np.array([1, nan, 2, 3, 4], "float32")}, lambda x: lax.reduce_window(x, -inf, lax.max, (2,), (1,), "VALID"), kind="max",
     **integer_windows)
for kind, step, identity in [("and", lax.bitwise_and, True), ("or", lax.bitwise_or, False)]:
    window = lambda x: lax.reduce_window(x, np.array(identity), step, (2,), (1,), "VALID")
    case("windows", "reduce_window", f"{kind}.bool", {"x": np.array([True, True, False, False, True])}, window, kind=kind, **integer_windows)

# ---- cumulative ----
for name, function in [("cumsum", lax.cumsum), ("cumprod", lax.cumprod), ("cummax", lax.cummax), ("cummin", lax.cummin), ("cumlogsumexp", lax.cumlogsumexp)]:
    for variant, dims, dim, reverse in [("vector", (6,), 0, False), ("rows", (2, 5), 1, False), ("columns", (5, 2), 0, False), ("middle", (2, 4, 2), 1, False), ("reverse", (5,), 0, True)]:
        x = draw.distinct(*dims) if name in ("cummax", "cummin") else draw.uniform(0.3, 2, *dims)
        case("cumulative", name, variant, {"x": x}, lambda x: function(x, dim, reverse), grad="x", dim=dim, reverse=reverse)
    if name != "cumlogsumexp":
        case("cumulative", name, "s32", {"x": draw.integers(-4, 5, 3, 4)}, lambda x: function(x, 1), dim=1, reverse=False)
    case("cumulative", name, "f64", {"x": draw.uniform(0.3, 2, 5, dtype="float64")}, lambda x: function(x, 0), grad="x", dim=0, reverse=False)
case("cumulative", "cumprod", "zeros", {"x": np.array([2, 0, 3, 0, 1], "float32")}, lambda x: jnp.cumprod(x), dim=0, reverse=False)

# ---- pooling of `[batch, spatial.., features]`; padding counts as zeros in the mean ----
POOLS = [
    ("tiles", (2, 4, 6, 2), (2, 2), (), "VALID"),
    ("tiles_leave_a_rest", (1, 5, 7, 2), (2, 3), (), "VALID"),
    ("overlap", (1, 5, 5, 2), (3, 3), (2, 2), "VALID"),
    ("same", (1, 5, 6, 1), (3, 3), (2, 2), "SAME"),
    ("explicit", (1, 4, 5, 1), (3, 2), (2, 1), [(1, 1), (0, 1)]),
    ("one_dimension", (2, 7, 3), (3,), (1,), "VALID"),
]
for variant, dims, sizes, strides, padding in POOLS:
    window, steps = (1, *sizes, 1), (1, *(strides or sizes), 1)
    edges = padding if isinstance(padding, str) else [(0, 0), *padding, (0, 0)]
    attributes = dict(window=sizes, strides=strides, padding=padding)
    largest = lambda x: lax.reduce_window(x, -inf, lax.max, window, steps, edges)
    mean = lambda x: lax.reduce_window(x, np.float32(0), lax.add, window, steps, edges) / np.float32(np.prod(sizes))
    case("windows", "max_pool", variant, {"x": draw.distinct(*dims)}, largest, grad="x", **attributes)
    case("windows", "avg_pool", variant, {"x": draw.normal(*dims)}, mean, grad="x", **attributes)
