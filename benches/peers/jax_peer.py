#!/usr/bin/env python3
"""JAX: one jitted step with donated state. `jax_peer.py w1|w2|..|w8 [bf16] [reshape_pool]`; see README.md for the work.

`bf16`: parameters in f32, cast in the step; statistics, softmax and loss in f32. A model is its parameters, its other
state (running statistics) and a function from both and the inputs to logits and the next state.
"""
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
    def forward(params, state, x):
        for layer in params[:-1]:
            x = jax.nn.relu(dense(layer, x))
        return dense(params[-1], x), state

    return [dense_params(a, b) for a, b in zip(sizes, sizes[1:])], (), forward


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

    def forward(p, state, x):
        x = jax.nn.relu(conv(p["c1"], x))
        x = pool(jax.nn.relu(conv(p["c2"], x)))
        return dense(p["d2"], jax.nn.relu(dense(p["d1"], x.reshape(x.shape[0], -1)))), state

    return params, (), forward


def conv_norm_params(inputs, outputs, window):
    weight = normal(window, window, inputs, outputs, scale=(2 / (window * window * outputs)) ** 0.5)
    return {"w": weight, "g": np.ones(outputs, np.float32), "b": np.zeros(outputs, np.float32)}


def conv_norm(p, statistics, x, stride=1):
    """A convolution and batch norm in training; gives the next running statistics too."""
    edge = p["w"].shape[0] // 2
    x = lax.conv_general_dilated(x, p["w"], (stride, stride), [(edge, edge)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    wide = x.astype(jnp.float32)
    mean = wide.mean((0, 1, 2))
    variance = (wide**2).mean((0, 1, 2)) - mean**2
    count = x.size // x.shape[-1]
    running = tree_map(lambda old, new: 0.9 * old + 0.1 * new, statistics, {"m": mean, "v": variance * (count / (count - 1))})
    scale = p["g"].astype(jnp.float32) * lax.rsqrt(variance + 1e-5)
    return ((wide - mean) * scale + p["b"].astype(jnp.float32)).astype(x.dtype), running


def resnet(stem_window, stages, bottleneck, classes):
    """He et al. 2015 in the form of torchvision, the stride of a bottleneck in its 3x3 convolution."""
    params, strides, inputs = {"stem": conv_norm_params(3, 64, stem_window)}, {}, 64
    for stage, count in enumerate(stages):
        for block in range(count):
            width, name, stride = 64 << stage, f"{stage}.{block}", 2 if block == 0 and stage else 1
            outputs = 4 * width if bottleneck else width
            windows = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)] if bottleneck else [
                (inputs, width, 3, stride), (width, width, 3, 1)]
            if stride != 1 or inputs != outputs:
                windows.append((inputs, outputs, 1, stride))
            for index, (*features, window, stride) in enumerate(windows):
                params[f"{name}.{index}"], strides[f"{name}.{index}"] = conv_norm_params(*features, window), stride
            inputs = outputs
    state = {name: {"m": np.zeros_like(p["b"]), "v": np.ones_like(p["b"])} for name, p in params.items()}
    params["head"] = dense_params(inputs, classes)
    blocks = [(f"{stage}.{block}", 3 if bottleneck else 2) for stage, count in enumerate(stages) for block in range(count)]
    relu = jax.nn.relu

    def forward(p, state, x):
        following = {}

        def run(name, x, stride):
            x, following[name] = conv_norm(p[name], state[name], x, stride)
            return x

        if stem_window == 7:
            x = relu(run("stem", x, 2))
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)])
        else:
            x = relu(run("stem", x, 1))
        for name, parts in blocks:
            projection = f"{name}.{parts}"
            shortcut = run(projection, x, strides[projection]) if projection in strides else x
            x = run(f"{name}.0", x, strides[f"{name}.0"])
            for index in range(1, parts):
                x = run(f"{name}.{index}", relu(x), strides[f"{name}.{index}"])
            x = relu(x + shortcut)
        return dense(p["head"], x.mean((1, 2))), following

    return params, state, forward


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
        wide = x.astype(jnp.float32)
        centred = wide - wide.mean(-1, keepdims=True)
        return (centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * p["g"] + p["b"]).astype(x.dtype)

    def forward(p, state, ids):
        x = p["tokens"][ids] + p["positions"]
        for b in p["blocks"]:
            q, k, v = (part.reshape(*ids.shape, heads, width // heads) for part in jnp.split(dense(b["qkv"], norm(b["n1"], x)), 3, -1))
            scores = jnp.einsum("bthw,bshw->bhts", q, k).astype(jnp.float32) * (width // heads) ** -0.5
            y = jnp.einsum("bhts,bshw->bthw", jax.nn.softmax(jnp.where(mask, scores, -jnp.inf)).astype(x.dtype), v)
            x = x + dense(b["o"], y.reshape(x.shape))
            x = x + dense(b["down"], jax.nn.gelu(dense(b["up"], norm(b["n2"], x)), approximate=True))
        return norm(p["norm"], x) @ p["head"], state

    return params, (), forward


def layer_norm(p, x, eps=1e-6):
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    return (centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + eps) * p["g"] + p["b"]).astype(x.dtype)


def window(p, x, stride=1, padding=0, **options):
    """A convolution with a bias."""
    y = lax.conv_general_dilated(x, p["w"], (stride, stride), [(padding, padding)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"), **options)
    return y + p["b"]


def convnext(widths, classes):
    """Liu et al. 2022 in the form of torchvision, two blocks a stage."""
    weights = lambda *shape: {"w": np.clip(normal(*shape, scale=0.02), -0.04, 0.04), "b": np.zeros(shape[-1], np.float32)}
    norm = lambda width: {"g": np.ones(width, np.float32), "b": np.zeros(width, np.float32)}
    block = lambda width: dict(depthwise=weights(7, 7, 1, width), norm=norm(width), hidden=weights(width, 4 * width), out=weights(4 * width, width),
                               scale=np.full(width, 1e-6, np.float32))
    params, inputs = {"stages": [], "norm": norm(widths[-1]), "head": weights(widths[-1], classes)}, 3
    for stage, width in enumerate(widths):
        patch = 2 if stage else 4
        params["stages"].append(dict(patches=weights(patch, patch, inputs, width), norm=norm(inputs if stage else width), blocks=[block(width) for _ in range(2)]))
        inputs = width

    def forward(p, state, x):
        for number, stage in enumerate(p["stages"]):
            if number:
                x = window(stage["patches"], layer_norm(stage["norm"], x), 2)
            else:
                x = layer_norm(stage["norm"], window(stage["patches"], x, 4))
            for b in stage["blocks"]:
                y = layer_norm(b["norm"], window(b["depthwise"], x, 1, 3, feature_group_count=x.shape[-1]))
                x = x + dense(b["out"], jax.nn.gelu(dense(b["hidden"], y), approximate=False)) * b["scale"]
        return dense(p["head"], layer_norm(p["norm"], x.mean((1, 2)))), state

    return params, (), forward


def vae(latent=16):
    """A variational autoencoder of images of 28x28. Its state is a random key; it gives its loss in place of logits."""
    uniform = lambda fan, *shape: {"w": rng.uniform(-1, 1, shape).astype(np.float32) * fan**-0.5, "b": rng.uniform(-1, 1, shape[-1]).astype(np.float32) * fan**-0.5}
    params = dict(c1=uniform(16, 4, 4, 1, 32), c2=uniform(512, 4, 4, 32, 64), latent=uniform(3136, 3136, 2 * latent), hidden=uniform(latent, latent, 3136),
                  t1=uniform(512, 4, 4, 64, 32), t2=uniform(16, 4, 4, 32, 1))

    def loss(p, key, x, y):
        key, noise = jax.random.split(key)
        h = jax.nn.relu(window(p["c2"], jax.nn.relu(window(p["c1"], x, 2, 1)), 2, 1))
        mean, log_variance = jnp.split(dense(p["latent"], h.reshape(len(x), -1)), 2, -1)
        z = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(noise, mean.shape, mean.dtype)
        h = jax.nn.relu(dense(p["hidden"], z)).reshape(-1, 7, 7, 64)
        h = jax.nn.relu(window(p["t1"], h, 1, 2, lhs_dilation=(2, 2)))
        logits = window(p["t2"], h, 1, 2, lhs_dilation=(2, 2)).astype(jnp.float32)
        mean, log_variance = mean.astype(jnp.float32), log_variance.astype(jnp.float32)
        pixels = (jax.nn.softplus(logits) - logits * y).sum()
        return (pixels + 0.5 * (mean**2 + jnp.exp(log_variance) - log_variance - 1).sum()) / len(x), key

    return params, jax.random.PRNGKey(0), loss


def pixels(*dims):
    return (np.arange(np.prod(dims)) * 7919 % 65 / 64).astype(np.float32).reshape(dims)


def sgd(rate, momentum=0.0, weight_decay=0.0):
    def update(params, grads, velocity):
        if weight_decay:
            grads = tree_map(lambda p, g: g + weight_decay * p, params, grads)
        if momentum:
            grads = velocity = tree_map(lambda v, g: momentum * v + g, velocity, grads)
        return tree_map(lambda p, g: p - rate * g, params, grads), velocity

    return (lambda params: tree_map(np.zeros_like, params) if momentum else ()), update


def adam(rate, b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.0):
    def update(params, grads, state):
        m, v, t = state
        t = t + 1
        m = tree_map(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
        v = tree_map(lambda v, g: b2 * v + (1 - b2) * g * g, v, grads)
        c1, c2 = 1 - b1**t, 1 - b2**t
        return tree_map(lambda p, m, v: p * (1 - rate * weight_decay) - rate * (m / c1) / (jnp.sqrt(v / c2) + eps), params, m, v), (m, v, t)

    return (lambda params: (tree_map(np.zeros_like, params), tree_map(np.zeros_like, params), np.float32(0))), update


WORK = {
    "w1": lambda: (mlp([784, 512, 512, 10]), adam(1e-3), (normal(128, 784), labels(128, 10))),
    "w2": lambda: (cnn(), sgd(0.01, 0.9), (normal(128, 28, 28, 1), labels(128, 10))),
    "w3": lambda: (resnet(3, [2, 2, 2, 2], False, 10), sgd(0.01, 0.9, 5e-4), (normal(64, 32, 32, 3), labels(64, 10))),
    "w4": lambda: (gpt(6, 384, 6, 256, 65), adam(3e-4), (labels((16, 256), 65),) * 2),
    "w5": lambda: (resnet(7, [3, 4, 6, 3], True, 1000), sgd(0.01, 0.9, 1e-4), (normal(8, 224, 224, 3), labels(8, 1000))),
    "w6": lambda: (mlp([32, 32, 32]), sgd(0.01), (normal(8, 32), labels(8, 32))),
    "w7": lambda: (convnext([32, 64, 128], 10), adam(1e-3, weight_decay=0.05), (normal(16, 64, 64, 3), labels(16, 10))),
    "w8": lambda: (vae(), adam(1e-3), (pixels(32, 28, 28, 1),) * 2),
}
(params, statistics, forward), (first_slots, update), batch = WORK[WORKLOAD]()


def narrow(array):
    return array.astype(jnp.bfloat16) if array.dtype == jnp.float32 else array


def loss_of(params, statistics, x, y):
    if "bf16" in OPTIONS:
        params, x = tree_map(narrow, (params, x))
    if WORKLOAD == "w8":
        return forward(params, statistics, x, y)
    logits, statistics = forward(params, statistics, x)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits.astype(jnp.float32)), y[..., None], -1).mean(), statistics


def step(params, statistics, slots, x, y):
    (loss, statistics), grads = jax.value_and_grad(loss_of, has_aux=True)(params, statistics, x, y)
    params, slots = update(params, grads, slots)
    return params, statistics, slots, loss


STEPS_PER_LAUNCH = next((int(option[4:]) for option in OPTIONS if option.startswith("scan")), 1)
if STEPS_PER_LAUNCH > 1:
    one_step = step

    def step(params, statistics, slots, *batches):
        def body(carry, batch):
            *carry, loss = one_step(*carry, *batch)
            return tuple(carry), loss

        carry, losses = lax.scan(body, (params, statistics, slots), batches)
        return *carry, losses[-1]

    batch = tuple(np.stack([field] * STEPS_PER_LAUNCH) for field in batch)

step = jax.jit(step, donate_argnums=(0, 1, 2))
state, batch = jax.block_until_ready(jax.device_put(((params, statistics, first_slots(params)), batch)))


def run(steps):
    global state
    for _ in range(-(-steps // STEPS_PER_LAUNCH)):
        *state, loss = step(*state, *batch)
    jax.block_until_ready(state)
    return float(loss)


serve(run, sum(leaf.size for leaf in jax.tree_util.tree_leaves(params)))
