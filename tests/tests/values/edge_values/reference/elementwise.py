"""Elementwise operations of one and two operands."""
import mpmath as mp, numpy as np

from make import CURRENT, Final, L, row
from values import ALL, FLOATS, INTEGERS, NUMBERS, SIGNED, round_to, NUMPY

mp.mp.prec = 160


def precise(function, at_infinity):
    """`function` of mpmath on every finite number; `at_infinity(x)` elsewhere."""

    def one(x):
        if not np.isfinite(x):
            return at_infinity(x)
        # An 80-bit float is the sum of two f64.
        high = float(x)
        result = function(mp.mpf(high) + mp.mpf(float(x - L(high))) if np.isfinite(high) else mp.mpf(str(x)))
        return L(result) if isinstance(result, float) else extended(result)

    def extended(result):
        high = float(result)
        return L(high) + L(float(result - mp.mpf(high))) if np.isfinite(high) and high != 0 else L(high)

    return lambda x: np.array([one(value) for value in np.ravel(x)], L).reshape(np.shape(x))


def signed_zero(function):
    return lambda x: np.where(x == 0, x, function(x))


erf = signed_zero(precise(mp.erf, lambda x: np.sign(x)))
# Beyond 200 it is below the least number of 80 bits.
erfc = precise(lambda x: mp.erfc(x) if abs(x) < 200 else mp.mpf(0 if x > 0 else 2), lambda x: 1 - np.sign(x))
PI = L("3.14159265358979323846264338327950288")
TWO_BY_ROOT_PI = 2 / np.sqrt(PI)


def erf_inv_one(x):
    return mp.erfinv(x) if abs(x) < 1 else (mp.sign(x) * mp.inf if abs(x) == 1 else mp.nan)


erf_inv = signed_zero(precise(erf_inv_one, lambda x: L(np.nan)))


def sigmoid(x):
    return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def along(derivative):
    return lambda x, c: c * derivative(x)


# ---- one operand: name, function, derivative, whether the result is exact or rounded once ----
zero = lambda x: np.zeros_like(x)
UNARY = [
    ("abs", np.abs, np.sign, True),
    ("cbrt", np.cbrt, lambda x: 1 / (3 * np.cbrt(x) ** 2), False),
    ("ceil", np.ceil, zero, True),
    ("cos", np.cos, lambda x: -np.sin(x), False),
    ("erf", erf, lambda x: TWO_BY_ROOT_PI * np.exp(-x * x), False),
    ("exp", np.exp, np.exp, False),
    ("exp_m1", np.expm1, np.exp, False),
    ("floor", np.floor, zero, True),
    ("log", np.log, lambda x: 1 / x, False),
    ("log_1p", np.log1p, lambda x: 1 / (1 + x), False),
    ("sigmoid", sigmoid, lambda x: sigmoid(x) * sigmoid(-x), False),
    ("round", np.rint, zero, True),
    ("rsqrt", lambda x: 1 / np.sqrt(x), lambda x: -0.5 / (x * np.sqrt(x)), False),
    ("sign", np.sign, zero, True),
    ("sin", np.sin, np.cos, False),
    ("sqrt", np.sqrt, lambda x: 0.5 / np.sqrt(x), True),
    ("tan", np.tan, lambda x: 1 + np.tan(x) ** 2, False),
    ("tanh", np.tanh, lambda x: np.cosh(x) ** -2, False),
    ("neg", np.negative, lambda x: -np.ones_like(x), True),
    ("square", np.square, lambda x: 2 * x, True),
    ("erf_inv", erf_inv, lambda x: np.exp(erf_inv(x) ** 2) / TWO_BY_ROOT_PI, False),
    ("round_away", lambda x: np.where(np.abs(x) < 2.0**52, np.copysign(np.floor(np.abs(x)) + (np.abs(x) % 1 >= 0.5), x), x), zero, True),
]
for name, function, derivative, exact in UNARY:
    row(name, "each", FLOATS, function, along(derivative), exact=exact)
