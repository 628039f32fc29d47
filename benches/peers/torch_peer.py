#!/usr/bin/env python3
"""PyTorch. `torch_peer.py w1|w2|w6 [compile] [channels_last] [one_thread]`; see README.md for the work.

`compile`: forward and backward by torch.compile. Optimizers are the fused ones.
"""
import os, sys, time

import torch
import torch.nn.functional as F
from torch import nn

from protocol import serve

WORKLOAD, OPTIONS = sys.argv[1], sys.argv[2:]
torch.set_num_threads(1 if "one_thread" in OPTIONS else int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
torch.manual_seed(0)


def labels(count, classes):
    return torch.randint(0, classes, (count,))


def mlp(sizes):
    layers = [layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Linear(128, 10))


def sgd(**options):
    return lambda params: torch.optim.SGD(params, fused=True, **options)


WORK = {
    "w1": lambda: (mlp([784, 512, 512, 10]), lambda params: torch.optim.Adam(params, 1e-3, fused=True), torch.randn(128, 784), labels(128, 10)),
    "w2": lambda: (cnn(), sgd(lr=0.01, momentum=0.9), torch.randn(128, 1, 28, 28), labels(128, 10)),
    "w6": lambda: (mlp([32, 32, 32]), sgd(lr=0.01), torch.randn(8, 32), labels(8, 32)),
}
model, optimizer, x, y = WORK[WORKLOAD]()
if "channels_last" in OPTIONS:
    model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
optimizer = optimizer(model.parameters())


def loss_of(x, y):
    return F.cross_entropy(model(x), y)


if "compile" in OPTIONS:
    loss_of = torch.compile(loss_of)


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = loss_of(x, y)
    loss.backward()
    optimizer.step()
    return loss


started = time.perf_counter()
loss = step().item()
first = time.perf_counter() - started


def run(steps):
    for _ in range(steps):
        step()


serve(first, run, loss)
