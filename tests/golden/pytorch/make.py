#!/usr/bin/env python3
"""Golden values of layers, losses, optimizers and schedules, as PyTorch computes them in f64.

    python3 -m venv V && V/bin/pip install torch==2.15.0 numpy && V/bin/python make.py

Writes `layers.json` beside this file. Images are turned from PyTorch's [batch, features, height, width] to halite's
features last, and kernels from [out, in, height, width] to [height, width, in, out], on the way in and out.
"""
import math
import torch
from torch import nn
from torch.nn import functional as F

from cases import case, cases, draw, first, kernel, last, pack, write

# Activations
x = torch.tensor([-60.0, -8, -3.5, -3, -1.2, -0.3, 0, 0.2, 0.9, 2.9, 3, 5, 6, 7, 45, 80])
activations = {
    "relu": F.relu, "relu6": F.relu6, "leaky_relu": lambda x: F.leaky_relu(x, 0.1), "elu": lambda x: F.elu(x, 1.5),
    "selu": F.selu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "mish": F.mish,
    # PyTorch gives x beyond a threshold of 20; this is the function itself.
    "softplus": lambda x: torch.logaddexp(x, torch.zeros(())), "log_sigmoid": F.logsigmoid,
    "hard_sigmoid": F.hardsigmoid, "hard_swish": F.hardswish, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
    "erf_inv": lambda x: torch.erfinv(x),
}
for name, function in activations.items():
    points = torch.tensor([-1 + 1e-12, -0.9999, -0.97, -0.5, -1e-9, 0, 0.1, 0.8, 0.99, 0.9999999]) if name == "erf_inv" else x
    case(f"activation.{name}", [points], function)
case("activation.glu", [draw(3, 6)], F.glu)

# Layers
case("linear", [draw(2, 3, 4), draw(4, 5), draw(5)], lambda x, w, b: F.linear(x, w.T, b))
case("linear.no_bias", [draw(3, 4), draw(4, 2)], lambda x, w: F.linear(x, w.T))
case("conv2d", [draw(2, 6, 5, 3), draw(3, 3, 3, 4), draw(4)], lambda x, w, b: last(F.conv2d(first(x), kernel(w), b)))
case("conv2d.same", [draw(1, 5, 5, 2), draw(3, 3, 2, 3), draw(3)], lambda x, w, b: last(F.conv2d(first(x), kernel(w), b, padding="same")))
case("conv2d.strided", [draw(1, 7, 6, 2), draw(3, 2, 2, 3), draw(3)],
     lambda x, w, b: last(F.conv2d(first(x), kernel(w), b, stride=(2, 1), padding=(1, 0))))
case("conv2d.dilated_groups", [draw(1, 7, 7, 4), draw(3, 3, 2, 6)],
     lambda x, w: last(F.conv2d(first(x), kernel(w), None, padding=2, dilation=2, groups=2)))
case("conv1d", [draw(2, 8, 3), draw(3, 3, 4), draw(4)], lambda x, w, b: last(F.conv1d(first(x), kernel(w), b, padding=1)))
case("conv3d", [draw(1, 3, 4, 3, 2), draw(2, 2, 2, 2, 3), draw(3)], lambda x, w, b: last(F.conv3d(first(x), kernel(w), b)))
case("max_pool", [draw(2, 4, 6, 3)], lambda x: last(F.max_pool2d(first(x), 2)))
case("max_pool.odd", [draw(1, 5, 7, 2)], lambda x: last(F.max_pool2d(first(x), 2)))
case("max_pool.overlapping", [draw(1, 7, 7, 2)], lambda x: last(F.max_pool2d(first(x), 3, stride=2, padding=1)))
case("avg_pool", [draw(1, 6, 6, 2)], lambda x: last(F.avg_pool2d(first(x), 3, stride=2, padding=1)))
case("global_avg_pool", [draw(2, 3, 4, 5)], lambda x: x.mean((1, 2)))
case("global_max_pool", [draw(2, 3, 4, 5)], lambda x: x.amax((1, 2)))


def batch_norm(x, scale, bias, mean, variance, training, **options):
    mean, variance = mean.detach().clone(), variance.detach().clone()
    y = last(F.batch_norm(first(x), mean, variance, scale, bias, training=training, **options))
    return y, mean, variance