row("is_finite", "each", FLOATS, np.isfinite)
row("abs_integers", "each", SIGNED, np.abs)
row("sign_integers", "each", SIGNED, np.sign)
row("neg_integers", "each", INTEGERS, np.negative)
row("square_integers", "each", ["bool"] + INTEGERS, lambda x: x * x)
row("not", "each", ["bool"] + INTEGERS, np.invert)
row("relu", "each", ALL, lambda x: np.maximum(x, x.dtype.type(0)), along(lambda x: x > 0), exact=True)
bits = lambda x: np.dtype(x.dtype).itemsize * 8
as_unsigned = lambda x: [int(value) for value in x.view(f"uint{bits(x)}")]
row("count_leading_zeros", "each", INTEGERS, lambda x: np.array([bits(x) - value.bit_length() for value in as_unsigned(x)], x.dtype))
row("population_count", "each", INTEGERS, lambda x: np.array([value.bit_count() for value in as_unsigned(x)], x.dtype))
row("same", "each", ALL, lambda x: (x, np.zeros_like(x), np.ones_like(x), x), lambda x, c: np.zeros_like(c), exact=True)
row("bitcast", "each", ALL, lambda x: x, exact=True)
row("bits", "each", FLOATS, lambda x: (round_to(x, CURRENT[0]).view(f"i{NUMPY[CURRENT[0]](0).itemsize}"), x), exact=True)


def reduced(exponent, mantissa):
    """IEEE rounding to fewer bits; the exponents that are lost are infinite or zero."""
    bias = 2 ** (exponent - 1) - 1

    def one(x):
        if not np.isfinite(x) or x == 0 or (CURRENT[0], exponent, mantissa) == ("f16", 5, 10) or (CURRENT[0] == "bf16" and exponent == 8):
            return x
        if np.abs(x) < np.ldexp(1.0, -bias):
            return np.copysign(0.0, x)
        _, power = np.frexp(x)
        step = np.ldexp(1.0, int(power) - 1 - mantissa)
        rounded = np.rint(x / step) * step
        if np.abs(rounded) >= np.ldexp(1.0, bias + 1):
            return np.copysign(np.inf, x)
        return np.copysign(0.0, x) if np.abs(rounded) < np.ldexp(1.0, 1 - bias) else rounded

    return np.vectorize(one, otypes=[np.float64])


row("reduce_precision", "each", FLOATS, lambda x: [reduced(*to)(x) for to in ((5, 2), (8, 7), (5, 10), (4, 3))], lambda x, c: reduced(5, 2)(c), exact=True)


def conversion(x):
    """To every type. A float to an integer is cut toward zero and kept in range; NaN is 0."""
    results = []
    for dtype in ALL:
        if x.dtype in (np.float64, np.longdouble):
            if dtype in INTEGERS:
                info = np.iinfo(NUMPY[dtype])
                cut = [0 if np.isnan(v) else info.max if v >= info.max else info.min if v <= info.min else int(v) for v in x]
                results.append(np.array(cut, NUMPY[dtype]))
                continue
            results.append(x != 0 if dtype == "bool" else round_to(x, dtype))
        elif dtype in FLOATS:
            wide = x.astype(L)
            results.append(round_to(x.astype(np.float64) if dtype == "f64" else wide if dtype != "bf16" else wide.astype(np.float64), dtype))
        else:
            results.append(x != 0 if dtype == "bool" else x.astype(NUMPY[dtype]))
    return [Final(result) for result in results]


row("convert", "each", ALL, conversion, exact=True)

# ---- two operands ----
# The slope of the angle of a point at an infinite distance is 0.
far = lambda a, b, slope: np.where((np.isinf(a) | np.isinf(b)) & ~np.isnan(a) & ~np.isnan(b), 0, slope)
BINARY = [
    ("add", np.add, lambda a, b: (1, 1), True),
    ("sub", np.subtract, lambda a, b: (1, -1), True),
    ("mul", np.multiply, lambda a, b: (b, a), True),
    ("div", np.divide, lambda a, b: (1 / b, -a / (b * b)), True),
    ("rem", np.fmod, lambda a, b: (1, -np.rint((a - np.fmod(a, b)) / b)), True),
    # The limits at an exponent of 0 and a base of 0.
    ("pow", np.power, lambda a, b: (np.where(b == 0, 0, b * np.power(a, b - 1)), np.where((a == 0) & (b >= 0), 0, np.log(np.where(a == 0, 0.0, a)) * np.power(a, b))), False),
    ("atan2", np.arctan2, lambda a, b: (far(a, b, b / (a * a + b * b)), far(a, b, -a / (a * a + b * b))), False),
]
for name, function, slopes, exact in BINARY:
    sides = [lambda a, b, c, slopes=slopes, side=side: c * slopes(a, b)[side] for side in (0, 1)]
    row(name, "pairs", FLOATS, function, *sides, exact=exact)


def chosen(wins):
    half = lambda a, b: np.where(wins(a, b), 1, np.where(a == b, 0.5, 0))
    return lambda a, b, c: c * half(a, b), lambda a, b, c: c * half(b, a)


