#!/usr/bin/env python3
"""Losses of whole networks in PyTorch, step by step, for `halite-tests --bin parity` and the golden file `parity.json`.

    python3 -m venv V && V/bin/pip install torch==2.15.0 torchvision==0.29.2 transformers==5.24.0 safetensors numpy
    V/bin/python parity.py --golden                                          # writes parity.json: small networks, 10 steps
    V/bin/python parity.py --model resnet18 --size full --steps 50 --dtype f64   # prints one network as JSON
    V/bin/python parity.py --model ct --batches FILE --data DIR                  # batches of halite, and their files

Initial weights and batches are functions of their names and indices, which `tests/src/parity/formula.rs` computes too.
`--perturb` multiplies each weight by 1 + d, |d| <= 2^-52: how much the losses differ is the condition of the run.
"""
import argparse, json, pathlib
import numpy
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional as F

BATCHES = 4  # Step i trains on batch i % BATCHES.


def bits(name, count):
    """SplitMix64 from the FNV-1a hash of the name, as uint64."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(seed) + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        return z ^ (z >> numpy.uint64(31))


def unit(name, *dims):
    """Uniform numbers in [-1, 1)."""
    count = int(numpy.prod(dims))
    values = (bits(name, count) >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-52 - 1.0
    return torch.from_numpy(values.reshape(dims))


def integers(name, high, *dims):
    values = (bits(name, int(numpy.prod(dims))) % numpy.uint64(high)).astype(numpy.int64)
    return torch.from_numpy(values.reshape(dims))


def initial(name, dims):
    """Matrices and kernels within 1 / sqrt(elements of a row); scales and variances around 1, the rest around 0."""
    values = unit(name, *dims)
    if len(dims) > 1:
        return values / numpy.sqrt(numpy.prod(dims[1:]))
    is_scale = name.endswith("var") or name.endswith("weight")
    return values * 0.1 + (1.0 if is_scale else 0.0)


class Basic(nn.Module):
    """Basic block with torchvision's names, of any width."""

    def __init__(self, ins, outs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(ins, outs, 3, stride, 1, bias=False), nn.BatchNorm2d(outs)
        self.conv2, self.bn2 = nn.Conv2d(outs, outs, 3, 1, 1, bias=False), nn.BatchNorm2d(outs)
        self.downsample = None
        if stride != 1 or ins != outs:
            self.downsample = nn.Sequential(nn.Conv2d(ins, outs, 1, stride, bias=False), nn.BatchNorm2d(outs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class NarrowResNet(nn.Module):
    def __init__(self, width, classes, blocks=(2, 2, 2, 2), small_stem=True):
        super().__init__()
        stem = nn.Conv2d(3, width, 3, 1, 1, bias=False) if small_stem else nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.conv1, self.bn1 = stem, nn.BatchNorm2d(width)
        self.maxpool = nn.Identity() if small_stem else nn.MaxPool2d(3, 2, 1)
        ins = width
        for stage in range(4):
            outs, stride = width << stage, 1 if stage == 0 else 2
            later = [Basic(outs, outs, 1) for _ in range(blocks[stage] - 1)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(Basic(ins, outs, stride), *later))
            ins = outs
        self.fc = nn.Linear(ins, classes)

    def forward(self, x):
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        for stage in range(4):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))


class LstmClassifier(nn.Module):
    def __init__(self, vocab, width, hidden, classes):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.lstm = nn.LSTM(width, hidden, 2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, classes)

    def forward(self, tokens):
        _, (h, _) = self.lstm(self.embedding(tokens))
        return self.fc(torch.cat([h[-2], h[-1]], 1))


# Sizes and rates are also in `tests/src/parity/networks.rs`.
def resnet18(full):
    if full:
        import torchvision
        net = torchvision.models.resnet18(num_classes=10)
        net.conv1, net.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    else:
        net = NarrowResNet(4, 10)
    # Batch norm over a few elements amplifies rounding until the losses of two runs differ: 16 elements are enough.
    side, batch = (32, 8) if full else (16, 4)
    return net, image_batches(batch, side), lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=5e-4)


def vit(full):
    from torchvision.models import VisionTransformer
    hidden, layers, side, batch = (64, 6, 32, 8) if full else (16, 2, 8, 4)
    net = VisionTransformer(image_size=side, patch_size=4, num_layers=layers, num_heads=4, hidden_dim=hidden,
                            mlp_dim=2 * hidden, num_classes=10)
    return net, image_batches(batch, side), lambda p: torch.optim.AdamW(p, lr=3e-4, weight_decay=0.01)


def lstm(full):
    vocab, width, hidden, time, batch = (500, 64, 64, 40, 16) if full else (20, 6, 5, 7, 4)
    tokens = [integers(f"tokens.{i}", vocab, batch, time) for i in range(BATCHES)]
    labels = [integers(f"labels.{i}", 4, batch) for i in range(BATCHES)]
    step = lambda net, i: F.cross_entropy(net(tokens[i]), labels[i])
    return LstmClassifier(vocab, width, hidden, 4), step, lambda p: torch.optim.AdamW(p, lr=5e-4, weight_decay=0.01)


def gpt(full):
    from transformers import GPT2Config, GPT2LMHeadModel
    vocab, hidden, time, batch = (256, 128, 64, 8) if full else (20, 8, 6, 3)
    config = GPT2Config(vocab_size=vocab, n_positions=time, n_embd=hidden, n_layer=6, n_head=4, resid_pdrop=0.0,
                        embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, bos_token_id=0, eos_token_id=0)
    tokens = [integers(f"tokens.{i}", vocab, batch, time + 1) for i in range(BATCHES)]
    step = lambda net, i: F.cross_entropy(net(tokens[i][:, :-1]).logits.flatten(0, 1), tokens[i][:, 1:].flatten())
    return GPT2LMHeadModel(config), step, lambda p: torch.optim.AdamW(p, lr=3e-4, weight_decay=0.01)


