"""Inputs of the campaign: the values at the edges of every element type, and the forms in which rows take them."""
import ml_dtypes, numpy as np

FLOATS = ["f16", "bf16", "f32", "f64"]
SIGNED = ["s8", "s16", "s32", "s64"]
UNSIGNED = ["u8", "u16", "u32", "u64"]
INTEGERS = SIGNED + UNSIGNED
NUMBERS = INTEGERS + FLOATS
ALL = ["bool"] + NUMBERS
NUMPY = {"bool": np.bool_, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
NUMPY |= {f"s{bits}": np.dtype(f"int{bits}").type for bits in (8, 16, 32, 64)}
NUMPY |= {f"u{bits}": np.dtype(f"uint{bits}").type for bits in (8, 16, 32, 64)}
# Sizes of the dimension that a reduction goes over: none, one, two, a prime, one beyond a power of 2.
SIZES = [0, 1, 2, 13, 17]
inf, nan = np.inf, np.nan
NEGATIVE_NAN = np.copysign(nan, -1.0)


def facts(dtype):
    info = ml_dtypes.finfo(NUMPY[dtype])
    return {key: np.float64(getattr(info, key)) for key in ("max", "tiny", "smallest_subnormal", "eps")}


def floats(dtype):
    """Every value that a rule for floats may treat in its own way."""
    of = facts(dtype)
    most, least, small, eps = of["max"], of["tiny"], of["smallest_subnormal"], of["eps"]
    both = [0.0, 1.0, 0.5, 1.5, 2.5, 3.7, 0.1, 10.0, 50.0, 100.0, 300.0, 3.141592653589793, most, least, small, least - small, eps, inf]
    both += [1 + eps, 1 - eps / 2, 0.5 - eps / 4, 1 / eps, 0.5 / eps - 0.5, min(1e4, most), np.sqrt(most) * 1.5, np.sqrt(least) / 2]
    return [sign * value for value in both for sign in (1.0, -1.0)] + [nan, NEGATIVE_NAN]


def float_pairs(dtype):
    of = facts(dtype)
    both = [0.0, 1.0, 0.5, 3.0, of["max"], of["smallest_subnormal"], inf]
    return [sign * value for value in both for sign in (1.0, -1.0)] + [2.0, -2.5, 100.0, 1 / 3, of["tiny"], of["eps"], nan, NEGATIVE_NAN]


def integers(dtype):
    info = np.iinfo(NUMPY[dtype])
    values = [0, 1, 2, 3, 5, 7, 100, info.bits - 1, info.bits, info.max, info.max - 1, info.max // 2, info.max // 2 + 1, info.min, info.min + 1]
    values += [-1, -2, -7] if info.min else []
    # What wraps to a class or to an index if it is narrowed.
    values += [2**wrap + 1 for wrap in (8, 16, 32) if 2**wrap + 1 < info.max]
    return values


def as_array(values, dtype):
    if dtype in FLOATS:
        return round_to(np.array(values, np.float64), dtype)
    return np.array(values, NUMPY[dtype])


def round_to(values, dtype):
    """Rounds once, to nearest even. A NaN keeps its sign."""
    with np.errstate(all="ignore"):
        if dtype != "bf16":
            rounded = values.astype(NUMPY[dtype])
        else:
            # To odd first, so that the second rounding, to even, does not depend on the first.
            narrow = values.astype(np.float32)
            bits = narrow.view(np.uint32)
            toward = np.nextafter(narrow, np.where(values > narrow, inf, -inf).astype(np.float32))
            odd = np.isfinite(narrow) & (narrow != values) & (bits % 2 == 0)
            narrow = np.where(odd, toward, narrow)
            rounded = narrow.astype(NUMPY["bf16"])
    return np.where(np.isnan(values), np.copysign(NUMPY[dtype](nan), np.where(np.signbit(values), -1, 1).astype(NUMPY[dtype])), rounded)


def each(dtype):
    if dtype == "bool":
        return [np.array([False, True])]
    return [as_array(floats(dtype) if dtype in FLOATS else integers(dtype), dtype)]


def pairs(dtype):
    if dtype == "bool":
        values = np.array([False, True])
    else:
        values = as_array(float_pairs(dtype) if dtype in FLOATS else integers(dtype)[:15], dtype)
    return [side.ravel() for side in np.meshgrid(values, values)]


def rows(dtype, size):
    """[patterns, size]: each row is one kind of edge."""
    place = np.arange(size)
    if dtype == "bool":
        return [np.array([place >= 0, place < 0, place % 2 == 0, place == size // 2]).reshape(4, size)]
    if dtype in INTEGERS:
        info = np.iinfo(NUMPY[dtype])
        lowest = 5 if info.min else 0
        patterns = [[at * 37 % 11 - lowest for at in place], [info.max] * size, [info.min] * size, [[info.min, info.max][at % 2] for at in place]]
        patterns += [[0] * size, [1] * size, [info.max - int(at) for at in place], [int(at) for at in place]]
        return [np.array(patterns, NUMPY[dtype]).reshape(len(patterns), size)]
    of = facts(dtype)
    mixed = np.array([1.5, -2.5, 0.125, 3.0, -0.75, 2.25, -1.0])[place % 7]
    middle = lambda value: np.where(place == size // 2, value, mixed)
    first = lambda value: np.where(place == 0, value, mixed)
    full = lambda value: np.full(size, value)
    patterns = [mixed, middle(nan), first(NEGATIVE_NAN), middle(inf), middle(-inf), np.where(place == 0, inf, middle(-inf)), full(-0.0)]
    patterns += [np.where(place % 2, 0.0, -0.0), full(of["max"]), (place + 1) * of["smallest_subnormal"], full(-inf), full(1.0)]
    patterns += [np.where(place % 2, 100.0, -100.0), full(NEGATIVE_NAN), np.where(place == 0, 1000.0, mixed), full(of["tiny"])]
    return [as_array(patterns, dtype).reshape(len(patterns), size)]


TABLE = np.array([1.0, 2.0, -3.0, 0.5, -0.25], np.float32)


def indices(dtype):
    """Every integer as an index into five elements, which come second."""
    return [as_array(integers(dtype), dtype), TABLE]


def labels(dtype):
    """Every integer as a class of four, whose logits come second."""
    targets = as_array(integers(dtype), dtype)
    logits = ((np.arange(len(targets) * 4) * 37 % 19 - 9) / 4).reshape(-1, 4).astype(np.float32)
    return [targets, logits]


def cubes(dtype, size):
    """`[4, 6, 8]` of small numbers, whose sums and products are exact."""
    at = np.arange(4 * 6 * size)
    numbers = (7919 * at + 31 * at * at) % 23
    if dtype == "bool":
        numbers = numbers % 2
    elif dtype in FLOATS:
        numbers = (numbers - 11) / 4
    elif dtype in SIGNED:
        numbers = numbers - 11
    return [as_array(numbers, dtype).reshape(4, 6, size)]


SIZED = {"rows": (rows, SIZES), "cubes": (cubes, [8])}
FORMS = {"each": each, "pairs": pairs, "indices": indices, "labels": labels}


def name_of(array):
    return next(name for name, kind in NUMPY.items() if array.dtype == kind)


def flushed(array):
    """Subnormals as zeros of their sign, where the processor computes in this type or wider."""
    dtype = name_of(array)
    if dtype not in ("bf16", "f32", "f64"):
        return array
    return np.where(np.abs(array) < NUMPY[dtype](facts(dtype)["tiny"]), np.copysign(NUMPY[dtype](0), array), array)
