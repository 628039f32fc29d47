#!/usr/bin/env python3
"""PyTorch. `torch_peer.py w1|w2|..|w8 [bf16] [compile] [channels_last] [one_thread] [cuda]`; see README.md for the work.

`compile`: forward and backward by torch.compile. `bf16`: autocast, parameters in f32. Optimizers are the fused ones.
"""
import math, os, sys

import torch
import torch.nn.functional as F
from torch import nn

from protocol import serve

WORKLOAD, OPTIONS = sys.argv[1], sys.argv[2:]
torch.set_num_threads(1 if "one_thread" in OPTIONS else int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
torch.manual_seed(0)
DEVICE = "cuda" if "cuda" in OPTIONS else "cpu"
if DEVICE == "cuda":
    torch.set_float32_matmul_precision("high")  # TF32, as XLA's products of f32


def labels(dims, classes):
    return (torch.arange(math.prod(dims)) * 7919 % classes).reshape(dims)


def mlp(sizes):
    layers = [layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Linear(128, 10))


def conv_norm(inputs, outputs, window, stride=1):
    conv = nn.Conv2d(inputs, outputs, window, stride, window // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    """A basic block of two 3x3 convolutions, or a bottleneck of 1x1, 3x3 and 1x1."""

    def __init__(self, bottleneck, inputs, width, stride):
        super().__init__()
        if bottleneck:
            outputs, parts = 4 * width, [conv_norm(inputs, width, 1), conv_norm(width, width, 3, stride), conv_norm(width, 4 * width, 1)]
        else:
            outputs, parts = width, [conv_norm(inputs, width, 3, stride), conv_norm(width, width, 3)]
        self.parts = nn.ModuleList(parts)
        self.projection = conv_norm(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else nn.Identity()

    def forward(self, x):
        y = self.parts[0](x)
        for part in self.parts[1:]:
            y = part(F.relu(y))
        return F.relu(y + self.projection(x))


def resnet(stem, stages, bottleneck, classes):
    """He et al. 2015 in the form of torchvision, the stride of a bottleneck in its 3x3 convolution."""
    layers, inputs = list(stem), 64
    for stage, count in enumerate(stages):
        for block in range(count):
            layers.append(Residual(bottleneck, inputs, 64 << stage, 2 if block == 0 and stage else 1))
            inputs = (256 if bottleneck else 64) << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def resnet18_small():
    return resnet([conv_norm(3, 64, 3), nn.ReLU()], [2, 2, 2, 2], False, 10)


def resnet50():
    return resnet([conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], [3, 4, 6, 3], True, 1000)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.n1(x)).chunk(3, 2))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2's form and first weights, with an output layer of its own; gives logits `[batch * time, vocabulary]`."""

    def __init__(self, layers, width, heads, time, vocabulary):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Parameter(0.02 * torch.randn(time, width))
        self.blocks, self.norm = nn.Sequential(*(Block(width, heads) for _ in range(layers))), nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        for block in self.blocks:
            for residual in (block.o, block.down):
                nn.init.normal_(residual.weight, std=0.02 / (2 * layers) ** 0.5)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.tokens(ids) + self.positions))).flatten(0, 1)


class LastNorm(nn.LayerNorm):
    """Layer norm over the features of images."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width, 1e-6)
        self.hidden, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.out(F.gelu(self.hidden(y))) * self.scale).permute(0, 3, 1, 2)


def convnext(widths, classes):
    """Liu et al. 2022 in the form of torchvision, two blocks a stage."""
    layers, inputs = [], 3
    for stage, width in enumerate(widths):
        if stage == 0:
            layers += [nn.Conv2d(inputs, width, 4, 4), LastNorm(width, 1e-6)]
        else:
            layers += [LastNorm(inputs, 1e-6), nn.Conv2d(inputs, width, 2, 2)]
        layers += [ConvNextBlock(width) for _ in range(2)]
        inputs = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(inputs, 1e-6), nn.Linear(inputs, classes))
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.trunc_normal_(module.weight, std=0.02, a=-0.04, b=0.04)
            nn.init.zeros_(module.bias)
    return model


class Vae(nn.Module):
    """A variational autoencoder of images of 28x28; its own loss is in `loss`."""

    def __init__(self, latent=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.ReLU(), nn.Flatten(),
                                     nn.Linear(7 * 7 * 64, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 7 * 7 * 64), nn.ReLU(), nn.Unflatten(1, (64, 7, 7)),
                                     nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, 2, 1))

    def loss(self, x, y):
        mean, log_variance = self.encoder(x).chunk(2, 1)
        logits = self.decoder(mean + (0.5 * log_variance).exp() * torch.randn_like(mean))
        mean, log_variance = mean.float(), log_variance.float()
        pixels = F.binary_cross_entropy_with_logits(logits.float(), y, reduction="sum")
        divergence = 0.5 * (mean.square() + log_variance.exp() - log_variance - 1).sum()
        return (pixels + divergence) / len(x)


def pixels(*dims):
    return (torch.arange(math.prod(dims)) * 7919 % 65 / 64).reshape(dims)


def sgd(**options):
    return lambda params: torch.optim.SGD(params, fused=True, **options)


WORK = {
    "w1": lambda: (mlp([784, 512, 512, 10]), lambda params: torch.optim.Adam(params, 1e-3, fused=True), torch.randn(128, 784), labels((128,), 10)),
    "w2": lambda: (cnn(), sgd(lr=0.01, momentum=0.9), torch.randn(128, 1, 28, 28), labels((128,), 10)),
    "w3": lambda: (resnet18_small(), sgd(lr=0.01, momentum=0.9, weight_decay=5e-4), torch.randn(64, 3, 32, 32), labels((64,), 10)),
    "w4": lambda: (Gpt(6, 384, 6, 256, 65), lambda params: torch.optim.Adam(params, 3e-4, fused=True), labels((16, 256), 65), labels((16 * 256,), 65)),
    "w5": lambda: (resnet50(), sgd(lr=0.01, momentum=0.9, weight_decay=1e-4), torch.randn(8, 3, 224, 224), labels((8,), 1000)),
    "w6": lambda: (mlp([32, 32, 32]), sgd(lr=0.01), torch.randn(8, 32), labels((8,), 32)),
    "w7": lambda: (convnext([32, 64, 128], 10), lambda params: torch.optim.AdamW(params, 1e-3, weight_decay=0.05, fused=True),
                   torch.randn(16, 3, 64, 64), labels((16,), 10)),
    "w8": lambda: (Vae(), lambda params: torch.optim.Adam(params, 1e-3, fused=True), *[pixels(32, 1, 28, 28)] * 2),
}
model, optimizer, x, y = WORK[WORKLOAD]()
model, x, y = model.to(DEVICE), x.to(DEVICE), y.to(DEVICE)
if "channels_last" in OPTIONS:
    model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
optimizer = optimizer(model.parameters())


def loss_of(x, y):
    with torch.autocast(DEVICE, torch.bfloat16, enabled="bf16" in OPTIONS):
        return model.loss(x, y) if hasattr(model, "loss") else F.cross_entropy(model(x).float(), y)


if "compile" in OPTIONS:
    # A graph of CUDA has no launches of single kernels.
    loss_of = torch.compile(loss_of, mode="reduce-overhead" if DEVICE == "cuda" else None)


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = loss_of(x, y)
    loss.backward()
    optimizer.step()
    return loss


def run(steps):
    for _ in range(steps):
        loss = step()
    return loss.item()


if __name__ == "__main__":
    serve(run, sum(parameter.numel() for parameter in model.parameters()))
