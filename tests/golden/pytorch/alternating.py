#!/usr/bin/env python3
"""Golden values of 50 steps with two updates each, a critic's and a generator's, in f64.

    python3 -m venv V && V/bin/pip install torch==2.15.0 numpy && V/bin/python alternating.py

Writes `alternating.json` beside this file. A step updates the critic, and then, every n steps, the generator against
the critic that was just updated. Neither loss changes the other network.
"""
import json, pathlib
import numpy as np
import torch
from torch.nn.utils import clip_grad_norm_

torch.set_default_dtype(torch.float64)
generator = np.random.default_rng(0)
draw = lambda *dims: np.round(generator.standard_normal(dims), 3)

STEPS, BATCH, SHOWN = 50, 8, (1, 2, 10, 50)
SHAPES = {f"{part}.{leaf}": dims
          for part, last in (("generator", 2), ("critic", 1))
          for leaf, dims in (("hidden", [2, 5]), ("bias", [1, 5]), ("out", [5, last]))}
params = {name: draw(*dims) for name, dims in SHAPES.items()}
noise, real = draw(STEPS, BATCH, 2), draw(STEPS, BATCH, 2) * 0.5 + 1
flat = lambda x: np.asarray(x).flatten().tolist()
cases = {}


def case(name, every=1, clip=None):
    model = {n: torch.nn.Parameter(torch.tensor(value)) for n, value in params.items()}
    run = lambda part, x: torch.tanh(x @ model[f"{part}.hidden"] + model[f"{part}.bias"]) @ model[f"{part}.out"]
    leaves = lambda part: [value for n, value in model.items() if n.startswith(part)]
    optimizers = {
        "critic": torch.optim.Adam(leaves("critic"), lr=0.02),
        "generator": torch.optim.Adam(leaves("generator"), lr=0.05, betas=(0.5, 0.9)),
    }

    def update(part, loss):
        for value in model.values():
            value.grad = None
        loss.backward()
        if clip is not None:
            clip_grad_norm_(leaves(part), clip)
        optimizers[part].step()

    shown, losses = [], []
    for step in range(STEPS):
        z, x = torch.tensor(noise[step]), torch.tensor(real[step])
        critic = ((run("critic", x) - 1) ** 2 + run("critic", run("generator", z).detach()) ** 2).mean()
        update("critic", critic)
        losses.append(critic.item())
        if (step + 1) % every == 0:
            update("generator", ((run("critic", run("generator", z)) - 1) ** 2).mean())
        if step + 1 in SHOWN:
            shown.append({n: flat(value.detach().numpy()) for n, value in model.items()})
    cases[name] = {"shown": shown, "loss": float(np.mean(losses))}


case("each step")
case("every 3 steps", every=3)
case("clipped", clip=0.1)

file = {
    "shapes": SHAPES,
    "shown": list(SHOWN),
    "params": {name: flat(value) for name, value in params.items()},
    "noise": flat(noise),
    "real": flat(real),
    "cases": cases,
}
lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in file.items())
pathlib.Path(__file__).with_name("alternating.json").write_text("{\n" + lines + "\n}\n")
print(len(cases), "cases")
