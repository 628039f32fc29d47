#!/usr/bin/env python3
"""Names and dimensions of the weights of layers in PyTorch and Flax, and what the layers compute from weights by formula.

    python3 -m venv V && V/bin/pip install torch==2.15.0 flax==0.12.8 jax==0.10.2 numpy && V/bin/python layouts.py

Writes `layouts.json` beside this file: the rows of `docs/layouts.md`. Inputs and outputs have features last.
"""
import json, pathlib
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import torch
from flax import linen
from flax.traverse_util import flatten_dict, unflatten_dict
from torch import nn

from parity import initial, integers, unit

torch.set_default_dtype(torch.float64)
first = lambda x: x.movedim(-1, 1)
last = lambda x: x.movedim(1, -1)
rows = {}


def row(name, *dims, torch_layer=None, call=None, flax_layer=None, flax_call=None, high=None):
    """Adds a layer with an input of `dims`: floats, or integers below `high`."""
    inputs = [integers(f"{name}.x", high, *d) if high else unit(f"{name}.x{i or ''}", *d) for i, d in enumerate(dims)]
    entry = {"inputs": [list(d) for d in dims], "high": high}
    if torch_layer is not None:
        state = {k: v for k, v in torch_layer.state_dict().items() if v.is_floating_point()}
        with torch.no_grad():
            for key, value in state.items():
                value.copy_(initial(key, value.shape))
            y = (call or (lambda net, x: net(x)))(torch_layer.eval(), *inputs)
        entry["torch"] = {"eps": getattr(torch_layer, "eps", None), "tensors": {k: list(v.shape) for k, v in state.items()}, "output": list(y.shape), "values": y.flatten().tolist()}
    if flax_layer is not None:
        arrays = [jnp.asarray(x.numpy()) for x in inputs]
        call = flax_call or (lambda net, x: net(x))
        variables = flax_layer.init(jax.random.key(0), *arrays, method=call)
        flat = flatten_dict(variables, sep="/")
        tensors = {k: list(v.shape) for k, v in flat.items()}
        filled = {k: jnp.asarray(initial(k, d).numpy()) for k, d in tensors.items()}
        y = flax_layer.apply(unflatten_dict(filled, sep="/"), *arrays, method=call)
        entry["flax"] = {"eps": getattr(flax_layer, "epsilon", None), "tensors": tensors, "output": list(y.shape), "values": jnp.ravel(y).tolist()}
    rows[name] = entry


f64 = dict(dtype=jnp.float64, param_dtype=jnp.float64)
images = lambda net, x: last(net(first(x)))
row("Linear", (2, 3), torch_layer=nn.Linear(3, 4), flax_layer=linen.Dense(4, **f64))
row("Embedding", (2, 3), high=5, torch_layer=nn.Embedding(5, 4), flax_layer=linen.Embed(5, 4, **f64))
row("Conv1d", (2, 5, 3), torch_layer=nn.Conv1d(3, 4, 3, padding=1), call=images, flax_layer=linen.Conv(4, (3,), padding=1, **f64))
row("Conv2d", (1, 5, 6, 2), torch_layer=nn.Conv2d(2, 3, (3, 2)), call=images, flax_layer=linen.Conv(3, (3, 2), padding="VALID", **f64))
row("Conv3d", (1, 3, 4, 3, 2), torch_layer=nn.Conv3d(2, 3, 2), call=images, flax_layer=linen.Conv(3, (2, 2, 2), padding="VALID", **f64))
row("Conv2d grouped", (1, 4, 4, 4), torch_layer=nn.Conv2d(4, 6, 3, groups=2), call=images,
    flax_layer=linen.Conv(6, (3, 3), padding="VALID", feature_group_count=2, **f64))
row("Conv2d depthwise", (1, 4, 4, 3), torch_layer=nn.Conv2d(3, 3, 3, groups=3), call=images,
    flax_layer=linen.Conv(3, (3, 3), padding="VALID", feature_group_count=3, **f64))
row("ConvTranspose2d", (1, 3, 4, 2), torch_layer=nn.ConvTranspose2d(2, 3, (3, 2), stride=2), call=images,
    flax_layer=linen.ConvTranspose(3, (3, 2), strides=(2, 2), padding="VALID", **f64))
row("ConvTranspose2d grouped", (1, 3, 3, 4), torch_layer=nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), call=images)
row("BatchNorm", (2, 3, 3, 4), torch_layer=nn.BatchNorm2d(4), call=images, flax_layer=linen.BatchNorm(use_running_average=True, **f64))
row("LayerNorm", (2, 3, 4), torch_layer=nn.LayerNorm(4), flax_layer=linen.LayerNorm(**f64))
row("GroupNorm", (2, 3, 2, 4), torch_layer=nn.GroupNorm(2, 4), call=images, flax_layer=linen.GroupNorm(2, **f64))
row("InstanceNorm", (2, 3, 2, 4), torch_layer=nn.InstanceNorm2d(4, affine=True), call=images, flax_layer=linen.InstanceNorm(**f64))
row("RmsNorm", (2, 4), torch_layer=nn.RMSNorm(4, eps=1e-6), flax_layer=linen.RMSNorm(**f64))
row("Lstm", (2, 3, 2), torch_layer=nn.LSTM(2, 3, 2, bidirectional=True, batch_first=True), call=lambda net, x: net(x)[0],
    flax_layer=linen.RNN(linen.OptimizedLSTMCell(3, **f64)))
row("Gru", (2, 3, 2), torch_layer=nn.GRU(2, 3, 2, bidirectional=True, batch_first=True), call=lambda net, x: net(x)[0],
    flax_layer=linen.RNN(linen.GRUCell(3, **f64)))
row("Attention", (2, 3, 4), torch_layer=nn.MultiheadAttention(4, 2, batch_first=True), call=lambda net, x: net(x, x, x)[0],
    flax_layer=linen.MultiHeadDotProductAttention(2, **f64))
row("Attention of a source", (2, 3, 4), (2, 5, 6), torch_layer=nn.MultiheadAttention(4, 2, kdim=6, vdim=6, batch_first=True),
    call=lambda net, x, source: net(x, source, source)[0], flax_layer=linen.MultiHeadDotProductAttention(2, **f64),
    flax_call=lambda net, x, source: net(x, source))

lines = [f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in rows.items()]
path = pathlib.Path(__file__).with_name("layouts.json")
path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
print(f"{len(rows)} layers, {path.stat().st_size} bytes")
