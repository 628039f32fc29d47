#!/usr/bin/env python3
"""Golden values of 50 updates by each optimizer, clipping, average and schedule, in f64.

    python3 -m venv V && V/bin/pip install torch==2.15.0 jax==0.10.2 optax==0.2.8 && V/bin/python optimizers.py

Writes `optimizers.json` beside this file. Values are PyTorch's, and Optax's of what PyTorch does not have: LAMB, LARS
and Lion. Parameters are of rank 0, 1, 2 and 4; one has gradients of zero, one begins at zero. Matrices of Muon are
transposed on the way in and out, since PyTorch's are [out, in].
"""
import json, math, pathlib
import jax
import numpy as np
import optax
import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import lr_scheduler as schedules
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

jax.config.update("jax_enable_x64", True)
torch.set_default_dtype(torch.float64)
generator = np.random.default_rng(0)
draw = lambda *dims: np.round(generator.standard_normal(dims), 3)

STEPS, SHOWN = 50, (1, 10, 50)
SHAPES = {"scalar": [], "vector": [3], "unused": [3], "origin": [2], "matrix": [3, 4], "tall": [5, 2], "kernel": [2, 2, 3, 2]}
params = {name: np.zeros(dims) if name == "origin" else draw(*dims) for name, dims in SHAPES.items()}
grads = [{name: np.zeros(dims) if name == "unused" or step == 7 else draw(*dims) for name, dims in SHAPES.items()} for step in range(STEPS)]
cases = {}
flat = lambda x: np.asarray(x).flatten().tolist()


def record(name, shown):
    """`shown`: for each step of SHOWN the values of all parameters, by name."""
    assert name not in cases and len(shown) == len(SHOWN), name
    cases[name] = [{parameter: flat(value) for parameter, value in values.items()} for values in shown]


def pytorch(name, make, clip=None, only=SHAPES, turn=False, average=None, starts=0, every=1):
    turned = lambda x: x.T if turn else x
    model = torch.nn.ParameterDict({n: torch.nn.Parameter(torch.tensor(turned(params[n]).copy())) for n in only})
    optimizer = make(dict(model.items()))
    averaged = AveragedModel(model, **average) if average is not None else None
    shown, averages = [], []
    for step in range(STEPS):
        for n in only:
            model[n].grad = torch.tensor(turned(grads[step][n]).copy())
        if clip is not None:
            clip(list(model.values()))
        optimizer.step()
        if averaged is not None and step >= starts and (step - starts) % every == 0:
            averaged.update_parameters(model)
        if step + 1 in SHOWN:
            shown.append({n: turned(model[n].detach().numpy()).copy() for n in only})
            if averaged is not None:
                # Before the first step that counts, halite's average is the parameters.
                source = averaged.module if averaged.n_averaged > 0 else model
                averages.append({n: source[n].detach().numpy().copy() for n in only})
    record(name, averages if averaged is not None else shown)


def from_optax(name, optimizer):
    values, state, shown = params, optimizer.init(params), []
    for step in range(STEPS):
        updates, state = optimizer.update(grads[step], state, values)
        values = optax.apply_updates(values, updates)
        if step + 1 in SHOWN:
            shown.append(values)
    record(name, shown)


o = torch.optim
on = lambda optimizer, **options: lambda model: optimizer(list(model.values()), **options)
pytorch("sgd", on(o.SGD, lr=0.1))
pytorch("sgd.nesterov", on(o.SGD, lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.1))
pytorch("sgd.dampening", on(o.SGD, lr=0.05, momentum=0.8, dampening=0.3))
pytorch("adam", on(o.Adam, lr=0.01))
pytorch("adam.options", on(o.Adam, lr=0.1, betas=(0.7, 0.9), eps=1e-3, weight_decay=0.2))
pytorch("adamw", on(o.AdamW, lr=0.01))
pytorch("rmsprop", on(o.RMSprop, lr=0.01))
pytorch("rmsprop.options", on(o.RMSprop, lr=0.02, alpha=0.9, eps=1e-3, weight_decay=0.1, momentum=0.8, centered=True))
pytorch("adagrad", on(o.Adagrad, lr=0.01))
pytorch("adagrad.options", on(o.Adagrad, lr=0.1, eps=1e-3, weight_decay=0.1, initial_accumulator_value=0.2))
pytorch("adafactor", on(o.Adafactor, lr=0.01))
pytorch("adafactor.options", on(o.Adafactor, lr=0.3, beta2_decay=-0.5, eps=(1e-4, 0.1), d=1.2, weight_decay=0.1))
groups = lambda model: o.AdamW([
    {"params": [model[n] for n in ("scalar", "vector", "unused", "origin")], "weight_decay": 0.0},
    {"params": [model["kernel"]], "lr": 0.1},
    {"params": [model["matrix"], model["tall"]]},
], lr=0.01, weight_decay=0.3)
pytorch("groups", groups)
pytorch("clip.norm", on(o.Adam, lr=0.01), clip=lambda all: clip_grad_norm_(all, 1.5))
pytorch("clip.value", on(o.SGD, lr=0.01), clip=lambda all: clip_grad_value_(all, 0.7))
pytorch("average.ema", on(o.Adam, lr=0.05), average={"multi_avg_fn": get_ema_multi_avg_fn(0.9)})
pytorch("average.ema_later", on(o.Adam, lr=0.05), average={"multi_avg_fn": get_ema_multi_avg_fn(0.9)}, starts=4, every=3)
pytorch("average.swa", on(o.Adam, lr=0.05), average={}, starts=0, every=1)
pytorch("average.swa_later", on(o.Adam, lr=0.05), average={}, starts=9, every=5)
# The iterations in f64 in place of bf16.
bf16, torch.bfloat16 = torch.bfloat16, torch.float64
matrices = {"matrix": None, "tall": None}
pytorch("muon", on(o.Muon, lr=0.02), only=matrices, turn=True)
pytorch("muon.options", on(o.Muon, lr=0.01, weight_decay=0.3, momentum=0.8, nesterov=False, adjust_lr_fn="match_rms_adamw"), only=matrices, turn=True)
torch.bfloat16 = bf16
from_optax("lion", optax.lion(0.01))
from_optax("lion.options", optax.lion(0.02, b1=0.8, b2=0.9, weight_decay=0.2))
from_optax("lamb", optax.lamb(0.01))
from_optax("lamb.options", optax.lamb(0.02, b1=0.8, b2=0.9, eps=1e-3, weight_decay=0.2))
from_optax("lars", optax.lars(0.1))
from_optax("lars.options", optax.lars(0.1, weight_decay=0.2, trust_coefficient=0.05, momentum=0.8, nesterov=True))


