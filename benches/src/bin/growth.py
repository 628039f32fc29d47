"""JAX's times of the rows of `growth`: `growth.py ROW SIZE..` prints a size and its seconds a line."""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np


def least(times, work):
    best = float("inf")
    for _ in range(times):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best


def loss(x):
    for _ in range(24):
        x = jnp.sin(x * 0.5)
    return jnp.sum(x)


W = jax.ShapeDtypeStruct((64,), jnp.float32)


def gradients(n):
    def f(w):
        _, pull_back = jax.vjp(loss, w)
        total = w
        for _ in range(n):
            total = total + pull_back(jnp.float32(1.0))[0]
        return total

    return least(3, lambda: jax.make_jaxpr(lambda w: f(w))(W))


def inner(n):
    def f(w):
        for _ in range(n):
            w = w - 0.1 * jax.grad(loss)(w)
        return w

    return least(3, lambda: jax.make_jaxpr(lambda w: f(w))(W))


def programs(n):
    f = jax.jit(lambda xs: xs[0] + 1.0)
    every = [[jnp.zeros(size) for _ in range(256)] for size in range(1, n + 1)]
    for xs in every:
        f(xs).block_until_ready()
    rounds = max(1, 512 // n)

    def work():
        for _ in range(rounds):
            for xs in every:
                f(xs)

    return least(5, work) / (rounds * n)


def read(size):
    x = jax.device_put(np.zeros(size, np.uint8)).block_until_ready()
    # A new array each time: JAX keeps what was read. A copy, as halite's array is the caller's own.
    ones = [x + np.uint8(i) for i in range(5)]
    jax.block_until_ready(ones)
    work = iter(ones)
    return least(5, lambda: np.array(next(work)))


def upload(size):
    host = np.zeros(size, np.uint8)
    return least(10, lambda: jax.device_put(host, may_alias=False).block_until_ready())


def compiled(f, *args):
    best = float("inf")
    for _ in range(2):
        jax.clear_caches()
        lowered = jax.jit(f).lower(*args)
        best = min(best, least(1, lowered.compile))
    return best


def init(layers):
    def f(key):
        out = []
        for layer in range(layers):
            key, weight, bias = jax.random.split(key, 3)
            shape = (32 + layer, 33 + layer)
            out.append(jax.random.normal(weight, shape) * (2 / shape[0]) ** 0.5)
            out.append(jax.random.uniform(bias, shape[1:], minval=-0.1, maxval=0.1))
        return out

    return compiled(f, jax.ShapeDtypeStruct((2,), jnp.uint32))


def chain(operations):
    def f(x):
        for index in range(operations):
            x = [lambda x: x * 1.01, lambda x: x + 0.1, jnp.sin][index % 3](x)
        return x

    return compiled(f, W)


def attend(length):
    f = jax.jit(lambda x: jax.nn.dot_product_attention(x, x, x, is_causal=True))
    x = jnp.full((1, length, 1, 64), 0.01)
    f(x).block_until_ready()
    return least(5, lambda: f(x).block_until_ready())


ROWS = {
    "grad": gradients,
    "inner": inner,
    "jit": programs,
    "read": read,
    "upload": upload,
    "init": init,
    "chain": chain,
    "attention": attend,
}

if sys.argv[1] in ROWS:
    for size in map(int, sys.argv[2:]):
        print(size, ROWS[sys.argv[1]](size), flush=True)
