"""A hand-written transformer block that learns to copy, with Adam."""

import jax
import jax.numpy as jnp
import numpy as np

TOLERANCE = 1e-3

VOCABULARY, LENGTH, WIDTH, HEADS = 16, 12, 32, 2


def _parameters(key):
    shapes = {"embed": (VOCABULARY, WIDTH), "place": (LENGTH, WIDTH), "qkv": (WIDTH, 3 * WIDTH),
              "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH),
              "head": (WIDTH, VOCABULARY)}
    keys = jax.random.split(key, len(shapes))
    return {name: jax.random.normal(k, shape) / np.sqrt(shape[0])
            for k, (name, shape) in zip(keys, shapes.items())}


def _start():
    """Parameters, moments of Adam, number of steps."""
    p = _parameters(jax.random.key(0))
    return p, jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p), jnp.float32(0)


def _norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def _logits(p, tokens):
    x = p["embed"][tokens] + p["place"]
    q, k, v = jnp.split((_norm(x) @ p["qkv"]).reshape(*x.shape[:2], HEADS, -1), 3, -1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(WIDTH / HEADS)
    causal = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e9))
    x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ p["out"]
    x = x + jax.nn.gelu(_norm(x) @ p["up"]) @ p["down"]
    return _norm(x) @ p["head"]


def _loss(p, tokens):
    """Each token of the second half is that of the first."""
    log_p = jax.nn.log_softmax(_logits(p, tokens))[:, LENGTH // 2 - 1:-1]
    targets = tokens[:, LENGTH // 2:]
    return -jnp.mean(jnp.take_along_axis(log_p, targets[..., None], -1))


def _step(state, key):
    p, m, v, t = state
    half = jax.random.randint(key, (32, LENGTH // 2), 0, VOCABULARY)
    loss, g = jax.value_and_grad(_loss)(p, jnp.concatenate([half, half], 1))
    t = t + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
    m_scale, v_scale = 1 / (1 - 0.9 ** t), 1 / (1 - 0.99 ** t)
    update = lambda p, m, v: p - 3e-3 * m * m_scale / (jnp.sqrt(v * v_scale) + 1e-8)
    return (jax.tree.map(update, p, m, v), m, v, t), loss


def losses():
    state, step = _start(), jax.jit(_step, donate_argnums=0)
    losses = []
    for number in range(40):
        state, loss = step(state, jax.random.key(number))
        losses.append(loss)
    losses = jnp.stack(losses)
    assert losses[-1] < losses[0] - 0.3, losses
    return losses


def scanned_losses():
    """The same in one program: a scan over the steps."""
    keys = jax.vmap(jax.random.key)(jnp.arange(10))
    return jax.jit(lambda s: jax.lax.scan(_step, s, keys)[1])(_start())
