"""Writes golden.json beside it: values of the functions of the dialect `chlo`.

    pip install mpmath==1.4.1 numpy==2.4.6 scipy==1.17.1
    python golden.py

Inputs are numbers of f64; those that are also numbers of f32, f16 and bf16 are tested in these types.
Values are those of mpmath with 60 digits, rounded to f64; at poles, infinities and where a function
has no value they are those of the C standard or of SciPy, written out below. Complex values are
NumPy's, which follow the C standard (Annex G), compared with mpmath where both parts are finite.
"""

import cmath
import json
import math
import pathlib

import mpmath as mp
import numpy as np
import scipy.special as sp

mp.mp.dps = 60
inf, nan = math.inf, math.nan
rng = np.random.default_rng(0)

TINY = [5e-324, 2.0**-1040, 2.0**-1022, 1e-300, 2.0**-149, 2.0**-126, 1e-30, 2.0**-24, 2.0**-14]
SMALL = [1e-3, 0.1, 0.25, 0.4999, 0.5, 0.75, 0.9, 0.99, 1 - 2.0**-8, 1 - 2.0**-24, 1 - 2.0**-53]
MIDDLE = [1.0, 1 + 2.0**-52, 1 + 2.0**-23, 1.25, 1.4616, 1.5, 1.7, 1.75, 2.0, 2.25, 2.5, 2.999,
          3.0, 3.75, 4.5, 5.5, 6.5, 7.5, 7.999, 8.0, 8.25, 9.75, 10.0, 12.5, 19.5, 20.0, 20.5, 26.5,
          30.5, 50.0, 88.5, 89.25, 90.0, 100.5, 171.5]
HUGE = [710.0, 710.4, 711.0, 1e4, 60000.0, 1e9, 2e9, 1e18, 3e38, 1e300, 1.7e308]
RANDOM = [float(np.float32(x)) for x in np.concatenate([rng.uniform(0, 1, 10), rng.uniform(0, 12, 10)])]
POSITIVE = TINY + SMALL + MIDDLE + HUGE + RANDOM
ALL = [0.0, -0.0, inf, -inf, nan] + POSITIVE + [-x for x in POSITIVE]


def as_f32(values):
    """The values and their neighbours in f32, so that each has one that is a number of f32."""
    with np.errstate(over="ignore"):
        near = [float(np.float32(x)) for x in values]
    return list(dict.fromkeys(map(repr, values + near)))


def real(f, special=lambda x: None):
    """The value of `f` in f64; `special` has what mpmath does not."""
    def value(x):
        found = special(x)
        if found is not None:
            return found
        if math.isnan(x):
            return nan
        y = f(mp.mpf(x))
        return nan if isinstance(y, mp.mpc) else float(y)
    return value


def odd(limit):
    return lambda x: math.copysign(limit, x) if math.isinf(x) else x if x == 0 else None


def is_pole(x):
    return x <= 0 and x == math.floor(x)


def lgamma(x):
    if math.isinf(x) or is_pole(x):
        return inf
    return None


def digamma(x):
    if x == 0:
        return math.copysign(inf, -x)
    if x == -inf or is_pole(x):
        return nan
    return inf if x == inf else None


def log_gamma(x):
    return mp.re(mp.loggamma(x)) if x > 0 else mp.log(abs(mp.pi / (mp.sin(mp.pi * x) * x))) - mp.re(
        mp.loggamma(-x))


def psi(x):
    if x > 0:
        return mp.digamma(x)
    return mp.digamma(1 - x) - mp.pi / mp.tan(mp.pi * (x - mp.nint(x)))


def inverse_error(x):
    if abs(x) > 1:
        return nan
    if abs(x) == 1:
        return x * inf
    if x == 0:
        return x
    with mp.workdps(400 if abs(x) < 1e-100 else 60):
        return None if abs(x) > 1e-8 else float(mp.sqrt(mp.pi) / 2 * (mp.mpf(x) + mp.pi / 12 * mp.mpf(x)**3))


def bessel(x):
    if math.isinf(x):
        return math.copysign(0.0, x)
    if x == 0:
        return x
    if abs(x) > 1e3:
        y = 1 / mp.mpf(abs(x))
        series = 1 - 3 * y / 8 - 15 * y**2 / 128 - 315 * y**3 / 3072 - 14175 * y**4 / 98304
        return math.copysign(float(series / mp.sqrt(2 * mp.pi / y)), x)
    return None


def limits(low, high):
    return lambda x: low if x == -inf else high if x == inf else x if x == 0 and low == -high else None


def hyperbolic(limit):
    def special(x):
        if abs(x) > 1e4:
            return limit(x)
        return x if x == 0 and limit(-1.0) < 0 else None
    return special


def zero(x):
    return x if x == 0 else None


def tangent(x):
    return nan if math.isinf(x) else x if x == 0 else None


def complement(x):
    if math.isinf(x):
        return 0.0 if x > 0 else 2.0
    return 0.0 if x > 1e4 else 2.0 if x < -1e4 else None


