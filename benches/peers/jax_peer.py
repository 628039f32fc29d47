#!/usr/bin/env python3
"""JAX: one jitted step with donated state. `jax_peer.py w1|w2|w4|w6 [reshape_pool]`; see README.md for the work."""
import sys

import jax, numpy as np
from jax import lax
from jax import numpy as jnp

from protocol import serve

WORKLOAD, OPTIONS = sys.argv[1], sys.argv[2:]
rng = np.random.default_rng(0)
tree_map = jax.tree_util.tree_map


def normal(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def labels(dims, classes):
    return (np.arange(np.prod(dims)) * 7919 % classes).astype(np.int32).reshape(dims)


def dense_params(inputs, outputs, scale=None):
    return {"w": normal(inputs, outputs, scale=scale or inputs**-0.5), "b": np.zeros(outputs, np.float32)}


def dense(p, x):
    return x @ p["w"] + p["b"]


def mlp(sizes):
    def forward(params, x):
        for layer in params[:-1]:
            x = jax.nn.relu(dense(layer, x))
        return dense(params[-1], x)

    return [dense_params(a, b) for a, b in zip(sizes, sizes[1:])], forward


def conv_params(inputs, outputs):
    return {"w": normal(3, 3, inputs, outputs, scale=(2 / (9 * inputs)) ** 0.5), "b": np.zeros(outputs, np.float32)}


def conv(p, x):
    return lax.conv_general_dilated(x, p["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + p["b"]


def pool(x):
    if "reshape_pool" in OPTIONS:  # faster on XLA's CPU than its windows; halite does this by itself
        n, h, w, c = x.shape
        return x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def cnn():
    params = dict(c1=conv_params(1, 32), c2=conv_params(32, 64), d1=dense_params(64 * 14 * 14, 128), d2=dense_params(128, 10))

    def forward(p, x):
        x = jax.nn.relu(conv(p["c1"], x))
        x = pool(jax.nn.relu(conv(p["c2"], x)))
        return dense(p["d2"], jax.nn.relu(dense(p["d1"], x.reshape(x.shape[0], -1))))

    return params, forward


def gpt(layers, width, heads, time, vocabulary):
    """GPT-2's form and first weights, with an output layer of its own; queries, keys and values by one product."""
    std, residual = 0.02, 0.02 / (2 * layers) ** 0.5
    norm_params = lambda: {"g": np.ones(width, np.float32), "b": np.zeros(width, np.float32)}
    block = lambda: dict(n1=norm_params(), qkv=dense_params(width, 3 * width, std), o=dense_params(width, width, residual),
                         n2=norm_params(), up=dense_params(width, 4 * width, std), down=dense_params(4 * width, width, residual))
    params = dict(tokens=normal(vocabulary, width, scale=std), positions=normal(time, width, scale=std), blocks=[block() for _ in range(layers)], norm=norm_params(),
                  head=normal(width, vocabulary, scale=std))
    mask = np.tril(np.ones((time, time), bool))

    def norm(p, x):
        centred = x - x.mean(-1, keepdims=True)
        return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * p["g"] + p["b"]

    def forward(p, ids):
        x = p["tokens"][ids] + p["positions"]
        for b in p["blocks"]:
            q, k, v = (part.reshape(*ids.shape, heads, width // heads) for part in jnp.split(dense(b["qkv"], norm(b["n1"], x)), 3, -1))
            scores = jnp.einsum("bthw,bshw->bhts", q, k) * (width // heads) ** -0.5
            y = jnp.einsum("bhts,bshw->bthw", jax.nn.softmax(jnp.where(mask, scores, -jnp.inf)), v)
            x = x + dense(b["o"], y.reshape(x.shape))
            x = x + dense(b["down"], jax.nn.gelu(dense(b["up"], norm(b["n2"], x)), approximate=True))
        return norm(p["norm"], x) @ p["head"]

    return params, forward


def sgd(rate, momentum=0.0):
    def update(params, grads, velocity):
        if momentum:
            grads = velocity = tree_map(lambda v, g: momentum * v + g, velocity, grads)
        return tree_map(lambda p, g: p - rate * g, params, grads), velocity

    return (lambda params: tree_map(np.zeros_like, params) if momentum else ()), update


def adam(rate, b1=0.9, b2=0.999, eps=1e-8):
    def update(params, grads, state):
        m, v, t = state
        t = t + 1
        m = tree_map(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
        v = tree_map(lambda v, g: b2 * v + (1 - b2) * g * g, v, grads)
        c1, c2 = 1 - b1**t, 1 - b2**t
        return tree_map(lambda p, m, v: p - rate * (m / c1) / (jnp.sqrt(v / c2) + eps), params, m, v), (m, v, t)

    return (lambda params: (tree_map(np.zeros_like, params), tree_map(np.zeros_like, params), np.float32(0))), update


WORK = {
    "w1": lambda: (mlp([784, 512, 512, 10]), adam(1e-3), (normal(128, 784), labels(128, 10))),
    "w2": lambda: (cnn(), sgd(0.01, 0.9), (normal(128, 28, 28, 1), labels(128, 10))),
    "w4": lambda: (gpt(6, 384, 6, 256, 65), adam(3e-4), (labels((16, 256), 65),) * 2),
    "w6": lambda: (mlp([32, 32, 32]), sgd(0.01), (normal(8, 32), labels(8, 32))),
}
(params, forward), (first_slots, update), batch = WORK[WORKLOAD]()


def loss_of(params, x, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(forward(params, x)), y[..., None], -1).mean()


def step(params, slots, x, y):
    loss, grads = jax.value_and_grad(loss_of)(params, x, y)
    params, slots = update(params, grads, slots)
    return params, slots, loss


step = jax.jit(step, donate_argnums=(0, 1))
state, batch = jax.block_until_ready(jax.device_put(((params, first_slots(params)), batch)))


def run(steps):
    global state
    for _ in range(steps):
        *state, loss = step(*state, *batch)
    jax.block_until_ready(state)
    return float(loss)


serve(run, sum(leaf.size for leaf in jax.tree_util.tree_leaves(params)))
