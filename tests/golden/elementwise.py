"""Unary and binary operations, comparisons, select, clamp, conversions."""
import jax, ml_dtypes, numpy as np
from jax import lax
from jax import numpy as jnp

from make import Draw, case

FLOATS = ["float32", "float64"]
HALVES = ["float16", "bfloat16"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
DTYPES = ["bool", *SIGNED, *UNSIGNED, *HALVES, *FLOATS]
SHORT = {"bool": "bool", "bfloat16": "bf16", **{f"float{n}": f"f{n}" for n in (16, 32, 64)}}
SHORT |= {f"int{n}": f"s{n}" for n in (8, 16, 32, 64)} | {f"uint{n}": f"u{n}" for n in (8, 16, 32, 64)}
inf, nan = np.inf, np.nan

# Everything special about floats: signed zeros, infinities, NaN, halves, and values beyond half precision's range of integers.
CORNERS = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.4999, 7.25, -7.25, 1e-3, -1e-3, 3e4, -3e4, inf, -inf, nan])


def dtype_of(name):
    return ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)


# ---- unary: name, function, domain of the gradient's inputs (None: has no gradient), same bits everywhere? ----
UNARY = [
    ("abs", jnp.abs, (-3, 3), True),
    ("cbrt", lax.cbrt, (0.2, 3), False),
    ("ceil", jnp.ceil, (-3, 3), True),
    ("cos", jnp.cos, (-3, 3), False),
    ("erf", lax.erf, (-2, 2), False),
    ("exp", jnp.exp, (-3, 3), False),
    ("exp_m1", jnp.expm1, (-2, 2), False),
    ("floor", jnp.floor, (-3, 3), True),
    ("is_finite", jnp.isfinite, None, True),
    ("log", jnp.log, (0.1, 4), False),
    ("log_1p", jnp.log1p, (-0.8, 3), False),
    ("sigmoid", jax.nn.sigmoid, (-4, 4), False),
    ("neg", jnp.negative, (-3, 3), True),
    ("round_away", lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), (-3, 3), True),
    ("round", lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), (-3, 3), True),
    ("rsqrt", lax.rsqrt, (0.1, 4), False),
    ("sign", jnp.sign, (-3, 3), True),
    ("sin", jnp.sin, (-3, 3), False),
    ("sqrt", jnp.sqrt, (0.1, 4), False),
    ("tan", jnp.tan, (-1.2, 1.2), False),
    ("tanh", jnp.tanh, (-2, 2), False),
    ("square", jnp.square, (-3, 3), False),
]
for name, function, domain, exact in UNARY:
    for dtype in FLOATS + HALVES:
        corners = CORNERS.astype(dtype_of(dtype))
        if name in ("cos", "sin", "tan"):
            corners = corners[np.abs(np.nan_to_num(corners.astype("float64"), nan=0, posinf=0, neginf=0)) < 100]
        case(f"unary_{SHORT[dtype]}", name, f"{SHORT[dtype]}.corners", {"x": corners}, lambda x: function(x), tolerance=0 if exact else None)
        if domain and dtype not in HALVES:
            x = Draw(f"{name} {dtype}").uniform(*domain, 2, 7, dtype=dtype)
            case(f"unary_{SHORT[dtype]}", name, SHORT[dtype], {"x": x}, lambda x: function(x), grad="x")
        elif domain:
            x = Draw(f"{name} {dtype}").uniform(*domain, 6, dtype=dtype_of(dtype))
            case(f"unary_{SHORT[dtype]}", name, SHORT[dtype], {"x": x}, lambda x: function(x), grad="x", tolerance=4e-2)

