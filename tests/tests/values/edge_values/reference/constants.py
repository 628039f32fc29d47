"""Operations with numbers and with an operand twice."""
import numpy as np

from elementwise import CURRENT, Final, L, conversion, divided, power, remainder, row
from values import ALL, FLOATS, INTEGERS, NUMPY, name_of, round_to


def numbers(x):
    full = lambda value: np.full_like(x, value)
    results = [np.arctan2(x, full(value)) for value in (1, 0, -1)]
    results += [np.power(x, full(value)) for value in (0, 1, 2, 3, 0.5, -0.5, -1, -2)]
    return results + [x / 3, 3 / x, x / full(0), full(0) / x, np.fmod(x, full(2)), np.fmod(full(2), x), x / 4]


row("numbers", "each", FLOATS, numbers, lambda x, c: c / (1 + x * x))


def numbers_integers(x):
    full = lambda value: np.full_like(x, value)
    results = [power(x, full(value)) for value in (0, 1, 2, 3)]
    for value in (3, 1, 4):
        results += [divided(x, full(value)), remainder(x, full(value))]
    return results + [divided(full(5), x), remainder(full(5), x), x * full(8), divided(x, full(0)), remainder(x, full(0))]


row("numbers_integers", "each", INTEGERS, numbers_integers)


def nothing(x):
    """Rounded at each step."""
    dtype = CURRENT[0]
    x = round_to(x, dtype)
    one, zero, two, half = (NUMPY[dtype](value) for value in (1, 0, 2, 0.5))
    results = [x + zero, zero + x, x - zero, x * one, x / one, x, x, x, x * zero, x - x, x / x, zero - x, -x, np.abs(x), x + -zero]
    results += [(x == x).astype(x.dtype), (x != x).astype(x.dtype), (x >= x).astype(x.dtype), (x * two) * half, (x + x) - x]
    return [Final(result) for result in results]


row("nothing", "each", FLOATS, nothing, lambda x, c: c, exact=True)


def nothing_integers(x):
    zero, one = np.zeros_like(x), np.ones_like(x)
    results = [x, x, x, zero, zero, divided(x, x), remainder(x, x), x, x, zero, x, x, zero, x, x, x, -x, one, zero]
    return results


row("nothing_integers", "each", INTEGERS, nothing_integers)


def through(x):
    results = []
    for there in conversion(x):
        array = there.array
        wide = array.astype(np.float64) if name_of(array) in FLOATS else array
        back = conversion(wide)
        results.append(back[ALL.index(CURRENT[0])])
    return results


row("through", "each", ALL, through, exact=True)
