"""Branches and loops, what gradients pass over, and gradients of gradients."""
import jax, numpy as np
from jax import lax
from jax import numpy as jnp

from make import Draw, case

draw = Draw("control")
int32 = lambda value: np.array(value, "int32")

for predicate in (True, False):
    values = {"p": np.array(predicate), "x": draw.normal(3), "y": draw.normal(3)}
    branches = lambda p, x, y: lax.cond(p, lambda: (x * 2 + y, x.sum()), lambda: (jnp.sin(x) * y, y.sum()))
    case("control", "cond", str(predicate).lower(), values, branches, grad="x y")
for index in (0, 1, 2, 7, -1):  # out of range is the last
    values = {"index": int32(index), "x": draw.normal(4)}
    pick = lambda index, x: lax.switch(jnp.where((index < 0) | (index > 2), 2, index), [jnp.sin, lambda x: x * x, lambda x: x - x.mean()], x)
    case("control", "case", str(index), values, pick, grad="x")
case("control", "while_loop", "newton", {"x": np.array([2, 9, 100], "float32")},
     lambda x: lax.while_loop(lambda s: jnp.max(jnp.abs(s[0] * s[0] - x)) > 1e-3, lambda s: (0.5 * (s[0] + x / s[0]), s[1] + 1), (x, jnp.int32(0))))
case("control", "while_loop", "never", {"x": np.array([1.0], "float32")}, lambda x: (x, jnp.int32(0)))
case("control", "repeat", "powers", {"x": draw.normal(2, 2)}, lambda x: lax.fori_loop(0, 5, lambda i, y: y @ x + i.astype("float32"), jnp.eye(2, dtype="float32")))
case("control", "repeat_nested", "", {"x": int32(3)}, lambda x: lax.fori_loop(0, 4, lambda i, a: lax.fori_loop(0, 3, lambda j, b: b + x * i.astype("int32") + j.astype("int32"), a), jnp.int32(0)))

values = {"xs": draw.normal(6, 2, 3), "h": draw.normal(2, 4), "w": draw.normal(3, 4, scale=0.5), "u": draw.normal(4, 4, scale=0.5)}


def recurrent(xs, h, w, u, reverse=False):
    def turn(h, x):
        h = jnp.tanh(x @ w + h @ u)
        return h, h

    return lax.scan(turn, h, xs, reverse=reverse)


def recurrent_loss(xs, h, w, u):
    last, states = recurrent(xs, h, w, u)
    return (states * states).sum() + last.sum()


def checkpointed(x, w):
    def turn(carry, _):
        y, turn = carry
        y = jax.checkpoint(lambda y: jnp.tanh(jnp.sin(y @ w) + turn.astype("float32")))(y)
        return (y, turn + 1), y.mean()

    (y, _), means = lax.scan(turn, (x, jnp.int32(0)), None, length=4)
    return y, means


case("control", "scan", "", values, recurrent, grad="all", tolerance=1e-5)
case("control", "scan_reverse", "", values, lambda *values: recurrent(*values, reverse=True), grad="all", tolerance=1e-5)
case("control", "scan_gradient", "", values, jax.grad(recurrent_loss, (2, 3)), grad="all", tolerance=4e-5)
values = {"x": draw.normal(2, 3), "w": draw.normal(3, 3)}
case("control", "checkpoint", "", values, jax.checkpoint(lambda x, w: jnp.tanh(jnp.sin(x @ w) @ w)), grad="all", tolerance=1e-5)
case("control", "checkpoint_in_scan", "", values, checkpointed, grad="all", tolerance=1e-5)

case("control", "stop_gradient", "", {"x": draw.normal(3)}, lambda x: x * lax.stop_gradient(x) + jnp.sin(x), grad="x")
case("control", "optimization_barrier", "", {"x": draw.normal(3)}, lambda x: lax.optimization_barrier(x) * 2, grad="x")
case("control", "gradient_of_gradient", "polynomial", {"x": draw.normal(4)}, lambda x: jax.grad(lambda x: (x**3 * jnp.sin(x)).sum())(x), grad="x")


def loss(x, hidden, out, target):
    logits = jnp.tanh(x @ hidden) @ out
    return -jnp.take_along_axis(jax.nn.log_softmax(logits, 1), target[:, None], 1).mean()


values = {"x": draw.normal(5, 3), "hidden": draw.normal(3, 4), "out": draw.normal(4, 3), "target": draw.integers(0, 3, 5)}
penalty = lambda *values: sum((gradient**2).sum() for gradient in jax.grad(loss, (1, 2))(*values))
case("control", "gradient_penalty", "", values, penalty, grad="x hidden out", tolerance=2e-5)


def attention(q, k, v):
    """`q, k, v: [batch, time, heads, width]`, each position attends to those before it."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.float32(q.shape[-1] ** 0.5)
    mask = np.tril(np.ones((q.shape[1], k.shape[1]), bool))
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, -np.inf), -1), v)


case("control", "attention", "", {name: draw.normal(2, 5, 3, 4) for name in "qkv"}, attention, grad="all", tolerance=1e-5)
