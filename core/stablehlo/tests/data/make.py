"""Writes the programs of this folder: `python make.py` (jax 0.10.2).

`python make.py compare DIR` parses each `DIR/*.mlir` and the text that halite printed for it,
`DIR/*.printed`, and compares them as portable artifacts, in which defaults are explicit.
`cargo run -p halite-stablehlo --example reprint -- DIR/*.mlir` writes the latter.
"""

import glob
import os
import re
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from jax._src.interpreters.mlir import make_ir_context
from jaxlib import _jax
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

FOLDER = os.path.dirname(os.path.abspath(__file__))


def portable(text):
    """The module after it was written as a portable artifact: CHLO lowered, defaults left out."""
    with make_ir_context() as context:
        module = ir.Module.parse(text)
        version = stablehlo.get_current_version()
        artifact = _jax.mlir.serialize_portable_artifact(module, version, True)
        return stablehlo.deserialize_portable_artifact(context, artifact)


def ones(*dims):
    return jnp.ones(dims, jnp.float32)


def write(name, function, *arguments, platform="cpu", **options):
    lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=(platform,))
    text = lowered.as_text(**options).replace(os.path.abspath(__file__), "make.py")
    with open(f"{FOLDER}/{name}.mlir", "w") as file:
        file.write(text)


def write_portable(name, function, *arguments):
    text = str(portable(jax.jit(function).lower(*arguments).as_text()))
    with open(f"{FOLDER}/{name}.mlir", "w") as file:
        file.write(text)


def mlp_step(params, x, y):
    def loss(params):
        hidden = jnp.tanh(x @ params[0] + params[1])
        return jnp.mean((hidden @ params[2] - y) ** 2)

    value, gradient = jax.value_and_grad(loss)(params)
    return value, [p - 0.1 * g for p, g in zip(params, gradient)]


def pooled(kernel, x):
    dims = ("NHWC", "HWIO", "NHWC")
    options = dict(rhs_dilation=(1, 2), dimension_numbers=dims)
    y = lax.conv_general_dilated(x, kernel, (2, 1), "SAME", **options)
    return lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum()


def control(i, x):
    x = lax.switch(i, [jnp.sin, lambda x: x * i], x)
    return lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 1, c[1] * x), (i, x))


def narrow(x):
    results = [x.astype(dtype) for dtype in ("int4", "uint2", "float8_e5m2", "bfloat16", "bool")]
    for dtype in ("float8_e4m3fn", "float8_e8m0fnu", "float4_e2m1fn", "float16", "float8_e3m4"):
        results.append(jnp.array([1, 2, -0.5, 448, 1e9, 3e-3], dtype))
    results.append(jnp.array([1, 2, -3, 7], jnp.int4))
    results.append(jnp.array([True, False, True]))
    results.append(jnp.array([1 + 2j, 3 - 4j]))
    results.append(jnp.array([np.inf, np.nan, -0.0, 1e-45, 1.1], jnp.float32))
    results.append(jnp.array(np.arange(120), jnp.uint8))
    results.append(jnp.array(np.arange(120) % 3 == 0))
    return results


def sharded(mesh, x, w):
    def shard(x, w):
        y = lax.psum(x @ w, "y")
        ring = [(i, (i + 1) % 4) for i in range(4)]
        z = lax.all_gather(y, "x").sum(0) + lax.ppermute(y, "x", ring)
        v = lax.psum_scatter(w, "x", tiled=True)
        return z, v, lax.all_to_all(w, "x", 0, 1, tiled=True) * lax.axis_index("x")

    inputs, outputs = (P("x", "y"), P("y", None)), (P("x"), P(("x", "y")), P("x", None))
    options = dict(mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
    parts = jax.shard_map(shard, **options)(x, w)
    return lax.with_sharding_constraint(parts[0], NamedSharding(mesh, P(None, ("x", "y"))))


def custom(x):
    types = jax.ShapeDtypeStruct(x.shape, x.dtype)
    call = jax.ffi.ffi_call("target", types, input_output_aliases={0: 0}, has_side_effect=True)
    return call(x, a=np.int32(1), b="s\n\"é", c=np.float32(2.0))


def make():
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    place = lambda *spec: NamedSharding(mesh, P(*spec))
    index = jnp.array([1, 2, 3])
    write("mlp_step", mlp_step, [ones(8, 6), ones(6), ones(6, 4)], ones(2, 8), ones(2, 4))
    write("conv_gradient", jax.grad(pooled, argnums=(0, 1)), ones(3, 3, 2, 4), ones(2, 8, 8, 2))
    scan = lambda x: lax.scan(lambda c, a: (c * a, c), x[0], x)
    write("scan", scan, ones(5, 3), debug_info=True)
    write("control", control, 1, ones(3))
    write("sort", lambda x: lax.sort(x, dimension=0), ones(4, 5))
    write("approx_top_k", lambda x: lax.approx_max_k(x, 3), ones(4, 8))
    write_portable("top_k", lambda x: lax.top_k(x, 3), ones(4, 8))
    write("gather_scatter", lambda x, i: (x[i], x.at[i].add(1.0)), ones(6, 5), index)
    write("random_bits", lambda k: jax.random.bits(k, (4,)), jax.random.key(0, impl="rbg"))
    write("fft", lambda x: jnp.fft.irfft(jnp.fft.fft(x)), jnp.ones((4, 8), jnp.complex64))
    solve = lambda x: jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(x), x, lower=True)
    write("cholesky", solve, ones(4, 4), platform="tpu")
    write("narrow", narrow, ones(6))
    write("custom_call", custom, ones(3))
    x, w = (jax.device_put(ones(8, 8), place(*spec)) for spec in (("x", "y"), ("y",)))
    write("shard_map", lambda x, w: sharded(mesh, x, w), x, w)


def canonical(text):
    text = portable(text).operation.get_asm(print_generic_op_form=True)
    # What the data model leaves out: visibility, empty lists, descriptions of meshes, rules.
    text = re.sub(r',? ?sym_visibility = "\w+"', "", text)
    text = re.sub(r",? ?(arg|res)_attrs = \[(\{\}(, )?)*\]", "", text)
    text = re.sub(r"(sdy.mesh.*?}>) \{stablehlo.mesh.*?\} : \(\)", r"\1 : ()", text)
    text = re.sub(r", sdy.sharding_rule = #sdy.op_sharding_rule<.*?custom>", "", text)
    return text.replace("<{, ", "<{")


def compare(folder):
    counts = {"equal": 0, "different": 0, "refused": 0}
    for path in sorted(glob.glob(f"{folder}/*.mlir")):
        with open(path) as read, open(f"{path[:-5]}.printed") as printed:
            try:
                pair = canonical(read.read()), canonical(printed.read())
            except ir.MLIRError as error:
                print(f"{path}: {error}")
                counts["refused"] += 1
                continue
        counts["equal" if pair[0] == pair[1] else "different"] += 1
        for left, right in zip(*(text.split("\n") for text in pair)):
            if left != right:
                print(f"{path}\n- {left}\n+ {right}")
                break
    print(counts)


if __name__ == "__main__":
    compare(sys.argv[2]) if sys.argv[1:2] == ["compare"] else make()