UNARY = {
    "acos": real(mp.acos, lambda x: nan if abs(x) > 1 else None),
    "acosh": real(mp.acosh, lambda x: nan if x < 1 else inf if x == inf else None),
    "asin": real(mp.asin, lambda x: nan if abs(x) > 1 else zero(x)),
    "asinh": real(mp.asinh, odd(inf)),
    "atan": real(mp.atan, zero),
    "atanh": real(mp.atanh, lambda x: nan if abs(x) > 1 else x * inf if abs(x) == 1 else zero(x)),
    "bessel_i1e": real(lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), bessel),
    "cosh": real(mp.cosh, hyperbolic(lambda x: inf)),
    "digamma": real(psi, digamma),
    "erf": real(mp.erf, odd(1.0)),
    "erfc": real(mp.erfc, complement),
    "erf_inv": real(mp.erfinv, inverse_error),
    "lgamma": real(log_gamma, lgamma),
    "sinh": real(mp.sinh, hyperbolic(lambda x: x * inf)),
    "square": real(lambda x: x * x),
    "tan": real(mp.tan, tangent),
}


def hurwitz(x, q):
    if math.isnan(x) or math.isnan(q) or x < 1 or q < 0:
        return nan
    if x == 1 or q == 0:
        return inf
    with mp.workdps(400):  # Digits of mpmath's zeta are behind the point.
        return float(mp.zeta(x, mp.mpf(q)))


def poly(n, x):
    if n < 0 or n != math.floor(n) or math.isnan(x) or (n > 0 and x < 0):
        return nan
    if n == 0:
        return UNARY["digamma"](x)
    if x == 0:
        return inf if n % 2 else -inf
    return float((-1)**int(n + 1) * mp.factorial(n) * hurwitz(n + 1, x))


SOME = [0.0, 0.125, 0.5, 1.0, 1.5, 2.0, 3.25, 7.5, 10.0, 30.5, 1000.0, -0.5, -3.0, nan]
BINARY = {
    "zeta": (hurwitz, [(x, q) for x in [1.0, 1.0625, 1.5, 2.0, 3.0, 5.5, 12.0, 30.0, 0.5, -2.0, nan]
                       for q in SOME]),
    "polygamma": (poly, [(n, x) for n in [0.0, 1.0, 2.0, 3.0, 6.0, 10.0, 0.5, -1.0] for x in SOME]),
}

NUMPY = {"acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
         "atan": np.arctan, "atanh": np.arctanh, "cosh": np.cosh, "sinh": np.sinh}
EXACT = {name: getattr(mp, name) for name in NUMPY}


def complex_cases():
    parts = [0.0, -0.0, 1e-10, -0.25, 0.5, 1.0, -1.0, 1.5, -3.0, 12.0, 1e5, -1e12, 1e20, inf, -inf]
    grid = [complex(x, y) for x in parts for y in parts]
    grid += [complex(x, y) for x, y in rng.uniform(-3, 3, (20, 2)).astype(np.float32).tolist()]
    cases = {}
    with np.errstate(all="ignore"):
        for name, function in NUMPY.items():
            rows = []
            for z in grid:
                if name in ("cosh", "sinh") and abs(z.imag) > 100 and math.isfinite(z.real):
                    continue  # The sine of a large number differs in its last bits.
                value = complex(function(np.complex128(z)))
                if z.real and z.imag and cmath.isfinite(z) and cmath.isfinite(value):
                    exact = complex(EXACT[name](mp.mpc(z)))
                    if abs(value - exact) > 1e-14 * abs(exact):
                        raise SystemExit(f"{name}({z}) is {exact}, NumPy has {value}")
                rows.append([repr(part) for part in (z.real, z.imag, value.real, value.imag)])
            cases[name] = rows
    return cases


def check(name, scipy):
    """Compares values with SciPy's, coarsely."""
    for x in map(float, as_f32(ALL)):
        ours, theirs = UNARY[name](x), float(scipy(x))
        same = ours == theirs or (math.isnan(ours) and math.isnan(theirs))
        if not same and not abs(ours - theirs) <= 1e-9 * max(abs(ours), 1e-2):
            print(f"{name}({x!r}) is {ours!r}, SciPy has {theirs!r}")


def main():
    pairs = {"erfc": sp.erfc, "erf_inv": sp.erfinv, "lgamma": sp.gammaln, "digamma": sp.digamma,
             "bessel_i1e": sp.i1e, "erf": sp.erf}
    for name, scipy in pairs.items():
        check(name, scipy)
    golden = {"unary": {}, "binary": {}, "complex": complex_cases()}
    for name, function in UNARY.items():
        golden["unary"][name] = [[x, repr(function(float(x)))] for x in as_f32(ALL)]
    for name, (function, cases) in BINARY.items():
        golden["binary"][name] = [[repr(x), repr(y), repr(function(x, y))] for x, y in cases]
    # A line has all values of a function.
    text = json.dumps(golden).replace("]], ", "]],\n").replace('": {', '": {\n')
    pathlib.Path(__file__).with_name("golden.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
