"""Eight devices: `shard_map` with collectives, and `jit` with shardings."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

TOLERANCE = 2e-5

_mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
_line = jax.make_mesh((8,), ("i",), axis_types=(AxisType.Auto,))
_rng = np.random.default_rng(0)
_a = _rng.standard_normal((16, 8)).astype(np.float32)
_b = _rng.standard_normal((8, 12)).astype(np.float32)


def _put(array, spec, mesh=_mesh):
    return jax.device_put(array, NamedSharding(mesh, spec))


def placement():
    array = _put(_a, P("x", "y"))
    assert len(array.addressable_shards) == 8
    assert array.addressable_shards[0].data.shape == (4, 4)
    return [array, [shard.data for shard in array.addressable_shards], _put(array, P("y"))]


def without_results():
    a = _put(_a, P("x", "y"))
    nothing = [jax.jit(lambda a: None, keep_unused=True),
               jax.jit(jax.shard_map(lambda a: (), mesh=_mesh, in_specs=P("x"), out_specs=()))]
    assert not jax.tree.leaves([function(a) for function in nothing])
    return a


def sharded_jit():
    a, b = _put(_a, P("x", None)), _put(_b, P(None, "y"))
    product = jax.jit(lambda a, b: jnp.tanh(a @ b))(a, b)
    constrained = jax.jit(
        lambda a: jax.lax.with_sharding_constraint(a * 2, NamedSharding(_mesh, P("y", "x"))).sum(0)
    )(a)
    placed = jax.jit(jnp.transpose, out_shardings=NamedSharding(_mesh, P("y", "x")))(a)
    assert placed.sharding.spec == P("y", "x")
    return [product, constrained, placed]


def sharded_gradient():
    loss = lambda w, x: jnp.mean(jnp.tanh(x @ w) ** 2)
    step = jax.jit(lambda w, x: w - 0.1 * jax.grad(loss)(w, x), donate_argnums=0)
    weights, x = _put(_b, P(None, "y")), _put(_a, P("x"))
    for _ in range(3):
        weights = step(weights, x)
    return weights


def collectives():
    shard_map = functools.partial(jax.shard_map, mesh=_line, in_specs=P("i"))
    x = _put(np.arange(64, dtype=np.float32).reshape(16, 4), P("i"), _line)
    shift = [(i, (i + 1) % 8) for i in range(8)]
    return [
        shard_map(lambda x: jax.lax.psum(x, "i"), out_specs=P())(x),
        shard_map(lambda x: jax.lax.pmax(x, "i"), out_specs=P())(x),
        shard_map(lambda x: jax.lax.ppermute(x, "i", shift), out_specs=P("i"))(x),
        shard_map(lambda x: x + jax.lax.axis_index("i"), out_specs=P("i"))(x),
        shard_map(lambda x: jax.lax.all_gather(x, "i", tiled=True), out_specs=P("i"))(x),
        shard_map(lambda x: jax.lax.psum_scatter(
            jnp.tile(x, (4, 1)), "i", tiled=True), out_specs=P("i"))(x),
        jax.jit(shard_map(lambda x: jax.lax.all_to_all(
            jnp.tile(x, (1, 2)), "i", 1, 0, tiled=True), out_specs=P("i")))(x),
    ]


def two_axes():
    matmul = jax.jit(jax.shard_map(
        lambda a, b: jax.lax.psum(a @ b, "y"),
        mesh=_mesh, in_specs=(P("x", "y"), P("y", None)), out_specs=P("x", None)))
    return [matmul(_a, _b), jax.jit(jax.grad(lambda a: jnp.sum(jnp.sin(matmul(a, _b)))))(_a)]


def data_parallel_training():
    """A step that averages gradients over the devices."""
    def step(weights, x, y):
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w) - y) ** 2))(weights)
        return weights - 0.5 * jax.lax.pmean(gradient, "i"), jax.lax.pmean(loss, "i")

    step = jax.jit(jax.shard_map(step, mesh=_line, in_specs=(P(), P("i"), P("i")),
                                 out_specs=(P(), P()), check_vma=False))
    x = _rng.standard_normal((32, 8)).astype(np.float32)
    weights, losses = np.zeros((8, 3), np.float32), []
    y = np.tanh(x @ _b[:, :3])
    for _ in range(10):
        weights, loss = step(weights, x, y)
        losses.append(loss)
    assert losses[-1] < losses[0]
    return [weights, losses]
