"""Runs an artifact that halite exported: `run_exported.py ARTIFACT ARGUMENTS RESULTS`.

ARGUMENTS is a safetensors file with the arguments by path (`0.out.weight`); RESULTS is written, with
the results by number.
"""

import sys

import jax
import jax.export
import numpy as np
from safetensors.numpy import load_file, save_file

artifact, arguments, results = sys.argv[1:]
with open(artifact, "rb") as file:
    exported = jax.export.deserialize(bytearray(file.read()))

tensors = load_file(arguments)
template = jax.tree.unflatten(exported.in_tree, range(len(exported.in_avals)))


def name(path):
    """`[0][0]['out']['weight']`, of the pair of positional and named arguments, as `0.out.weight`."""
    return ".".join(str(getattr(key, "key", getattr(key, "idx", None))) for key in path[1:])


args, kwargs = jax.tree_util.tree_map_with_path(lambda path, _: tensors[name(path)], template)
assert exported.platforms == ("cpu", "cuda", "tpu"), exported.platforms
leaves = jax.tree.leaves(exported.call(*args, **kwargs))
save_file({str(index): np.asarray(leaf) for index, leaf in enumerate(leaves)}, results)
print(exported.fun_name, exported.in_tree, "->", exported.out_tree)
