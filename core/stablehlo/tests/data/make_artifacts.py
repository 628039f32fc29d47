"""Makes the portable artifacts of this directory. Needs JAX 0.10.2:

    python core/stablehlo/tests/data/make_artifacts.py
"""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src.lib import _jax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

# Locations have the name of the file only.
jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
jax.config.update("jax_include_full_tracebacks_in_locations", False)
jax.config.update("jax_enable_x64", True)


def array(*shape, dtype="float32", sharding=None):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def save(name, function, *arguments, versions=("1.17.0",), platform="cpu"):
    lowered = function.trace(*arguments).lower(lowering_platforms=(platform,))
    module = lowered.compiler_ir("stablehlo")
    for version in versions:
        artifact = _jax.mlir.serialize_portable_artifact(module, version, True)
        path = os.path.join(os.path.dirname(__file__), f"{name}.{version}.mlir.bc")
        with open(path, "wb") as file:
            file.write(artifact)


def training_step(weights, x, y):
    def loss(weights):
        hidden = jnp.tanh(x @ weights[0])
        return ((hidden @ weights[1] - y) ** 2).mean()

    value, gradient = jax.value_and_grad(loss)(weights)
    return value, [w - 0.1 * g for w, g in zip(weights, gradient)]


save(
    "training_step",
    jax.jit(training_step, donate_argnums=0),
    [array(8, 16), array(16, 4)],
    array(32, 8),
    array(32, 4),
    versions=("1.17.0", "1.0.0", "0.9.0"),
)


def control_flow(x, index):
    def body(i, carry):
        return lax.cond(i > index, lambda c: c + x, jnp.sin, carry)

    looped = lax.fori_loop(0, 5, body, x)
    chosen = lax.switch(index, [lambda v: v, jnp.cos, lambda v: v * looped], x)
    return lax.scan(lambda carry, row: (carry + row, carry), chosen[0], looped)


save("control_flow", jax.jit(control_flow), array(4, 4), array(dtype="int32"))


def indexing(x, indices, updates):
    gathered = jnp.take_along_axis(x, indices, 1)
    return gathered, x.at[indices[:, 0]].add(updates), jnp.sort(x, axis=0)


save(
    "gather_scatter",
    jax.jit(indexing),
    array(8, 4),
    array(8, 2, dtype="int32"),
    array(8, 4),
    versions=("1.17.0", "1.1.0"),
)


def convolution(image, kernel):
    def loss(kernel):
        y = lax.conv_general_dilated(
            image, kernel, (2, 1), ((1, 2), (0, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum()

    return jax.grad(loss)(kernel)


save("convolution", jax.jit(convolution), array(2, 8, 8, 3), array(3, 3, 3, 4))

DTYPES = """bool int2 int4 int8 int16 int32 int64 uint2 uint4 uint8 uint16 uint32 uint64
float4_e2m1fn float8_e3m4 float8_e4m3 float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz float8_e5m2
float8_e5m2fnuz float8_e8m0fnu bfloat16 float16 float32 float64 complex64 complex128""".split()


def constants():
    def constant(dtype):
        values = np.array([0.0, 1.0, -1.0] if dtype[0] in "ibfc" else [0.0, 1.0, 3.0])
        return jnp.asarray(values.astype(np.int64).astype(dtype))

    return [constant(dtype) for dtype in DTYPES], jnp.ones(9, "bool"), jnp.arange(9) % 2 == 0


save("constants", jax.jit(constants))
save("custom_call", jax.jit(jnp.linalg.eigh), array(4, 4))

mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def step_of_shard(x, y):
    return lax.psum(x @ y, "y"), lax.ppermute(y, "x", [(i, (i + 1) % 4) for i in range(4)])


save(
    "shard_map",
    jax.jit(
        jax.shard_map(
            step_of_shard,
            mesh=mesh,
            in_specs=(P("x", "y"), P("y", None)),
            out_specs=(P("x", None), P(("x", "y"))),
            check_vma=False,
        )
    ),
    array(8, 4, sharding=NamedSharding(mesh, P("x", "y"))),
    array(4, 6, sharding=NamedSharding(mesh, P("y"))),
)


def constrained(x):
    return lax.with_sharding_constraint(x * 2, NamedSharding(mesh, P(None, ("x", "y"))))


save("sharded", jax.jit(constrained), array(8, 8, sharding=NamedSharding(mesh, P("x"))))


# Not a portable artifact: bytecode of the dialects `func` and `stablehlo`.
native = jax.jit(lambda x: x + 1).lower(array(2)).compiler_ir("stablehlo")
with open(os.path.join(os.path.dirname(__file__), "native.mlir.bc"), "wb") as file:
    native.operation.write_bytecode(file)
