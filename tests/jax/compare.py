"""Runs cases under JAX on a PJRT plugin and on JAX's own CPU backend, and compares the results.

    python compare.py MODULE LIBRARY PLATFORM DEVICES

Each public function of the module MODULE.py is a case; its results are a tree of arrays. The two
backends run in a process each. Floats may differ by `TOLERANCE` of the module, relative to the
largest absolute value of the array; everything else must be equal.
"""

import importlib
import inspect
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np


def cases(module):
    own = lambda f: inspect.isfunction(f) and f.__module__ == module.__name__
    return {name: f for name, f in inspect.getmembers(module, own) if not name.startswith("_")}


def evaluate(name, path):
    """Writes the results of all cases of a module to an `.npz` file."""
    import jax

    module = importlib.import_module(name)
    results = {"TOLERANCE": module.TOLERANCE}
    for case, function in cases(module).items():
        for number, leaf in enumerate(jax.tree.leaves(function())):
            if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                leaf = jax.random.key_data(leaf)
            if leaf.dtype == jax.numpy.bfloat16:  # which `.npz` files do not have
                leaf = np.asarray(leaf).astype(np.float32)
            results[f"{case} {number}"] = np.asarray(leaf)
    print(f"{jax.default_backend()}: {len(jax.devices())} devices")
    np.savez(path, **results)


def start(name, path, variables):
    read_by_jax = ("JAX_", "XLA_", "PJRT_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(read_by_jax)}
    command = [sys.executable, __file__, "--evaluate", name, str(path)]
    return subprocess.Popen(command, env=environment | variables, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def difference(ours, theirs, tolerance):
    """What differs between two arrays; `None` if they agree."""
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        return f"{ours.dtype}{ours.shape}, expected {theirs.dtype}{theirs.shape}"
    if not np.issubdtype(ours.dtype, np.inexact):
        return None if np.array_equal(ours, theirs) else f"{ours}, expected {theirs}"
    finite = np.isfinite(theirs)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return f"{ours}, expected {theirs}"
    scale = max(np.abs(theirs[finite]).max(initial=0.0), 1e-30)
    worst = np.abs(ours[finite] - theirs[finite]).max(initial=0.0) / scale
    return None if worst <= tolerance else f"difference of {worst:.1e} of the largest value"


def main(name, library, platform, devices):
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        plugin = directory / "plugin.json"
        options = {"devices": int(devices)} if int(devices) > 1 else {}
        plugin.write_text(json.dumps({"library_path": library, "create_options": options}))
        paths = {"plugin": directory / "plugin.npz", "cpu": directory / "cpu.npz"}
        runs = {
            "plugin": start(name, paths["plugin"], {
                "PJRT_NAMES_AND_LIBRARY_PATHS": f"{platform}:{plugin}", "JAX_PLATFORMS": platform,
            }),
            "cpu": start(name, paths["cpu"], {
                "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": devices,
            }),
        }
        for backend, run in runs.items():
            output = run.communicate()[0]
            if run.returncode:
                raise SystemExit(f"{name} failed on {backend} ({run.returncode}):\n{output}")
            print(output.strip().splitlines()[-1])
        ours, theirs = (dict(np.load(paths[backend])) for backend in runs)
    tolerance = theirs.pop("TOLERANCE")
    assert ours.keys() == theirs.keys() | {"TOLERANCE"}
    differences = {}
    for key in theirs:
        found = difference(ours[key], theirs[key], tolerance)
        if found:
            differences[key] = found
    names = {key.split()[0] for key in theirs}
    failed = {key.split()[0] for key in differences}
    print(f"{name}: {len(names) - len(failed)} of {len(names)} cases, {len(theirs)} arrays: "
          + ", ".join(sorted(names - failed)))
    if differences:
        raise SystemExit("\n".join(f"{key}: {what}" for key, what in differences.items()))


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    if sys.argv[1] == "--evaluate":
        evaluate(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
