#!/usr/bin/env python3
"""Writes what JAX computes for random networks: losses, and norms and projections of all gradients, in float64.

    HALITE_NETWORKS_WRITE=1 cargo test -p halite-tests --test values stored
    V/bin/python random_networks.py

The first command draws the networks and writes their descriptions to `tests/golden/random_networks.json`; this script adds
to each what JAX says. The values of inputs and parameters, and the directions of projections, come from the generator in
`tests/tests/values/networks`, which is repeated here. Requirements as for `make.py`.
"""
import json, pathlib

import jax, numpy as np
import jax.numpy as jnp
from jax import lax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")

PATH = pathlib.Path(__file__).parent / "random_networks.json"
MASK = (1 << 64) - 1


def mix(value):
    """The finalizer of SplitMix64, of an int or of an array of uint64."""
    if isinstance(value, int):
        return int(mix(np.array([value & MASK], np.uint64))[0])
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def units(seed, dims):
    count = int(np.prod(dims, dtype=np.int64))
    at = np.arange(count, dtype=np.uint64) * np.uint64(0x632BE59BD9B4E019) + np.uint64(seed)
    return ((mix(at) >> np.uint64(11)).astype(np.float64) / float(1 << 53)).reshape(dims)


class Maker:
    """Gives the inputs of a network in the order of their use, or takes them in that order."""

    def __init__(self, seed=None, given=None):
        self.seed, self.given, self.made, self.kinds = seed, given, [], []

    def input(self, dims, kind):
        if self.given is not None:
            return self.given.pop(0)
        unit = units(mix(mix(self.seed) ^ len(self.made)), dims) if self.seed is not None else np.zeros(dims)
        if kind[0] == "ids":
            values = np.floor(unit * kind[1]).astype(np.int32)
        else:
            low, high = kind[1:]
            values = (low + (high - low) * unit).astype(np.float32).astype(np.float64)
        self.made.append(values)
        self.kinds.append((tuple(dims), kind))
        return values

    def parameter(self, dims, low, high):
        return self.input(dims, ("between", low, high))

    def weight(self, dims, count):
        bound = (3.0 / count) ** 0.5
        return self.parameter(dims, -bound, bound)

    def dense(self, x, features):
        weight = self.weight((x.shape[-1], features), x.shape[-1])
        return jnp.tensordot(x, weight, 1) + self.parameter((features,), -0.5, 0.5)

    def scale_and_bias(self, features):
        scale = self.parameter((features,), 0.5, 1.5)
        return scale, self.parameter((features,), -0.5, 0.5)

    def parameters_of(self, blocks, x, length=None):
        scratch = Maker()
        jax.eval_shape(lambda x: scratch.apply(blocks, x), jax.ShapeDtypeStruct(x.shape, x.dtype))
        lead = () if length is None else (length,)
        return [self.input(lead + dims, kind) for dims, kind in scratch.kinds]

    def apply(self, blocks, x):
        for block in blocks:
            x = self.one(block, x)
        return x

    def one(self, block, x):
        name, features = block["block"], x.shape[-1]
        axis = block.get("dim")
        if name == "conv":
            window, outputs = block["window"], block["features"]
            weight = self.weight((window, window, features, outputs), window * window * features)
            y = lax.conv_general_dilated(x, weight, (block["stride"],) * 2, padding(block), dimension_numbers=("NHWC", "HWIO", "NHWC"))
            return y + self.parameter((outputs,), -0.5, 0.5)
        if name == "dense":
            return self.dense(x, block["features"])
        if name == "group_norm":
            scale, bias = self.scale_and_bias(features)
            groups = block["groups"]
            grouped = x.reshape(x.shape[0], -1, groups, features // groups)
            return normalised(grouped, (1, 3)).reshape(x.shape) * scale + bias
        if name == "layer_norm":
            scale, bias = self.scale_and_bias(features)
            return normalised(x, (-1,)) * scale + bias
        if name == "rms_norm":
            return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * self.parameter((features,), 0.5, 1.5)
        if name == "batch_norm":
            scale, bias = self.scale_and_bias(features)
            return normalised(x, tuple(range(x.ndim - 1))) * scale + bias
        if name == "activation":
            return ACTIVATIONS[block["name"]](x)
        if name == "max_pool":
            sizes, strides = (1, block["window"], block["window"], 1), (1, block["stride"], block["stride"], 1)
            return lax.reduce_window(x, -jnp.inf, lax.max, sizes, strides, padding(block))
        if name == "avg_pool":
            sizes, strides = (1, block["window"], block["window"], 1), (1, block["stride"], block["stride"], 1)
            return lax.reduce_window(x, 0.0, lax.add, sizes, strides, padding(block)) / block["window"] ** 2
        if name == "flatten":
            return x.reshape(x.shape[0], -1, features)
        if name == "global":
            return REDUCTIONS[block["kind"]](x, tuple(range(1, x.ndim - 1))).reshape(x.shape[0], features)
        if name == "centre":
            return x - REDUCTIONS[block["kind"]](x, (axis,))
        if name == "cumulative":
            if block["kind"] == "sum":
                return jnp.cumsum(x, axis) / x.shape[axis] ** 0.5
            return {"max": lax.cummax, "min": lax.cummin, "log_sum_exp": lax.cumlogsumexp}[block["kind"]](x, axis)
        if name == "softmax":
            return jax.nn.softmax(x, axis)
        if name == "log_softmax":
            return jax.nn.log_softmax(x, axis)
        if name == "sort":
            return jnp.sort(x, axis, descending=block["descending"])
        if name == "sort_by":
            keys = x * self.parameter((features,), -1.5, 1.5)
            return jnp.take_along_axis(x, jnp.argsort(keys, axis), axis)
        if name == "top_k":
            return lax.slice_in_dim(jnp.sort(x, axis, descending=True), 0, block["count"], axis=axis)
        if name == "clamp":
            return jnp.clip(x, block["low"], block["high"])
        if name == "learned_clamp":
            bound = self.parameter((), 0.5, 1.5)
            # Of whole tensors: the gradient of `lax.clamp` refuses scalar bounds.
            bound = jnp.broadcast_to(bound, x.shape)
            return lax.clamp(-bound, x, bound)
        if name == "maxout":
            first = self.dense(x, block["features"])
            return jnp.maximum(first, self.dense(x, block["features"]))
        if name == "gate":
            mean = jnp.mean(x, tuple(range(1, x.ndim - 1)), keepdims=True) if x.ndim > 2 else x
            return x * jax.nn.sigmoid(self.dense(mean, features))
        if name == "attention":
            batch, time, heads = *x.shape[:2], block["heads"]
            q, k, v = (self.dense(x, features).reshape(batch, time, heads, -1) for _ in range(3))
            scores = jnp.einsum("bqhw,bkhw->bhqk", q, k) / (features // heads) ** 0.5
            if block["causal"]:
                scores = jnp.where(jnp.tril(jnp.ones((time, time), bool)), scores, -jnp.inf)
            y = jnp.einsum("bhqk,bkhw->bqhw", jax.nn.softmax(scores), v).reshape(x.shape)
            return self.dense(y, features)
        if name == "residual":
            return x + self.apply(block["blocks"], x)
        if name == "checkpoint":
            given = self.parameters_of(block["blocks"], x)
            return Maker(given=list(given)).apply(block["blocks"], x)
        if name == "scan":
            stacked = self.parameters_of(block["blocks"], x, block["length"])
            for turn in range(block["length"]):
                x = Maker(given=[parameter[turn] for parameter in stacked]).apply(block["blocks"], x)
            return x
        raise ValueError(name)


def padding(block):
    """Zeros of `same` are before and after, the odd one after, as in XLA."""
    return "SAME" if block["same"] else "VALID"


def normalised(x, axes):
    centred = x - jnp.mean(x, axes, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(centred * centred, axes, keepdims=True) + 1e-5)


ACTIVATIONS = {
    "relu": jax.nn.relu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "softplus": jax.nn.softplus,
    "relu6": jax.nn.relu6,
    "leaky_relu": lambda x: jax.nn.leaky_relu(x, 0.1),
    "elu": jax.nn.elu,
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "hard_swish": lambda x: x * jax.nn.relu6(x + 3) / 6,
    "abs": jnp.abs,
    "square": lambda x: x * x * 0.5,
}
REDUCTIONS = {
    "sum": lambda x, axes: jnp.sum(x, axes, keepdims=True),
    "mean": lambda x, axes: jnp.mean(x, axes, keepdims=True),
    "max": lambda x, axes: jnp.max(x, axes, keepdims=True),
    "min": lambda x, axes: jnp.min(x, axes, keepdims=True),
    "log_sum_exp": lambda x, axes: jax.nn.logsumexp(x, axes, keepdims=True),
    "arg_max": lambda x, axes: jnp.max(x, axes, keepdims=True),
}


def loss(network, maker):
    start = network["start"]
    if start["start"] == "tokens":
        ids = maker.input((start["batch"], start["time"]), ("ids", start["vocabulary"]))
        x = jnp.asarray(maker.parameter((start["vocabulary"], start["width"]), -1.5, 1.5))[ids]
    else:
        x = jnp.asarray(maker.parameter(tuple(start["dims"]), -1.5, 1.5))
    y = maker.apply(network["blocks"], x).reshape(-1)
    weights = maker.input(y.shape, ("weights", -1.0, 1.0))
    return jnp.mean(y * weights + y * y * 0.3)


def expected(network):
    scratch = Maker()
    jax.eval_shape(lambda: loss(network, scratch))
    kinds = scratch.kinds
    maker = Maker(seed=network["seed"])
    inputs = [maker.input(*kind) for kind in kinds]
    floats = [index for index, (_, kind) in enumerate(kinds) if kind[0] == "between"]

    def of(moving):
        given = list(inputs)
        for index, value in zip(floats, moving):
            given[index] = value
        return loss(network, Maker(given=given))

    value, gradients = jax.jit(jax.value_and_grad(of))([jnp.asarray(inputs[index]) for index in floats])
    found = []
    for index, gradient in zip(floats, gradients):
        along = 2.0 * units(mix(network["seed"] ^ 0xD1EC) ^ index, gradient.shape) - 1.0
        gradient = np.asarray(gradient)
        found.append([float(np.linalg.norm(gradient.ravel())), float(np.sum(gradient * along))])
    return {"loss": float(value), "gradients": found}


if __name__ == "__main__":
    networks = json.loads(PATH.read_text())["networks"]
    for number, case in enumerate(networks):
        case["jax"] = expected(case["network"])
        print(number, case["network"]["seed"], case["jax"]["loss"], flush=True)
    lines = ",\n".join(json.dumps(case) for case in networks)
    PATH.write_text('{"jax": "%s", "networks": [\n%s\n]}\n' % (jax.__version__, lines))
