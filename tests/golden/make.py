#!/usr/bin/env python3
"""Writes the golden values: what JAX computes, forward and backward, for operations, layers, losses and optimizers. (Elementwise operations
are in `tests/tests/values/edge_values`.)

    python3 -m venv V && V/bin/pip install -r requirements.txt && V/bin/python make.py

A case is one computation on one set of inputs. Its line in `cases.json` says which function of `tests/tests/values/golden` it
is and with which attributes; its tensors are in `GROUP.safetensors` as `NAME/in/X`, `NAME/out/0`, `NAME/grad/X`. A group
is compiled as one program on the Rust side.

Gradients are those of `sum(output * cotangent)` over all float outputs, where `cotangent` is not stored: its element `i`
(row-major) is `((37 * i) % 101 - 50) / 64`, which every float type holds exactly.

Inputs are drawn from a generator seeded by the case's name, so that a new case does not change the others.
"""
import json, pathlib, sys, zlib

import jax, ml_dtypes, numpy as np

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")

HERE = pathlib.Path(__file__).parent
# How far a result may be from the golden one, relative to its size and to the largest of its tensor (at most 1).
TOLERANCE = {"float64": 1e-11, "float32": 4e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
CASES = {}

FLOATS = ["float32", "float64"]
HALVES = ["float16", "bfloat16"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
DTYPES = ["bool", *SIGNED, *UNSIGNED, *HALVES, *FLOATS]
SHORT = {"bool": "bool", "bfloat16": "bf16", **{f"float{n}": f"f{n}" for n in (16, 32, 64)}}
SHORT |= {f"int{n}": f"s{n}" for n in (8, 16, 32, 64)} | {f"uint{n}": f"u{n}" for n in (8, 16, 32, 64)}
inf, nan = np.inf, np.nan


def dtype_of(name):
    return ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)


def case(group, function, variant, inputs, compute, grad=(), tolerance=None, **attributes):
    """Adds a case. `inputs`: names to arrays; `compute(*inputs)` gives one array or several; `grad`: inputs that
    gradients are taken of; `tolerance`: 0 for the same bits; `attributes`: what the Rust function is told beside inputs."""
    name = f"{function}.{variant}" if variant else function
    assert name not in CASES, name
    inputs = {key: np.asarray(value) for key, value in inputs.items()}
    grad = list(inputs) if grad == "all" else grad.split() if isinstance(grad, str) else list(grad)

    def outputs(arguments):
        results = compute(*(arguments[key] for key in inputs))
        return tuple(results) if isinstance(results, (tuple, list)) else (results,)

    def floats(arguments):
        return tuple(result for result in outputs(arguments) if is_float(result))

    @jax.jit
    def run(arguments):
        gradients = ()
        if grad:
            fixed = {key: value for key, value in arguments.items() if key not in grad}
            results, pull = jax.vjp(lambda moving: floats({**fixed, **moving}), {key: arguments[key] for key in grad})
            gradients = pull(tuple(cotangent(result) for result in results))[0]
        return outputs(arguments), gradients

    results, gradients = run({key: jax.numpy.asarray(value) for key, value in inputs.items()})
    tensors = {f"in/{key}": value for key, value in inputs.items()}
    tensors |= {f"out/{index}": np.asarray(value) for index, value in enumerate(results)}
    tensors |= {f"grad/{key}": np.asarray(gradients[key]) for key in grad}
    for key, value in inputs.items():
        assert tensors[f"in/{key}"].dtype == value.dtype, (name, key)
    if tolerance is None:
        dtypes = {str(value.dtype) for key, value in tensors.items() if not key.startswith("in/")}
        tolerance = max((TOLERANCE.get(dtype, 0) for dtype in dtypes), default=0)
    entry = dict(name=name, group=group, function=function, tolerance=tolerance, inputs=list(inputs), outputs=len(results))
    entry |= {"gradients": grad} if grad else {}
    entry |= {"attributes": attributes} if attributes else {}
    CASES[name] = (entry, tensors)


def is_float(array):
    return jax.numpy.issubdtype(array.dtype, jax.numpy.floating)


def cotangent(like):
    steps = np.arange(np.prod(like.shape, dtype=np.int64)) * 37 % 101 - 50
    return jax.numpy.asarray((steps / 64).reshape(like.shape).astype(like.dtype))


class Draw:
    """Random inputs of one case."""

    def __init__(self, seed):
        self.generator = np.random.default_rng(zlib.crc32(seed.encode()))

    def normal(self, *shape, dtype="float32", scale=1.0):
        return (self.generator.standard_normal(shape) * scale).astype(dtype)

    def uniform(self, low, high, *shape, dtype="float32"):
        return self.generator.uniform(low, high, shape).astype(dtype)

    def integers(self, low, high, *shape, dtype="int32"):
        return self.generator.integers(low, high, shape).astype(dtype)

    def distinct(self, *shape, dtype="float32"):
        """No two equal, and no two close: for operations that choose among elements."""
        count = int(np.prod(shape))
        return ((self.generator.permutation(count) - count // 2) / 4 + 0.125).reshape(shape).astype(dtype)


def write(folder):
    from safetensors.numpy import save_file

    groups = {}
    for name, (entry, tensors) in CASES.items():
        stored = groups.setdefault(entry["group"], {})
        stored |= {f"{name}/{key}": np.asarray(value, order="C") for key, value in tensors.items()}
    for old in folder.glob("*.safetensors"):
        old.unlink()
    versions = {module.__name__: module.__version__ for module in (jax, np)}
    for group, tensors in groups.items():
        path = folder / f"{group}.safetensors"
        save_file(tensors, path, metadata={"written_by": f"make.py, JAX {jax.__version__}"})
        path.chmod(0o644)
    lines = ",\n".join("  " + json.dumps(entry) for entry, _ in CASES.values())
    text = '{\n"versions": %s,\n"cases": [\n%s\n]}\n' % (json.dumps(versions), lines)
    (folder / "cases.json").write_text(text)
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors")) + len(text)
    print(f"{len(CASES)} cases in {len(groups)} groups, {size / 1e3:.0f} kB")


if __name__ == "__main__":
    sys.modules["make"] = sys.modules[__name__]  # so that the tables below add to this CASES
    import contractions, control, indexing, linalg, networks, randomness, reductions, shapes, transformers  # noqa: F401

    write(HERE)
