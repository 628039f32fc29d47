"""Losses and gradients of a training step in parts, by JAX's shard_map: run with jax[cpu] installed, writes shard_map.json."""

import json
import os
import pathlib

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P

jax.config.update("jax_enable_x64", True)
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))


def waves(dims, seed):
    """The same in Rust: `waves` in tests/tests/values/shard_map/golden.rs."""
    return jnp.sin(jnp.arange(np.prod(dims), dtype=jnp.float64) * 0.7 + seed).reshape(dims)


def layers(x, w, v, y):
    """Columns of `w` and rows of `v` over `model`, the batch over `data`."""
    hidden = jnp.tanh(x @ w)
    out = jax.lax.psum(hidden @ v, "model")
    return jax.lax.psum(jnp.sum((out - y) ** 2), "data")


def collectives(x, w, v, y):
    """Every collective once; `v` and `y` are whole on all devices."""
    a = jax.lax.all_gather(jnp.sin(x), "model", axis=1, tiled=True) * 0.3
    b = jax.lax.psum_scatter(a, "data", scatter_dimension=0, tiled=True)
    c = jax.lax.all_to_all(b**2, "model", 1, 0, tiled=True)
    d = jax.lax.ppermute(c, "model", [(0, 1), (1, 2), (2, 3), (3, 0)])
    e = jax.lax.pmean(d, ("data", "model")) + jnp.sum(jnp.sin(w)) * jax.lax.axis_index("model")
    total = jnp.sum(jnp.tanh(e)) * jnp.sum(v) + jnp.sum(d * c) + jnp.sum(jnp.cos(y))
    return jax.lax.psum(total, ("data", "model"))


def case(function, specs, dims):
    mapped = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False)
    inputs = [waves(d, seed) for seed, d in enumerate(dims)]
    loss, gradients = jax.jit(jax.value_and_grad(mapped, argnums=range(len(inputs))))(*inputs)
    return {"loss": float(loss), "gradients": [np.asarray(g).ravel().tolist() for g in gradients]}


cases = {
    "layers": case(layers, (P("data"), P(None, "model"), P("model"), P("data")), [(4, 3), (3, 8), (8, 2), (4, 2)]),
    "collectives": case(collectives, (P("data", "model"), P("model"), P(), P()), [(4, 16), (8,), (2,), (3,)]),
}
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(cases, indent=1) + "\n")
