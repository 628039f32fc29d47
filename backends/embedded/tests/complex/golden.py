"""Writes golden.txt beside it: functions of complex numbers at special values.

    pip install numpy==2.4.6 mpmath==1.4.1
    python golden.py

Values are NumPy's, whose functions follow the C standard (Annex G), compared with mpmath where all
parts are finite and not 0; those of products and quotients, in which NumPy does not recover
infinities, are by the standard's own example code (G.5.1). `expm1` and `log1p`, which the standard
does not have, are `exp(z) - 1` and `log(1 + z)`. A line is an operation, and for each case its operands and its value.
"""

import math
import pathlib

import mpmath as mp
import numpy as np

mp.mp.dps = 50
inf, nan = math.inf, math.nan
PARTS = [0.0, -0.0, 1e-20, -1e-9, 0.5, -1.0, 1.5, 3.0, -20.0, 400.0, 1e20, -1e200, inf, -inf, nan]
GRID = [complex(x, y) for x in PARTS for y in PARTS]
SOME = [complex(x, y) for x in [0.0, 0.5, -2.0, inf, nan] for y in [-0.0, 1.5, -inf, nan]]


def expm1(z):
    if not is_finite(z) and z.imag:
        value = complex(np.exp(z))
        return complex(value.real - 1, value.imag)
    return complex(np.expm1(z.real), z.imag) if not z.imag else complex(np.expm1(z))


def log1p(z):
    if not is_finite(z) or z.real < -1:
        return complex(np.log(complex(1 + z.real, z.imag)))
    if not z.imag:
        return complex(np.log1p(z.real), z.imag)
    value = mp.log1p(mp.mpc(z))
    return complex(float(value.real), float(value.imag))


UNARY = {
    "exponential": (np.exp, mp.exp),
    "exponential_minus_one": (expm1, mp.expm1),
    "log": (np.log, mp.log),
    "log_plus_one": (log1p, mp.log1p),
    "sqrt": (np.sqrt, mp.sqrt),
    "tanh": (np.tanh, mp.tanh),
    "tan": (np.tan, mp.tan),
    "sine": (np.sin, mp.sin),
    "cosine": (np.cos, mp.cos),
    "abs": (np.abs, mp.fabs),
}


def is_finite(z):
    return math.isfinite(z.real) and math.isfinite(z.imag)


def unary(name, z):
    """NumPy's value, or that of mpmath where it is exact."""
    theirs, exact = UNARY[name]
    value = complex(theirs(np.complex128(z)))
    if not is_finite(z) or not z.real or not z.imag:
        return value
    value = exact(mp.mpc(z))
    return complex(float(value.real), float(value.imag))


def multiply(z, w):
    """`z w` by `_Cmultd` of the standard."""
    a, b, c, d = z.real, z.imag, w.real, w.imag
    x, y = a * c - b * d, a * d + b * c
    if not (math.isnan(x) and math.isnan(y)):
        return complex(x, y)
    recalc = False
    zero = lambda t: math.copysign(0.0, t) if math.isnan(t) else t
    box = lambda t: math.copysign(1.0 if math.isinf(t) else 0.0, t)
    if math.isinf(a) or math.isinf(b):
        a, b, c, d, recalc = box(a), box(b), zero(c), zero(d), True
    if math.isinf(c) or math.isinf(d):
        c, d, a, b, recalc = box(c), box(d), zero(a), zero(b), True
    if not recalc and any(map(math.isinf, (z.real * w.real, z.imag * w.imag, z.real * w.imag,
                                           z.imag * w.real))):
        a, b, c, d, recalc = zero(a), zero(b), zero(c), zero(d), True
    if recalc:
        return complex(inf * (a * c - b * d), inf * (a * d + b * c))
    return complex(x, y)


def divide(z, w):
    """`z / w` by `_Cdivd` of the standard."""
    a, b, c, d = z.real, z.imag, w.real, w.imag
    scale = 0
    largest = float(np.fmax(abs(c), abs(d)))
    if math.isfinite(largest) and largest > 0:
        scale = math.frexp(largest)[1] - 1
        c, d = math.ldexp(c, -scale), math.ldexp(d, -scale)
    denominator = c * c + d * d
    with np.errstate(all="ignore"):
        quotient = lambda t: float(np.ldexp(np.float64(t) / np.float64(denominator), -scale))
        x, y = quotient(a * c + b * d), quotient(b * c - a * d)
        if not (math.isnan(x) and math.isnan(y)):
            return complex(x, y)
        box = lambda t: math.copysign(1.0 if math.isinf(t) else 0.0, t)
        if denominator == 0.0 and not (math.isnan(a) and math.isnan(b)):
            return complex(math.copysign(inf, c) * a, math.copysign(inf, c) * b)
        if (math.isinf(a) or math.isinf(b)) and math.isfinite(c) and math.isfinite(d):
            a, b = box(a), box(b)
            return complex(inf * (a * c + b * d), inf * (b * c - a * d))
        if math.isinf(largest) and math.isfinite(a) and math.isfinite(b):
            c, d = box(c), box(d)
            return complex(0.0 * (a * c + b * d), 0.0 * (b * c - a * d))
    return complex(x, y)


def line(name, cases):
    parts = [repr(part) for case in cases for number in case for part in (number.real, number.imag)]
    return " ".join([name, *parts])


def main():
    rows = []
    with np.errstate(all="ignore"):
        for name in UNARY:
            rows.append(line(name, [(z, unary(name, z)) for z in GRID]))
        for name, function in {"multiply": multiply, "divide": divide}.items():
            rows.append(line(name, [(z, w, function(z, w)) for z in SOME for w in SOME]))
    pathlib.Path(__file__).with_name("golden.txt").write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
