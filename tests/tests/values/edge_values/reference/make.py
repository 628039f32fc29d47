#!/usr/bin/env python3
"""Writes `golden.safetensors`: inputs at the edges of every element type, and what each row of the campaign should give.

    python3 -m venv V && V/bin/pip install numpy==2.4.6 scipy==1.17.1 ml_dtypes==0.6.0 safetensors==0.8.0 mpmath==1.4.1
    V/bin/python make.py

Floats are computed in 80 bits by NumPy, or with mpmath, and rounded once to the type of the result; integers exactly. A gradient is that
of `sum(first output * cotangent)`, whose element `i` is `((37 i) % 101 + 1) / 64`. A second set of values, `flushed`, is of inputs
whose subnormals are zeros: what an executor gives that runs with these processor modes.
"""
import pathlib, sys

import numpy as np

import values
from values import ALL, FLOATS, FORMS, NUMPY, SIZED, round_to

HERE = pathlib.Path(__file__).parent
ROWS = []
# The element type of the row that is computed: some have intermediate results of a type's range.
CURRENT = [None]
L = np.longdouble


def row(name, form, dtypes, forward, *gradient, exact=False, result=None, sizes=None):
    """`forward` and `gradient` take the inputs, floats in 80 bits (in f64 if `exact`, for which one rounding is the last), and return an
    array or several. `gradient` has a function for each differentiable input, of the inputs and the cotangent. Floats are rounded to
    the type of the inputs, or by `result(dtype)`."""
    ROWS.append((name, form, dtypes, forward, gradient, exact, result or (lambda dtype: dtype), sizes))


def wide(dtype):
    """The type of losses, optimizer steps and sums."""
    return "f64" if dtype == "f64" else "f32"


def cotangent(shape):
    return ((np.arange(np.prod(shape, dtype=int)) * 37 % 101 + 1) / 64).reshape(shape).astype(L)


def widened(array, exact):
    return array.astype(np.float64 if exact else L) if array.dtype.type in [NUMPY[dtype] for dtype in FLOATS] else array


class Final:
    """A result that has its type already."""

    def __init__(self, array):
        self.array = array


def narrowed(result, dtype):
    if isinstance(result, Final):
        return result.array
    result = np.asarray(result)
    if result.dtype in (np.float64, np.longdouble):
        return round_to(result, dtype)
    return result


def compute(forward, gradient, inputs, dtype, exact, result):
    wides = [widened(array, exact) for array in inputs]
    CURRENT[0] = dtype
    outputs = forward(*wides)
    outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    computed = {f"out{index}": narrowed(output, result(dtype)) for index, output in enumerate(outputs)}
    wides = [widened(array, False) for array in inputs]
    given = cotangent(np.shape(outputs[0].array if isinstance(outputs[0], Final) else outputs[0]))
    for index, (each, array) in enumerate(zip(gradient, inputs)):
        kind = values.name_of(array)
        if each and kind in FLOATS:
            computed[f"grad{index}"] = narrowed(each(*wides, given), kind)
    return computed


def main():
    import activations, constants, contractions, cubes, elementwise, indexing, linalg, losses, reductions, shapes  # noqa: F401

    from safetensors.numpy import save_file

    stored = {f"in/cubes/{dtype}/8/0": values.cubes(dtype, 8)[0] for dtype in ALL}
    np.seterr(all="ignore")
    for name, form, dtypes, forward, gradient, exact, result, only in ROWS:
        for dtype in dtypes:
            sized, sizes = SIZED.get(form, (None, [None]))
            for size in sizes if only is None else only:
                inputs = sized(dtype, size) if sized else FORMS[form](dtype)
                place = f"{form}/{dtype}" if size is None else f"{form}/{dtype}/{size}"
                stored |= {f"in/{place}/{index}": array for index, array in enumerate(inputs)}
                arguments = (forward, gradient)
                computed = compute(*arguments, inputs, dtype, exact, result)
                again = compute(*arguments, [values.flushed(array) for array in inputs], dtype, exact, result)
                for key, array in computed.items():
                    stored[f"{name}/{place}/{key}"] = array
                    if array.tobytes() != again[key].tobytes():
                        stored[f"{name}/{place}/{key}/flushed"] = again[key]
    stored = {key: np.ascontiguousarray(array) if array.ndim else array for key, array in stored.items()}
    save_file(stored, HERE / "golden.safetensors", metadata={"written_by": f"make.py, NumPy {np.__version__}"})
    (HERE / "golden.safetensors").chmod(0o644)
    print(f"{len(ROWS)} rows, {sum('/out' in key for key in stored)} results, {(HERE / 'golden.safetensors').stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    sys.modules["make"] = sys.modules[__name__]
    main()