norms = lambda n: [draw(n, scale=0.3, shift=1), draw(n), draw(n), draw(n).abs() + 0.5]
case("batch_norm.training", [draw(3, 2, 4, 5, scale=2, shift=3)] + norms(5), lambda *a: batch_norm(*a, training=True))
case("batch_norm.momentum", [draw(6, 3)] + norms(3), lambda *a: batch_norm(*a, training=True, momentum=0.25, eps=1e-3))
# The mean is far from 0, and the running mean does not know it.
case("batch_norm.offset", [draw(8, 2, scale=0.1, shift=100)] + norms(2), lambda *a: batch_norm(*a, training=True))
case("batch_norm.evaluation", [draw(3, 2, 2, 5)] + norms(5), lambda *a: batch_norm(*a, training=False)[:1])
case("layer_norm", [draw(2, 3, 6, scale=2, shift=-1), draw(6), draw(6)], lambda x, s, b: F.layer_norm(x, [6], s, b))
case("layer_norm.no_bias", [draw(4, 6), draw(6)], lambda x, s: F.layer_norm(x, [6], s, eps=1e-3))
case("group_norm", [draw(2, 3, 2, 6, shift=2), draw(6), draw(6)], lambda x, s, b: last(F.group_norm(first(x), 3, s, b)))
case("rms_norm", [draw(2, 3, 6, scale=2), draw(6)], lambda x, s: F.rms_norm(x, [6], s, eps=1e-6))
case("embedding", [torch.tensor([[1, 0, 4], [1, 1, 2]]), draw(5, 3)], lambda ids, table: F.embedding(ids, table))
case("embedding.attend", [draw(2, 3), draw(5, 3)], lambda x, table: x @ table.T)

# Losses
logits, target = draw(6, 5, scale=3), torch.tensor([0, 4, 2, 2, 1, 3])
ignored = torch.tensor([0, -100, 2, -100, 1, 3])
class_weights, weights = draw(5).abs() + 0.1, torch.tensor([1.0, 0, 2, 0.5, 1, 3])
case("cross_entropy", [logits, target], F.cross_entropy)
case("cross_entropy.large", [logits * 300, target], F.cross_entropy)
case("cross_entropy.positions", [draw(2, 3, 4), torch.tensor([[0, 3, 1], [2, 2, 0]])], lambda x, t: F.cross_entropy(first(x), t))
case("cross_entropy.smoothing", [logits, target], lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1))
case("cross_entropy.ignore", [logits, ignored], lambda x, t: F.cross_entropy(x, t))
case("cross_entropy.class_weights", [logits, target, class_weights], lambda x, t, w: F.cross_entropy(x, t, w.detach()))
case("cross_entropy.everything", [logits, ignored, class_weights], lambda x, t, w: F.cross_entropy(x, t, w.detach(), label_smoothing=0.2))
case("cross_entropy.weights", [logits, target, weights],
     lambda x, t, w: (F.cross_entropy(x, t, reduction="none") * w.detach()).sum() / w.detach().sum())
probabilities = draw(6, 5).softmax(1)
case("soft_cross_entropy", [logits, probabilities], lambda x, t: F.cross_entropy(x, t.detach()))
hard = torch.tensor([[0.0, 1, 0], [0.25, 0.5, 0.25]])
case("kl_divergence", [draw(2, 3), hard], lambda x, t: F.kl_div(x.log_softmax(1), t.detach(), reduction="batchmean"))
a, b = torch.tensor([[-100.0, -2, 0], [0.7, 3, 100]]), torch.tensor([[1.0, 0, 0.5], [0, 1, 1]])
case("bce_with_logits", [a, b], lambda x, t: F.binary_cross_entropy_with_logits(x, t.detach()))
a, b = draw(4, 3), draw(4, 3)
case("mse", [a, b], F.mse_loss)
case("mae", [a, b], F.l1_loss)
case("huber", [a, b], lambda x, t: F.huber_loss(x, t, delta=0.7))
case("smooth_l1", [a, b], lambda x, t: F.smooth_l1_loss(x, t, beta=0.7))