def image_batches(batch, side):
    images = [unit(f"images.{i}", batch, side, side, 3).movedim(-1, 1) for i in range(BATCHES)]
    labels = [integers(f"labels.{i}", 10, batch) for i in range(BATCHES)]
    return lambda net, i: F.cross_entropy(net(images[i].to(next(net.parameters()).dtype)), labels[i])


def ct(full, file=None):
    """Ten labels of CT slices: pixels from 0 to 255, ImageNet's normalization, binary cross entropy."""
    blocks = (3, 4, 6, 3) if full else (1, 2, 2, 1)
    if full:
        import torchvision
        net = torchvision.models.resnet34(num_classes=10)
    else:
        net = NarrowResNet(4, 10, blocks, small_stem=False)
    side, batch = (64, 8) if full else (64, 4)
    if file is None:
        pixels = [integers(f"images.{i}", 256, batch, side, side, 3) for i in range(BATCHES)]
        labels = [integers(f"labels.{i}", 2, batch, 10) for i in range(BATCHES)]
    else:
        tensors = safetensors.torch.load_file(file)
        pixels = [tensors[f"images.{i}"] for i in range(BATCHES)]
        labels = [tensors[f"labels.{i}"] for i in range(BATCHES)]
    mean, std = torch.tensor([0.485, 0.456, 0.406], dtype=torch.float64), torch.tensor([0.229, 0.224, 0.225], dtype=torch.float64)

    def step(net, i):
        dtype = next(net.parameters()).dtype
        images = ((pixels[i].double() / 255 - mean) / std).to(dtype).movedim(-1, 1)
        return F.binary_cross_entropy_with_logits(net(images), labels[i].to(dtype))

    return net, step, lambda p: torch.optim.Adam(p, lr=1e-4)


MODELS = dict(resnet18=resnet18, vit=vit, lstm=lstm, gpt=gpt, ct=ct)
# The rate of `ct` is halved after each ten steps.
SCHEDULES = dict(ct=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5))


def pixel_differences(file, data):
    """How Pillow and torchvision read the files of halite's batches: the largest difference of a pixel, and how many differ."""
    import csv
    from PIL import Image
    from torchvision import transforms as T
    batches = safetensors.torch.load_file(file)
    ours = torch.cat([batches[f"images.{i}"] for i in range(BATCHES)])
    resize = T.Compose([T.Resize(ours.shape[1]), T.CenterCrop(ours.shape[1])])
    rows = list(csv.DictReader(open(pathlib.Path(data) / "train.csv")))[: len(ours)]
    theirs = []
    for row in rows:
        folder = pathlib.Path(data) / "train" / row["StudyInstanceUID"] / row["SeriesInstanceUID"]
        path, = folder.glob(f"*{row['SOPInstanceUID']}.jpg")
        theirs.append(torch.from_numpy(numpy.array(resize(Image.open(path).convert("RGB")))))
    apart = (torch.stack(theirs).int() - ours.int()).abs()
    return dict(largest=apart.max().item(), fraction=(apart > 0).double().mean().item())


def run(model, size, steps, dtype, threads=1, perturb=None, batches=None):
    """The types of all tensors of the network, and the loss of each step. `perturb` is a seed, `batches` a file for `ct`."""
    torch.set_num_threads(threads)
    net, loss_of, optimizer_of = MODELS[model](size == "full", *([batches] if batches else []))
    # A tied weight has one name.
    tied = {name for name, _ in net.named_parameters(remove_duplicate=False)} - {name for name, _ in net.named_parameters()}
    state = {name: value for name, value in net.state_dict().items() if value.is_floating_point() and name not in tied}
    tensors = {name: list(value.shape) for name, value in state.items()}
    net = net.to(dict(f64=torch.float64, f32=torch.float32)[dtype]).train()
    with torch.no_grad():
        for name, value in net.state_dict().items():
            if name in tensors:
                values = initial(name, tensors[name])
                if perturb is not None:
                    values = values * (1 + unit(f"{perturb}.{name}", *values.shape) * 2.0**-52)
                value.copy_(values)
    optimizer, losses = optimizer_of(net.parameters()), []
    schedule = SCHEDULES[model](optimizer) if model in SCHEDULES else None
    for step in range(steps):
        loss = loss_of(net, step % BATCHES)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
        losses.append(loss.item())
    return dict(tensors=tensors, losses=losses)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--golden", action="store_true", help="write parity.json")
    parser.add_argument("--model", choices=MODELS, default="lstm")
    parser.add_argument("--size", choices=["small", "full"], default="full")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--dtype", choices=["f64", "f32"], default="f64")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--perturb", metavar="SEED", help="change the initial weights by up to one unit in the last place of f64")
    parser.add_argument("--batches", metavar="FILE", help="safetensors file of the batches of `ct`, else they are computed")
    parser.add_argument("--data", metavar="DIR", help="their data set: compare the pixels with those by Pillow and torchvision")
    arguments = parser.parse_args()
    if arguments.golden:
        lines = [f"{json.dumps(name)}: {json.dumps(run(name, 'small', 10, 'f64'))}" for name in MODELS]
        path = pathlib.Path(__file__).with_suffix(".json")
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        print(f"{len(lines)} networks, {path.stat().st_size} bytes")
    else:
        result = run(arguments.model, arguments.size, arguments.steps, arguments.dtype, arguments.threads, arguments.perturb, arguments.batches)
        if arguments.data:
            result["pixels"] = pixel_differences(arguments.batches, arguments.data)
        print(json.dumps(result))