# Schedules: the rate of each update. `metrics` are those of a plateau, after each update.
def schedule(name, make, rate=0.1, every=1, metrics=None):
    optimizer = o.SGD([torch.zeros(1, requires_grad=True)], lr=rate)
    scheduler, values = make(optimizer), []
    for step in range(STEPS):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if (step + 1) % every == 0:
            scheduler.step(*([] if metrics is None else [metrics[step]]))
    cases[f"schedule.{name}"] = values


def warmed(optimizer, steps, then):
    """A warm-up whose first rate is 1 / steps of the peak."""
    warmup = schedules.LinearLR(optimizer, 1 / steps, 1.0, steps - 1)
    return schedules.SequentialLR(optimizer, [warmup, then], [steps])


schedule("constant", lambda s: schedules.ConstantLR(s, 1.0))
schedule("constant.warmup", lambda s: warmed(s, 10, schedules.ConstantLR(s, 1.0)))
schedule("linear", lambda s: schedules.LinearLR(s, 1.0, 0.2, 25))
schedule("cosine", lambda s: schedules.CosineAnnealingLR(s, 50, eta_min=0.01))
schedule("cosine.warmup", lambda s: warmed(s, 10, schedules.CosineAnnealingLR(s, 40)))
schedule("step", lambda s: schedules.StepLR(s, 7, 0.5))
schedule("step.epochs", lambda s: schedules.StepLR(s, 2, 0.5), every=8)
schedule("exponential", lambda s: schedules.ExponentialLR(s, 0.93))
schedule("exponential.epochs", lambda s: schedules.ExponentialLR(s, 0.9), every=6)
schedule("one_cycle", lambda s: schedules.OneCycleLR(s, 0.3, total_steps=50))
schedule("polynomial", lambda s: schedules.PolynomialLR(s, 30, 2.0))
schedule("warm_restarts", lambda s: schedules.CosineAnnealingWarmRestarts(s, 7, eta_min=0.01))
schedule("warm_restarts.longer", lambda s: schedules.CosineAnnealingWarmRestarts(s, 3, 2, eta_min=0.001))
root = lambda step: min((step + 1) / 10, math.sqrt(10 / (step + 1)))
schedule("inverse_sqrt", lambda s: schedules.LambdaLR(s, root))
metrics = np.round(1 / (1 + np.arange(STEPS) // 4) + 0.05 * generator.standard_normal(STEPS), 4).tolist()
schedule("plateau", lambda s: schedules.ReduceLROnPlateau(s, factor=0.5, patience=2, cooldown=1, threshold=0.01), metrics=metrics)
schedule("plateau.max", lambda s: schedules.ReduceLROnPlateau(s, "max", factor=0.6, patience=0, min_lr=0.02), metrics=metrics)

file = {
    "shapes": SHAPES,
    "shown": list(SHOWN),
    "params": {name: flat(value) for name, value in params.items()},
    "grads": {name: [flat(step[name]) for step in grads] for name in SHAPES},
    "metrics": metrics,
    "updates": {name: value for name, value in cases.items() if not name.startswith("schedule.")},
    "schedules": {name.removeprefix("schedule."): value for name, value in cases.items() if name.startswith("schedule.")},
}
lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in file.items())
pathlib.Path(__file__).with_name("optimizers.json").write_text("{\n" + lines + "\n}\n")
print(len(cases), "cases")