# Optimizers: a matrix and a vector through six updates. Outputs are the matrix and the vector after each.
def optimize(name, make, max_norm=None, unused=None):
    params = [draw(2, 3), draw(3)]
    grads = [[draw(2, 3), draw(3)] for _ in range(6)]
    leaves = [p.clone().requires_grad_() for p in params]
    optimizer = make(leaves)
    optimizer, schedule = optimizer if isinstance(optimizer, tuple) else (optimizer, None)
    outputs = []
    for step in grads:
        for leaf, grad in zip(leaves, step):
            leaf.grad = grad.clone()
        if unused is not None:
            leaves[unused].grad = None
        if max_norm is not None:
            outputs.append(nn.utils.clip_grad_norm_(leaves, max_norm))
        optimizer.step()
        if schedule is not None:
            schedule.step()
        outputs += [leaf.detach().clone() for leaf in leaves]
    cases[f"optimizer.{name}"] = {"inputs": [pack(t) for t in params + sum(grads, [])], "outputs": [pack(t) for t in outputs]}


sgd, adam, adamw, schedules = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.lr_scheduler
matrices = lambda leaves, decay: [{"params": leaves[:1], "weight_decay": decay}, {"params": leaves[1:], "weight_decay": 0.0}]
optimize("sgd", lambda p: sgd(p, lr=0.1))
optimize("sgd.momentum", lambda p: sgd(p, lr=0.1, momentum=0.9))
optimize("sgd.dampening", lambda p: sgd(p, lr=0.1, momentum=0.9, dampening=0.3))
optimize("sgd.nesterov", lambda p: sgd(p, lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.1))
optimize("sgd.decay_of_matrices", lambda p: sgd(matrices(p, 0.1), lr=0.1))
optimize("adam", lambda p: adam(p, lr=0.01))
optimize("adam.options", lambda p: adam(p, lr=0.1, betas=(0.7, 0.9), eps=1e-3, weight_decay=0.2))
optimize("adamw", lambda p: adamw(p, lr=0.01, weight_decay=0.3))
optimize("adamw.matrices", lambda p: adamw(matrices(p, 0.01), lr=0.01))
optimize("adam.clipped", lambda p: adam(p, lr=0.01), max_norm=1.5)


def scheduled(p):
    optimizer = adamw(matrices(p, 0.1), lr=0.02)
    return optimizer, schedules.CosineAnnealingLR(optimizer, 5)


optimize("adamw.cosine", scheduled)
optimize("adamw.defaults", lambda p: adamw(p, lr=0.01))
# A parameter without a gradient is skipped: neither weight decay nor momentum changes it.
optimize("sgd.unused", lambda p: sgd(p, lr=0.1, momentum=0.9, weight_decay=0.1), unused=1)
optimize("adam.unused", lambda p: adam(p, lr=0.01, weight_decay=0.1), unused=1)
optimize("adamw.unused", lambda p: adamw(p, lr=0.01), unused=1)
optimize("adamw.unused_clipped", lambda p: adamw(p, lr=0.01), max_norm=1.5, unused=0)


# Schedules: the rate of each of 40 updates.
def schedule(name, make, rate=0.1):
    optimizer = sgd([torch.zeros(1, requires_grad=True)], lr=rate)
    scheduler, values = make(optimizer), []
    for step in range(40):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step < 39:
            scheduler.step()
    cases[f"schedule.{name}"] = {"inputs": [], "outputs": [pack(torch.tensor(values))]}


sequential = schedules.SequentialLR
schedule("step", lambda o: schedules.StepLR(o, 7, 0.5))
schedule("piecewise", lambda o: schedules.MultiStepLR(o, [5, 20], 0.1))
schedule("exponential", lambda o: schedules.ExponentialLR(o, 0.93))
# Not past its end, where PyTorch's rises again.
schedule("cosine", lambda o: schedules.CosineAnnealingLR(o, 39, eta_min=0.01))
schedule("polynomial", lambda o: schedules.PolynomialLR(o, 30, 2.0))
schedule("linear", lambda o: schedules.LinearLR(o, 1.0, 0.2, 25))
schedule("one_cycle", lambda o: schedules.OneCycleLR(o, 0.3, total_steps=40))

write("layers.json")
