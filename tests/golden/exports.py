"""Functions that JAX exported, with what it computes: `jax_exports.safetensors`.

    python exports.py

For each function: `NAME.program` (a `jax.export` artifact), `NAME.in.I`, `NAME.out.I`, and where it
has gradients, `NAME.cotangent` of the first result and `NAME.grad.I`. The function `training_step` has
no gradients; `training_losses` are those of `STEPS` steps, each with the state that the last one
returned.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import export
from safetensors.numpy import save_file

# No paths of this machine in the programs.
jax.config.update("jax_traceback_in_locations_limit", 0)

STEPS = 12
random = np.random.default_rng(0)
tensors = {}


def noise(*dims, low=-1.0, high=1.0, dtype=np.float32):
    return random.uniform(low, high, dims).astype(dtype)


def add(name, function, *inputs, gradients=(), platforms=None):
    """Records a function. `gradients` are the indices of flat inputs."""
    arguments = {} if platforms is None else {"platforms": platforms}
    exported = export.export(jax.jit(function), **arguments)(*inputs)
    tensors[f"{name}.program"] = np.frombuffer(exported.serialize(), np.uint8)
    leaves, tree = jax.tree.flatten(jax.tree.map(jnp.asarray, inputs))
    outputs = jax.tree.leaves(function(*jax.tree.map(jnp.asarray, inputs)))
    for index, leaf in enumerate(leaves):
        tensors[f"{name}.in.{index}"] = np.array(leaf)
    for index, leaf in enumerate(outputs):
        tensors[f"{name}.out.{index}"] = np.array(leaf)
    if not gradients:
        return
    cotangent = noise(*outputs[0].shape).astype(outputs[0].dtype)

    def loss(*leaves):
        results = function(*jax.tree.unflatten(tree, leaves))
        return jnp.sum(jax.tree.leaves(results)[0] * cotangent)

    slopes = jax.grad(loss, argnums=tuple(gradients))(*leaves)
    tensors[f"{name}.cotangent"] = cotangent
    for index, slope in zip(gradients, slopes):
        tensors[f"{name}.grad.{index}"] = np.array(slope)


# Elementwise, with the functions that JAX makes of several operations.
for name, function in {
    "exp": jnp.exp, "tanh": jnp.tanh, "sin": jnp.sin, "log1p": jnp.log1p, "erf": lax.erf,
    "relu": jax.nn.relu, "gelu": jax.nn.gelu, "silu": jax.nn.silu, "softplus": jax.nn.softplus,
    "gelu_erf": lambda x: jax.nn.gelu(x, approximate=False), "cbrt": jnp.cbrt,
    "elu": jax.nn.elu, "sigmoid": jax.nn.sigmoid, "clip": lambda x: jnp.clip(x, 0.2, 0.7),
}.items():
    add(name, function, noise(3, 5, low=0.05, high=0.95), gradients=[0])
add("atan2", jnp.arctan2, noise(4), noise(4), gradients=[0, 1])
add("where", lambda x, y: jnp.where(x > y, x, y * 2), noise(6), noise(6), gradients=[0, 1])
add("integers", lambda x: (x // 3, x % 5, x << 2, ~x, x.astype(jnp.uint8)), np.arange(-6, 6, dtype=np.int32))
add("casts", lambda x: (x.astype(jnp.bfloat16).astype(jnp.float32), x.astype(jnp.int32)), noise(5, high=9.0))

# Reductions.
add("softmax", lambda x: jax.nn.softmax(x, axis=-1), noise(3, 5), gradients=[0])
add("log_softmax", jax.nn.log_softmax, noise(3, 5), gradients=[0])
add("logsumexp", lambda x: jax.nn.logsumexp(x, axis=0), noise(3, 5), gradients=[0])
add("statistics", lambda x: (x.var(0), x.mean(), x.std(1), x.max(), x.min(0), x.prod(1)), noise(3, 4), gradients=[0])
add("arg_extremes", lambda x: (x.argmax(-1), x.argmin(0)), noise(4, 5))
add("any_all", lambda x: (jnp.any(x > 0.9), jnp.all(x > -2, axis=0)), noise(3, 4))
add("cumsum", lambda x: jnp.cumsum(x, axis=1), noise(3, 6), gradients=[0])
add("cummax", lambda x: lax.cummax(x, axis=0), noise(5))
add("sort", lambda x: jnp.sort(x, axis=-1), noise(3, 7), gradients=[0])
add("argsort", lambda x: jnp.argsort(x), np.array([3.0, -0.0, np.nan, 0.0, -np.inf, 2.0, 3.0], np.float32))
add("sort_descending", lambda x: jnp.sort(x, descending=True), random.integers(0, 9, 12).astype(np.int32))
add("top_k", lambda x: lax.top_k(x, 3), noise(4, 9), gradients=[0])

# Shapes and indexing.
add("shapes", lambda x: jnp.concatenate([x.T.reshape(4, 3), jnp.flip(x.reshape(4, 3), 0)], 1), noise(3, 4), gradients=[0])
add("pad", lambda x: lax.pad(x, 0.5, ((1, 2, 1), (-1, 0, 0))), noise(3, 4), gradients=[0])
add("slices", lambda x, i: lax.dynamic_update_slice(x, x[1:5:2] * 2, (i,)), noise(8), np.int32(3), gradients=[0])
add("gather", lambda x, i: x[i], noise(6, 4), np.array([3, 0, 3, 5], np.int32), gradients=[0])
add("take_along", lambda x, i: jnp.take_along_axis(x, i, axis=1), noise(3, 5), np.array([[1], [4], [0]], np.int32), gradients=[0])
add("scatter_add", lambda x, i, u: x.at[i].add(u), noise(6, 3), np.array([1, 1, 4], np.int32), noise(3, 3), gradients=[0, 2])
add("scatter_set", lambda x, u: x.at[1:3].set(u), noise(6, 3), noise(2, 3), gradients=[0, 1])
add("one_hot", lambda i: jax.nn.one_hot(i, 5), np.array([3, 0, 1], np.int32))

# Contractions.
add("einsum", lambda a, b: jnp.einsum("bij,bjk->bik", a, b), noise(2, 3, 4), noise(2, 4, 5), gradients=[0, 1])
add("convolution", lambda x, k: lax.conv_general_dilated(
    x, k, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=2),
    noise(2, 6, 5, 4), noise(3, 3, 2, 6), gradients=[0, 1])
add("max_pool", lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), noise(2, 4, 6, 3), gradients=[0])
add("mean_pool", lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") / 9, noise(2, 5, 5, 3), gradients=[0])
add("max_pool_gradient", jax.grad(lambda x: lax.reduce_window(
    x, -jnp.inf, lax.max, (2, 2), (2, 2), "SAME").sum()), noise(5, 6))

# Control flow.
add("scan", lambda w, xs: lax.scan(lambda h, x: (jnp.tanh(h @ w + x), h.sum()), jnp.zeros(3), xs), noise(3, 3), noise(5, 3), gradients=[0, 1])
add("reverse_scan", lambda xs: lax.scan(lambda c, x: (c * 0.5 + x, c), 0.0, xs, reverse=True), noise(6), gradients=[0])
add("fori_loop", lambda x: lax.fori_loop(0, 4, lambda i, c: jnp.sin(c) + i * 0.1, x), noise(3), gradients=[0])
add("while_loop", lambda x: lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + c[1], c[1] * 2), (x, x)), np.float32(0.7))
add("cond", lambda p, x: lax.cond(p, lambda x: x * 2, lambda x: jnp.sin(x), x), np.bool_(True), noise(4), gradients=[1])
add("switch", lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, lambda x: x * x], x), np.int32(2), noise(4), gradients=[1])
add("random", lambda key: (jax.random.normal(jax.random.wrap_key_data(key), (4, 3)),
                           jax.random.randint(jax.random.wrap_key_data(key), (5,), 0, 10)), np.array([1, 7], np.uint32))
add("permutation", lambda key: jax.random.permutation(jax.random.wrap_key_data(key), 16), np.array([3, 4], np.uint32))
add("platforms", lambda x: lax.platform_dependent(x, cpu=lambda x: x + 1, default=lambda x: x + 2), noise(3), platforms=["tpu", "cpu", "cuda"])
add("unused_argument", lambda x, y, z: x + z["b"], noise(3), noise(2), {"a": noise(1), "b": noise(3)}, gradients=[0])


# Networks in the style of flax: parameters in nested dicts.
def dense(p, x):
    return x @ p["kernel"] + p["bias"]


def mlp(params, x):
    for layer in params["hidden"]:
        x = jax.nn.relu(dense(layer, x))
    return dense(params["out"], x)


def layer(inputs, outputs):
    return {"kernel": noise(inputs, outputs), "bias": noise(outputs)}


params = {"hidden": [layer(4, 8), layer(8, 8)], "out": layer(8, 3)}
add("mlp", mlp, params, noise(5, 4), gradients=[0, 1, 2, 3, 4, 5, 6])


def cnn(params, x):
    x = lax.conv_general_dilated(x, params["conv"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x = (x - x.mean((0, 1, 2))) / jnp.sqrt(x.var((0, 1, 2)) + 1e-5) * params["scale"]
    x = lax.reduce_window(jax.nn.relu(x), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return dense(params["out"], x.reshape(x.shape[0], -1))


add("cnn", cnn, {"conv": noise(3, 3, 1, 4), "out": layer(64, 10), "scale": noise(4)}, noise(2, 8, 8, 1), gradients=[0, 1, 2, 3, 4])


def attention(params, x):
    q, k, v = (x @ params[name] for name in "qkv")
    scores = q @ k.T / jnp.sqrt(q.shape[-1])
    scores = jnp.where(jnp.tril(jnp.ones_like(scores)) > 0, scores, -1e30)
    return jax.nn.softmax(scores) @ v


add("attention", attention, {"q": noise(4, 4), "k": noise(4, 4), "v": noise(4, 4)}, noise(6, 4), gradients=[0, 1, 2, 3])


# A training step with Adam: `(state, batch) -> (state, loss)`.
def loss(params, x, y):
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(mlp(params, x)) * jax.nn.one_hot(y, 3), -1))


def step(state, x, y):
    value, slopes = jax.value_and_grad(loss)(state["params"], x, y)
    count = state["count"] + 1
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mu"], slopes)
    nu = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state["nu"], slopes)
    rate = 0.01 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), state["params"], mu, nu)
    return {"params": params, "mu": mu, "nu": nu, "count": count}, value


zeros = jax.tree.map(np.zeros_like, params)
state = {"params": params, "mu": zeros, "nu": zeros, "count": np.float32(0)}
x, y = noise(16, 4), random.integers(0, 3, 16).astype(np.int32)
add("training_step", step, state, x, y)
exported = export.export(jax.jit(step, donate_argnums=0))(state, x, y)
tensors["training_step.program"] = np.frombuffer(exported.serialize(), np.uint8)
losses = []
for _ in range(STEPS):
    state, value = jax.jit(step)(state, x, y)
    losses.append(np.float32(value))
tensors["training_losses"] = np.array(losses)

tensors = {name: np.ascontiguousarray(tensor) if tensor.ndim else tensor for name, tensor in tensors.items()}
save_file(tensors, "jax_exports.safetensors")
