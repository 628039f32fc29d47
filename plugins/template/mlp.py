"""Trains an MLP under JAX: three classes of points in the plane, by gradient descent."""

import jax
import jax.numpy as jnp
import numpy as np

rng = np.random.default_rng(0)
# The three arms of a spiral.
radius, arm = np.tile(np.linspace(0.1, 1, 64), 3), np.repeat(np.arange(3), 64)
angle = 2 * np.pi * arm / 3 + 2 * radius + 0.1 * rng.standard_normal(192)
points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32)
classes = np.eye(3, dtype=np.float32)[arm]


def layer(inputs, outputs):
    weights = rng.standard_normal((inputs, outputs)) * np.sqrt(2 / inputs)
    return weights.astype(np.float32), np.zeros(outputs, np.float32)


def loss(parameters, x, y):
    for weights, bias in parameters[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    weights, bias = parameters[-1]
    return -jnp.mean(jnp.sum(y * jax.nn.log_softmax(x @ weights + bias), axis=1))


@jax.jit
def step(parameters, x, y):
    value, gradient = jax.value_and_grad(loss)(parameters, x, y)
    return jax.tree.map(lambda p, g: p - 0.5 * g, parameters, gradient), value


parameters = [layer(2, 32), layer(32, 32), layer(32, 3)]
print(jax.devices())
for number in range(301):
    parameters, value = step(parameters, points, classes)
    if number % 100 == 0:
        print(f"step {number}: loss {value:.4f}")
