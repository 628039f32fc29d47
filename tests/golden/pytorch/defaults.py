#!/usr/bin/env python3
"""Defaults of layers in PyTorch and Flax: the rows of "Defaults that differ" in `docs/layouts.md`.

    python3 -m venv V && V/bin/pip install torch==2.15.0 flax==0.12.8 jax==0.10.2 numpy && V/bin/python defaults.py

Writes `defaults.json` beside this file. Nothing here sets an option: numbers are what the layers have or compute.
"""
import json, pathlib
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import torch
from flax import linen
from torch import nn

from parity import unit

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
key, f64 = jax.random.key(0), dict(dtype=jnp.float64, param_dtype=jnp.float64)
first, last = lambda x: x.movedim(-1, 1), lambda x: x.movedim(1, -1)


def numbers(x):
    return np.asarray(x.detach() if isinstance(x, torch.Tensor) else x).flatten().tolist()


def statistics():
    """Running statistics after one batch, from 0 and 1."""
    x = unit("batch_norm.x", 2, 3, 3, 4)
    layer = nn.BatchNorm2d(4)
    layer.train()(first(x))
    flax, image = linen.BatchNorm(use_running_average=False, **f64), jnp.asarray(x.numpy())
    _, after = flax.apply(flax.init(key, image), image, mutable=["batch_stats"])
    after = after["batch_stats"]
    return {"torch": [numbers(layer.running_mean), numbers(layer.running_var)],
            "flax": [numbers(after["mean"]), numbers(after["var"])]}


def momentum():
    return {"torch": nn.BatchNorm2d(4).momentum, "flax": linen.BatchNorm().momentum}


def eps():
    return {"LayerNorm": [nn.LayerNorm(4).eps, linen.LayerNorm().epsilon],
            "GroupNorm": [nn.GroupNorm(2, 4).eps, linen.GroupNorm().epsilon],
            "InstanceNorm": [nn.InstanceNorm2d(4).eps, linen.InstanceNorm().epsilon],
            "BatchNorm": [nn.BatchNorm2d(4).eps, linen.BatchNorm().epsilon],
            "RmsNorm": [rms_eps(), linen.RMSNorm().epsilon]}


def rms_eps():
    """Of RMSNorm in f32: from the output of a tiny input, x / sqrt(x^2 + eps)."""
    x = 2.0**-12
    y = nn.RMSNorm(1, dtype=torch.float32)(torch.tensor([x], dtype=torch.float32)).item()
    return (x / y) ** 2 - x**2


def affine():
    """Numbers of parameters of InstanceNorm."""
    x = jnp.ones((1, 2, 2, 4))
    return {"torch": len(list(nn.InstanceNorm2d(4).parameters())),
            "affine": len(list(nn.InstanceNorm2d(4, affine=True).parameters())),
            "flax": len(jax.tree.leaves(linen.InstanceNorm().init(key, x)))}


def scaled(values, fan_in):
    """Largest magnitude and deviation of values, times the root of the fan-in."""
    values = np.asarray(values.detach() if isinstance(values, torch.Tensor) else values) * np.sqrt(fan_in)
    return [float(abs(values).max()), float(values.std())]


def initial():
    """Scaled largest magnitude and deviation of initial weights and biases; orthogonality of Flax's hidden weights."""
    fan_in, found = 9 * 32, {}
    for name, layer, rows, flax, shape in [
        ("Linear", nn.Linear(288, 300), 288, linen.Dense(300, **f64), (1, 288)),
        ("Conv", nn.Conv2d(32, 300, 3), fan_in, linen.Conv(300, (3, 3), **f64), (1, 5, 5, 32)),
    ]:
        params = flax.init(key, jnp.ones(shape))["params"]
        found[name] = {"torch": [scaled(layer.weight, rows), scaled(layer.bias, rows)],
                       "flax": [scaled(params["kernel"], rows), scaled(params["bias"], rows)]}
    for name, layer, cell, hidden_kernel in [("Lstm", nn.LSTM(40, 100), linen.OptimizedLSTMCell(100, **f64), "hi"),
                                            ("Gru", nn.GRU(40, 100), linen.GRUCell(100, **f64), "hr")]:
        params = linen.RNN(cell).init(key, jnp.ones((1, 3, 40)))["params"]["cell"]
        hidden = params[hidden_kernel]["kernel"]
        found[name] = {"torch": [scaled(layer.weight_ih_l0, 100), scaled(layer.bias_ih_l0, 100)],
                       "flax": [scaled(params["ii" if name == "Lstm" else "ir"]["kernel"], 40), [0.0, 0.0]],
                       "orthogonality": float(abs(hidden @ hidden.T - jnp.eye(100)).max())}
        # All biases of Flax's cell are 0.
        for gate in params.values():
            assert not gate.get("bias", jnp.zeros(1)).any()
    return found


def padding():
    """Sizes after a window of 3 over 5x5."""
    image = jnp.ones((1, 5, 5, 2))
    conv = linen.Conv(2, (3, 3))
    return {"torch": nn.Conv2d(2, 2, 3)(torch.ones(1, 2, 5, 5)).shape[2], "flax": conv.apply(conv.init(key, image), image).shape[1]}


def gelu():
    x = np.linspace(-3.0, 3.0, 13)
    t = torch.from_numpy(x)
    return {"x": x.tolist(), "torch": numbers(nn.GELU()(t)), "tanh": numbers(nn.GELU(approximate="tanh")(t)),
            "flax": numbers(linen.gelu(jnp.asarray(x)))}


def biases():
    """Biases of a gate: of an LSTM's all, of a GRU's reset, update and new gates."""
    torch_count = lambda layer: sum("bias" in name for name, _ in layer.named_parameters())
    def flax_count(cell, gates):
        params = linen.RNN(cell).init(key, jnp.ones((1, 3, 2)))["params"]["cell"]
        return [sum("bias" in params[side + gate] for side in "ih") for gate in gates]
    return {"torch": [torch_count(nn.LSTM(2, 3)), torch_count(nn.GRU(2, 3))],
            "flax": [flax_count(linen.OptimizedLSTMCell(3, **f64), "ifgo"), flax_count(linen.GRUCell(3, **f64), "rzn")]}


def batch_first():
    return {"torch": nn.LSTM(2, 3).batch_first, "flax": not linen.RNN(linen.OptimizedLSTMCell(3, **f64)).time_major}


ROWS = [statistics, momentum, eps, affine, initial, padding, gelu, biases, batch_first]
lines = [f"{json.dumps(row.__name__)}: {json.dumps(row(), separators=(',', ':'))}" for row in ROWS]
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
print(f"{len(lines)} rows, {path.stat().st_size} bytes")
