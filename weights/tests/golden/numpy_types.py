#!/usr/bin/env python3
"""Arrays of all element types that NumPy has and halite reads, in both orders, 0-d and empty.

    python3 -m venv V && V/bin/pip install numpy
    V/bin/python numpy_types.py

Writes `numpy_types.npz`, `numpy_types.json` (dimensions and bytes in row-major order, hexadecimal), and
`numpy_version2.npy`, whose header is of version 2.
"""
import json, pathlib

import numpy

HERE = pathlib.Path(__file__).parent
TYPES = "? i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split()
arrays = {}
for name in TYPES:
    values = (numpy.arange(24) * 37 % 11 - 5).reshape(2, 3, 4)
    values = (values % 2 == 0) if name == "?" else values.astype(name)
    if name.startswith("c"):
        values = values + values[::-1] * numpy.array(0.5j, dtype=name)
    if name.startswith("f"):
        values[0, 0, :3] = [numpy.inf, numpy.nan, -0.0]
    label = numpy.dtype(name).name
    arrays[f"{label} rows"] = values
    arrays[f"{label} columns"] = numpy.asfortranarray(values)
    arrays[f"{label} scalar"] = numpy.array(values[1, 2, 3])
    arrays[f"{label} empty"] = numpy.asfortranarray(values[:, :0])
    arrays[f"{label} every other"] = values[:, ::2]
numpy.savez(HERE / "numpy_types.npz", **arrays)
expected = {name: {"dims": list(a.shape), "hex": a.tobytes("C").hex()} for name, a in arrays.items()}
json.dump(expected, open(HERE / "numpy_types.json", "w"), separators=(",", ":"))
with open(HERE / "numpy_version2.npy", "wb") as file:
    numpy.lib.format.write_array(file, numpy.arange(3, dtype="i2"), version=(2, 0))