row("maximum", "pairs", FLOATS, np.maximum, *chosen(np.greater), exact=True)
row("minimum", "pairs", FLOATS, np.minimum, *chosen(np.less), exact=True)


def log_add_exp(a, b):
    most = np.maximum(a, b)
    safe = np.where(np.isfinite(most), most, 0)
    return np.where(np.isfinite(most), safe + np.log1p(np.exp(-np.abs(a - b))), np.where((a == np.inf) | (b == np.inf), most, most))


share = lambda a, b: np.where(a == b, 0.5, sigmoid(a - b))
row("log_add_exp", "pairs", FLOATS, log_add_exp, lambda a, b, c: c * share(a, b), lambda a, b, c: c * share(b, a))


def divided(a, b):
    """As StableHLO: by zero it is -1, and the least by -1 is itself."""
    info = np.iinfo(a.dtype)
    def one(x, y):
        x, y = int(x), int(y)
        if y == 0:
            return info.max if info.min == 0 else -1
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        return info.min if quotient > info.max else quotient
    return np.array([one(x, y) for x, y in zip(a, b)], a.dtype)


def remainder(a, b):
    """The sign of the dividend; by zero it is the dividend."""
    def one(x, y):
        x, y = int(x), int(y)
        return x if y == 0 else (abs(x) % abs(y)) * (-1 if x < 0 else 1)
    return np.array([one(x, y) for x, y in zip(a, b)], a.dtype)


def power(a, b):
    """Wraps; a negative exponent gives 0, and of 1 and -1 their power."""
    size = bits(a)
    def one(x, y):
        x, y = int(x), int(y)
        if y < 0:
            return 1 if x == 1 else (1 if y % 2 == 0 else -1) if x == -1 else 0
        value = pow(x, y, 2**size)
        return value - 2**size if a.dtype.kind == "i" and value >= 2 ** (size - 1) else value
    return np.array([one(x, y) for x, y in zip(a, b)], a.dtype)


def shifted(kind):
    def one(x, y, size, signed):
        x, y = int(x), int(y)
        y = y % 2**size  # amounts are read as unsigned
        plain = x % 2**size
        if kind == "left":
            value = (plain << y) % 2**size if y < size else 0
        elif kind == "logical":
            value = plain >> y if y < size else 0
        else:
            negative = plain >> (size - 1)
            whole = plain - 2**size if negative else plain
            value = (whole >> min(y, size - 1)) % 2**size
        return value - 2**size if signed and value >= 2 ** (size - 1) else value
    return lambda a, b: np.array([one(x, y, bits(a), a.dtype.kind == "i") for x, y in zip(a, b)], a.dtype)


for name, function in [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("maximum", np.maximum), ("minimum", np.minimum),
                       ("div", divided), ("rem", remainder), ("pow", power)]:
    row(f"{name}_integers", "pairs", INTEGERS, function)
for name, function in [("left", "left"), ("right_arithmetic", "arithmetic"), ("right_logical", "logical")]:
    row(f"shift_{name}", "pairs", INTEGERS, shifted(function))
for name, function in [("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)]:
    row(name, "pairs", ["bool"] + INTEGERS, function)
for name, function in [("add", np.logical_or), ("mul", np.logical_and), ("maximum", np.logical_or), ("minimum", np.logical_and)]:
    row(f"{name}_bool", "pairs", ["bool"], function)
COMPARE = [("eq", np.equal), ("ne", np.not_equal), ("lt", np.less), ("le", np.less_equal), ("gt", np.greater), ("ge", np.greater_equal)]
for name, function in COMPARE:
    row(name, "pairs", ALL, function)
row("select", "pairs", ALL, lambda a, b: np.where(a < b if a.dtype != bool else ~a & b, a, b),
    lambda a, b, c: c * (a < b), lambda a, b, c: c * ~(a < b), exact=True)


def clamped(a, b):
    if a.dtype in (np.float64, np.longdouble):
        bound = lambda x, low, high: np.where(np.isnan(x), x, np.where(np.isnan(low), low, np.where(np.isnan(high), high, np.minimum(np.maximum(x, low), high))))
        return bound(a, -np.abs(b), np.abs(b)), bound(a, b, b + 1)
    return np.minimum(np.maximum(a, a.dtype.type(2)), a.dtype.type(100)), np.minimum(np.maximum(a, b), b.dtype.type(5))


row("clamp", "pairs", NUMBERS, clamped, lambda a, b, c: c * (np.abs(a) < np.abs(b)), exact=True)