for dtype in SIGNED + UNSIGNED:
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([0, 1, 2, 5, 77, most, most - 1, least, least + 1, most // 3], dtype)
    functions = [("neg", jnp.negative), ("not", jnp.bitwise_not), ("count_leading_zeros", lax.clz), ("population_count", lax.population_count)]
    functions += [("abs", jnp.abs), ("sign", jnp.sign)] if dtype in SIGNED else []
    for name, function in functions:
        case("unary_integers", name, SHORT[dtype], {"x": x}, lambda x: function(x))
case("unary_integers", "not", "bool", {"x": np.array([True, False])}, jnp.logical_not)

# ---- binary: name, function, domains of left and right ----
BINARY = [
    ("add", jnp.add, (-2, 2), (-2, 2)),
    ("sub", jnp.subtract, (-2, 2), (-2, 2)),
    ("mul", jnp.multiply, (-2, 2), (-2, 2)),
    ("div", lax.div, (-2, 2), (0.3, 3)),
    ("rem", lax.rem, (-9, 9), (0.7, 3)),
    ("maximum", jnp.maximum, (-2, 2), (-2, 2)),
    ("minimum", jnp.minimum, (-2, 2), (-2, 2)),
    ("pow", jnp.power, (0.2, 3), (-2, 2)),
    ("atan2", jnp.arctan2, (-2, 2), (0.3, 3)),
]
PAIRS = np.array([0.0, -0.0, 1.0, -1.5, 2.0, 3.0, inf, -inf, nan])
for name, function, left, right in BINARY:
    exact = name in ("add", "sub", "mul", "div", "rem", "maximum", "minimum")
    for dtype in FLOATS + HALVES:
        short = SHORT[dtype]
        x, y = (side.ravel().astype(dtype_of(dtype)) for side in np.meshgrid(PAIRS, PAIRS))
        if name == "maximum" or name == "minimum":  # which of two zeros is the larger is left open
            keep = ~((x == 0) & (y == 0))
            x, y = x[keep], y[keep]
        case(f"binary_{short}", name, f"{short}.corners", {"x": x, "y": y}, lambda x, y: function(x, y), tolerance=0 if exact else None)
        draw = Draw(f"{name} {dtype}")
        values = {"x": draw.uniform(*left, 2, 5, dtype=dtype_of(dtype)), "y": draw.uniform(*right, 2, 5, dtype=dtype_of(dtype))}
        case(f"binary_{short}", name, short, values, lambda x, y: function(x, y), grad="all", tolerance=4e-2 if dtype in HALVES else None)

for dtype in SIGNED + UNSIGNED:
    short, bits = SHORT[dtype], np.iinfo(dtype).bits
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([0, 1, 7, 100, most, least, least + 1, most // 2, 13, 3], dtype)
    y = np.array([5, 3, 2, 9, 1, 3, 2, 7, 13, most], dtype)
    for name, function in [("add", jnp.add), ("sub", jnp.subtract), ("mul", jnp.multiply), ("div", lax.div), ("rem", lax.rem),
                           ("maximum", jnp.maximum), ("minimum", jnp.minimum), ("and", jnp.bitwise_and), ("or", jnp.bitwise_or),
                           ("xor", jnp.bitwise_xor)]:
        case("binary_integers", name, short, {"x": x, "y": y}, lambda x, y: function(x, y))
    amounts = np.array([0, 1, 2, 3, bits - 1, bits - 1, 1, bits, bits + 1, 4], dtype)
    for name, function in [("shift_left", lax.shift_left), ("shift_right_arithmetic", lax.shift_right_arithmetic),
                           ("shift_right_logical", lax.shift_right_logical)]:
        case("binary_integers", name, short, {"x": x, "y": amounts}, lambda x, y: function(x, y))
    if bits >= 32:
        small = {"x": np.array([0, 1, 2, 3, 7], dtype), "y": np.array([0, 9, 10, 3, 2], dtype)}
        case("binary_integers", "pow", short, small, jnp.power)
for name, function in [("and", jnp.logical_and), ("or", jnp.logical_or), ("xor", jnp.logical_xor)]:
    bools = {"x": np.array([True, True, False, False]), "y": np.array([True, False, True, False])}
    case("binary_integers", name, "bool", bools, function)

draw = Draw("broadcasting")
for variant, left, right in [("column_row", (3, 1), (1, 4)), ("in_front", (4,), (2, 3, 4)), ("scalar", (), (2, 3)), ("inner", (2, 1, 3), (4, 1)),
                             ("empty", (0, 3), (1, 3)), ("ones", (1, 1), (1,))]:
    values = {"x": draw.normal(*left), "y": draw.uniform(0.5, 2, *right)}
    for name, function in [("add", jnp.add), ("mul", jnp.multiply), ("div", jnp.divide), ("maximum", jnp.maximum)]:
        case("broadcasting", name, f"broadcast_{variant}", values, lambda x, y: function(x, y), grad="all")
case("broadcasting", "numbers", "f32", {"x": draw.normal(2, 3)}, lambda x: (2.0 * x + 1) / 4 - lax.rem(3 - x, jnp.array(0.7, x.dtype)), grad="x")
case("broadcasting", "numbers", "f64", {"x": draw.normal(2, 3, dtype="float64")}, lambda x: (2.0 * x + 1) / 4 - lax.rem(3 - x, jnp.array(0.7, x.dtype)), grad="x")
case("broadcasting", "twice_used", "f32", {"x": draw.uniform(0.5, 2, 4)}, lambda x: x * x + x / (x + 1), grad="x")

# Where the gradient of a maximum is a matter of choice.
ties = {"x": np.array([1, 2, -3, 0], "float32"), "y": np.array([1, 1, -3, 0], "float32")}
case("broadcasting", "maximum", "ties", ties, jnp.maximum, grad="all")
case("broadcasting", "minimum", "ties", ties, jnp.minimum, grad="all")
case("broadcasting", "sign", "zero", {"x": np.array([0.0, -1, 2], "float32")}, jnp.sign, grad="x")

# Powers, where the derivative by the exponent is a limit.
powers = {"x": np.array([0, 0, 2, -2, -3, 1], "float32"), "y": np.array([2, 1, 0, 2, 3, 5], "float32")}
case("broadcasting", "pow", "corner_gradients", powers, jnp.power, grad="x")

# ---- comparisons ----
COMPARE = [("eq", jnp.equal), ("ne", jnp.not_equal), ("lt", jnp.less), ("le", jnp.less_equal), ("gt", jnp.greater), ("ge", jnp.greater_equal)]
for name, function in COMPARE:
    for dtype in DTYPES:
        if dtype == "bool":
            grid = np.array([True, False])
        elif dtype in FLOATS + HALVES:
            grid = PAIRS.astype(dtype_of(dtype))
        else:
            grid = np.array([0, 1, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
        x, y = (side.ravel() for side in np.meshgrid(grid, grid))
        case("compare", name, SHORT[dtype], {"x": x, "y": y}, lambda x, y: function(x, y))

# ---- select and clamp ----
draw = Draw("select")
for dtype in ["float32", "float64", "int32", "bool", "bfloat16"]:
    predicate = draw.integers(0, 2, 3, 4).astype(bool)
    x, y = (draw.integers(-9, 9, 3, 4).astype(dtype_of(dtype)) for _ in range(2))
    grad = "x y" if dtype.startswith("float") else ""
    case("choose", "select", SHORT[dtype], {"p": predicate, "x": x, "y": y}, jnp_where := (lambda p, x, y: jnp.where(p, x, y)), grad=grad)
values = {"p": np.array(True), "x": draw.normal(2, 3), "y": draw.normal(2, 3)}
case("choose", "select", "scalar_predicate", values, jnp_where, grad="x y")
values = {"p": np.array([[True], [False]]), "x": draw.normal(1, 3), "y": draw.normal(2, 1)}
case("choose", "select", "broadcast", values, jnp_where, grad="x y")
values = {"p": np.array([True, False, False]), "x": np.array([nan, nan, 1], "float32"), "y": np.array([1, 2, nan], "float32")}
case("choose", "select", "nan", values, jnp_where, grad="x y")

clamp = lambda low, x, high: lax.clamp(low, x, high)
for dtype in FLOATS:
    values = {"low": draw.uniform(-1, -0.2, 8, dtype=dtype), "x": draw.normal(8, dtype=dtype, scale=2), "high": draw.uniform(0.2, 1, 8, dtype=dtype)}
    case("choose", "clamp", SHORT[dtype], values, clamp, grad="all")
    values = {"low": np.array(-0.5, dtype), "x": draw.normal(8, dtype=dtype), "high": np.array(0.75, dtype)}
    case("choose", "clamp", f"{SHORT[dtype]}.scalars", values, clamp, grad="x")
values = {"low": np.array(-3, "int32"), "x": np.arange(-6, 7, dtype="int32"), "high": np.array(4, "int32")}
case("choose", "clamp", "s32", values, clamp)
values = {"low": np.array(-1, "float32"), "x": np.array([nan, inf, -inf, -0.0], "float32"), "high": np.array(1, "float32")}
case("choose", "clamp", "corners", values, clamp, tolerance=0)

# ---- conversions: every type to every type, by values that the target holds or rounds ----
for dtype in DTYPES:
    if dtype == "bool":
        x = np.array([True, False])
    elif dtype in FLOATS + HALVES:
        x = np.array([0, -0.0, 1, 2.5, 3.7, 100.4, 0.1, 117]).astype(dtype_of(dtype))
    else:
        x = np.array([0, 1, 2, 77, 127], dtype)
    everything = lambda x: [x.astype(dtype_of(to)) for to in DTYPES]
    case("convert", "convert_to_all", SHORT[dtype], {"x": x}, everything, tolerance=0, to=[SHORT[to] for to in DTYPES])
signed = [*SIGNED, *HALVES, *FLOATS]
for dtype in signed:
    x = np.array([-1, -2.5, -3.7, -100.4, -128]).astype(dtype_of(dtype))
    case("convert", "convert_to_all", f"{SHORT[dtype]}.negative", {"x": x}, lambda x: [x.astype(dtype_of(to)) for to in signed], tolerance=0,
         to=[SHORT[to] for to in signed])
floats = [*HALVES, *FLOATS]
for dtype in floats:
    x = np.array([inf, -inf, nan, 1e-7, 65504, 1.00390625, 1.01171875, -3.14159265358979]).astype(dtype_of(dtype))
    case("convert", "convert_to_all", f"{SHORT[dtype]}.floats", {"x": x}, lambda x: [x.astype(dtype_of(to)) for to in floats], tolerance=0,
         to=[SHORT[to] for to in floats])
    case("convert", "convert_to_all", f"{SHORT[dtype]}.gradient", {"x": np.array([1.5, -2, 0.25]).astype(dtype_of(dtype))},
         lambda x: [x.astype(dtype_of(to)) for to in floats], grad="x", to=[SHORT[to] for to in floats])
case("convert", "convert_to_all", "f64.overflow", {"x": np.array([1e300, -1e300, 1e-300, 7e4])}, lambda x: [x.astype("float32"), x.astype("float16")],
     tolerance=0, to=["f32", "f16"])
case("convert", "convert_to_all", "wrapping", {"x": np.array([300, -1, 65537, -129, 255], "int32")},
     lambda x: [x.astype(to) for to in SIGNED + UNSIGNED], to=[SHORT[to] for to in SIGNED + UNSIGNED])
case("convert", "convert_to_all", "large", {"x": np.array([2**53 + 1, 2**63 - 1, 2**24 + 1, -(2**62) - 1], "int64")},
     lambda x: [x.astype(to) for to in FLOATS], tolerance=0, to=[SHORT[to] for to in FLOATS])

for left, right in [("float32", "uint32"), ("float32", "int32"), ("float64", "uint64"), ("float64", "int64"), ("bfloat16", "uint16"),
                    ("float16", "int16"), ("int8", "uint8"), ("int32", "uint32")]:
    x = (CORNERS[:-1] if left not in ("int8", "int32") else np.arange(-4, 4)).astype(dtype_of(left))
    case("convert", "bitcast", f"{SHORT[left]}_{SHORT[right]}", {"x": x}, lambda x: lax.bitcast_convert_type(x, dtype_of(right)), to=SHORT[right])
    x = np.asarray(x).view(dtype_of(right))
    case("convert", "bitcast", f"{SHORT[right]}_{SHORT[left]}", {"x": x}, lambda x: lax.bitcast_convert_type(x, dtype_of(left)), tolerance=0,
         to=SHORT[left])

for exponent, mantissa in [(8, 7), (5, 10), (5, 2), (4, 3), (8, 23)]:
    x = np.array([0, -0.0, 1, 1.1, -3.14159, 1000.7, 1e5, 70000, -65520, 1e-6, inf, -inf, nan], "float32")
    case("convert", "reduce_precision", f"e{exponent}m{mantissa}", {"x": x}, lambda x: lax.reduce_precision(x, exponent, mantissa), tolerance=0,
         exponent=exponent, mantissa=mantissa)
case("convert", "reduce_precision", "gradient", {"x": draw.normal(6)}, lambda x: lax.reduce_precision(x, 8, 7), grad="x", exponent=8, mantissa=7)

# ---- made of several operations ----
for dtype in FLOATS:
    case(f"unary_{SHORT[dtype]}", "erf_inv", SHORT[dtype], {"x": draw.uniform(-0.999, 0.999, 24, dtype=dtype)}, lambda x: lax.erf_inv(x), grad="x", tolerance=2e-5 if dtype == "float32" else 1e-9)
    case(f"unary_{SHORT[dtype]}", "erf_inv", f"{SHORT[dtype]}.corners", {"x": np.array([0, 1, -1, 0.5, nan, 2], dtype)}, lambda x: lax.erf_inv(x))
    values = {"x": draw.normal(5, dtype=dtype, scale=3), "y": draw.normal(5, dtype=dtype, scale=3)}
    case(f"binary_{SHORT[dtype]}", "log_add_exp", SHORT[dtype], values, jnp.logaddexp, grad="all")
values = {"x": np.array([-inf, -inf, 1, 900], "float32"), "y": np.array([-inf, 0, -inf, 901], "float32")}
case("binary_f32", "log_add_exp", "infinities", values, jnp.logaddexp)
