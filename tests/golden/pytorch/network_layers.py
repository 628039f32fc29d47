#!/usr/bin/env python3
"""Golden values of the layers of decoders, recurrent networks and transformers of images, as PyTorch computes them in f64.

    python3 -m venv V && V/bin/pip install torch==2.15.0 numpy && V/bin/python network_layers.py

Writes `network_layers.json` beside this file. `options` of a case are the arguments of its layer.
"""
import itertools, random
import torch
from torch import nn
from torch.nn import functional as F
from torch.func import functional_call

from cases import case, draw, first, kernel, last, write

random.seed(0)
nan = float("nan")
transposed = lambda w: w.movedim(-1, 0).movedim(-1, 0)  # [.., in, out / groups] -> [in, out / groups, ..]
conv_transpose = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
conv = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


# Transposed convolutions: fixed ones, then random ones.
def add_conv_transpose(name, dims, groups, ins, outs, window, stride, padding, output_padding, dilation, batch=2, bias=True):
    n = len(dims)
    options = dict(stride=stride, padding=padding, output_padding=output_padding, dilation=dilation, groups=groups)
    inputs = [draw(batch, *dims, ins), draw(*window, ins, outs // groups)] + ([draw(outs)] if bias else [])
    case(f"conv_transpose.{name}", inputs,
         lambda x, w, b=None: last(conv_transpose[n](first(x).contiguous(), transposed(w).contiguous(), b, **options)), options=options)


add_conv_transpose("tiled", [3, 2], 1, 3, 2, [2, 3], [2, 3], [0, 0], [0, 0], [1, 1])
add_conv_transpose("gan", [3, 3], 1, 2, 3, [4, 4], [2, 2], [1, 1], [0, 0], [1, 1])
add_conv_transpose("doubling", [3, 2], 1, 2, 2, [3, 3], [2, 2], [1, 1], [1, 1], [1, 1])
add_conv_transpose("depthwise", [4], 3, 3, 3, [3], [2], [1], [1], [1])
add_conv_transpose("one", [1, 1], 1, 1, 1, [1, 1], [1, 1], [0, 0], [0, 0], [1, 1], batch=1)
add_conv_transpose("cut", [4], 1, 2, 2, [1], [1], [1], [0], [1])
number = 0
while number < 12:
    n = number % 3 + 1
    pick = lambda low, high: [random.randint(low, high) for _ in range(n)]
    dims, window, stride, dilation, padding = pick(1, 4), pick(1, 3), pick(1, 3), pick(1, 2), pick(0, 2)
    output_padding = [random.randrange(max(s, d)) for s, d in zip(stride, dilation)]
    sizes = [(i - 1) * s - 2 * p + d * (w - 1) + o + 1
             for i, s, p, d, w, o in zip(dims, stride, padding, dilation, window, output_padding)]
    if min(sizes) < 1:
        continue
    groups = random.choice([1, 1, 2])
    ins, outs = groups * random.randint(1, 2), groups * random.randint(1, 2)
    add_conv_transpose(f"random{number:02}", dims, groups, ins, outs, window, stride, padding, output_padding, dilation,
                       batch=random.randint(1, 2), bias=random.random() < 0.5)
    number += 1

for n, dims, window in [(1, [5], [3]), (2, [4, 5], [3, 2]), (3, [2, 3, 2], [2, 2, 1])]:
    case(f"depthwise.{n}d", [draw(2, *dims, 3), draw(*window, 1, 3), draw(3)],
         lambda x, w, b, n=n: last(conv[n](first(x), kernel(w), b, groups=3)), options=dict(window=window))


# Recurrent layers. The weights are [in, gates * hidden]; the first output is everything, so that its gradient is, too.
def add_recurrent(name, kind, batch, time, ins, hidden, layers=1, bidirectional=False, bias=True, initial=False):
    module = kind(ins, hidden, layers, bias=bias, bidirectional=bidirectional, batch_first=True)
    names = [name for name, _ in module.named_parameters()]
    is_lstm = kind is nn.LSTM
    weights = [draw(*reversed(p.shape), scale=0.7) for p in module.parameters()]
    directions = 1 + bidirectional
    states = [draw(layers * directions, batch, hidden) for _ in range(1 + is_lstm)] if initial else []

    def compute(x, *rest):
        states, weights = rest[:len(rest) - len(names)], rest[len(rest) - len(names):]
        given = {name: w.T if w.ndim == 2 else w for name, w in zip(names, weights)}
        state = None if not states else tuple(states) if is_lstm else states[0]
        y, end = functional_call(module, given, (x, state) if state is not None else (x,))
        end = end if is_lstm else (end,)
        return torch.cat([y.flatten()] + [h.flatten() for h in end]), y, *end

    options = dict(hidden=hidden, layers=layers, bidirectional=bidirectional, bias=bias, initial=initial)
    case(name, [draw(batch, time, ins)] + states + weights, compute, options=options)


for name, kind in [("lstm", nn.LSTM), ("gru", nn.GRU)]:
    add_recurrent(f"{name}.plain", kind, 2, 4, 3, 2)
    add_recurrent(f"{name}.one", kind, 1, 1, 1, 1)
    add_recurrent(f"{name}.one_step_with_state", kind, 3, 1, 2, 2, initial=True)
    add_recurrent(f"{name}.bidirectional", kind, 1, 3, 2, 2, bidirectional=True)
    add_recurrent(f"{name}.deep", kind, 2, 3, 2, 3, layers=3, bidirectional=True, initial=True)
    add_recurrent(f"{name}.no_bias", kind, 2, 5, 2, 2, layers=2, bias=False)

# Instance norm.
case("instance_norm", [draw(2, 3, 4, 3, scale=2, shift=3), draw(3), draw(3)],
     lambda x, s, b: last(F.instance_norm(first(x), weight=s, bias=b)))
case("instance_norm.plain", [draw(2, 5, 2, shift=-1)], lambda x: last(F.instance_norm(first(x), eps=1e-3)))


class Contiguous(torch.autograd.Function):
    """The identity, whose cotangent is contiguous: PyTorch 2.15 takes another for one, and its gradient is then wrong."""

    @staticmethod
    def forward(_, x):
        return x.clone()

    @staticmethod
    def backward(_, cotangent):
        return cotangent.contiguous()


case("instance_norm.volume", [draw(1, 2, 1, 3, 2), draw(2), draw(2)],
     lambda x, s, b: last(Contiguous.apply(F.instance_norm(first(x).contiguous(), weight=s, bias=b))))


# Attention to another sequence. Weights are [in, heads, width], and [heads, width, out] of the output.
def add_attention(name, features, heads, key_features, value_features, batch, time, source, bias=True, mask=None):
    module = nn.MultiheadAttention(features, heads, bias=bias, kdim=key_features, vdim=value_features, batch_first=True)
    width = features // heads
    weights = [draw(n, heads, width, scale=0.5) for n in (features, key_features, value_features)]
    weights.append(draw(heads, width, features, scale=0.5))
    biases = [draw(heads, width) for _ in range(3)] + [draw(features)] if bias else []
    inputs = [draw(batch, time, features), draw(batch, source, key_features), draw(batch, source, value_features)]

    def compute(x, keys, values, q, k, v, o, *biases):
        flat = [w.reshape(w.shape[0], -1).T for w in (q, k, v)]
        given = {"out_proj.weight": o.reshape(-1, o.shape[2]).T}
        if key_features == value_features == features:
            given["in_proj_weight"] = torch.cat(flat)
        else:
            given |= {f"{name}_proj_weight": w for name, w in zip("qkv", flat)}
        if biases:
            given["in_proj_bias"] = torch.cat([b.flatten() for b in biases[:3]])
            given["out_proj.bias"] = biases[3]
        masked = None if mask is None else ~torch.tensor(mask)
        return functional_call(module, given, (x, keys, values), dict(attn_mask=masked))[0]

    # In the order of halite's leaves: weight and bias of each projection.
    ordered = [t for pair in zip(weights, biases) for t in pair] if bias else weights
    unordered = lambda given: [given[i] for i in (0, 2, 4, 6, 1, 3, 5, 7)] if bias else given
    options = dict(features=features, heads=heads, keys=key_features, values=value_features, bias=bias, mask=mask)
    case(f"attention.{name}", inputs + ordered, lambda x, k, v, *w: compute(x, k, v, *unordered(w)), options=options)


add_attention("cross", 4, 2, 4, 4, 2, 3, 5)
add_attention("features", 6, 3, 5, 2, 2, 2, 4)
add_attention("masked", 4, 1, 3, 3, 1, 2, 3, mask=[[True, False, True], [True, True, False]])
add_attention("one", 2, 1, 2, 2, 1, 1, 1, bias=False)

# Adaptive pooling: bins that are equal, that overlap, that are smaller than the input; and equal maxima.
average = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
largest = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
sizes = [([7], [3]), ([1], [1]), ([2], [5]), ([6], [3]), ([5, 7], [3, 2]), ([4, 6], [2, 4]), ([3, 3], [1, 1]),
         ([3, 2], [7, 3]), ([3, 4, 5], [2, 3, 2]), ([2, 2, 3], [1, 2, 3])]
for dims, size in sizes:
    text = "x".join(map(str, dims)) + "_" + "x".join(map(str, size))
    for name, functions in [("avg", average), ("max", largest)]:
        case(f"adaptive_{name}.{text}", [draw(random.randint(1, 2), *dims, 2)],
             lambda x, n=len(dims): last(functions[n](first(x), size)), options=dict(size=size))
case("adaptive_max.ties", [torch.randint(0, 2, (1, 5, 5, 2)).double()], lambda x: last(F.adaptive_max_pool2d(first(x), [3, 2])),
     options=dict(size=[3, 2]))

# Interpolation: all pairs of small sizes one after the other, images, volumes, and factors.
modes = {"nearest": {}, "nearest-exact": {}, "linear": dict(align_corners=False), "corners": dict(align_corners=True)}
ranks = {1: "linear", 2: "bilinear", 3: "trilinear"}
mode_of = lambda mode, n: mode if mode.startswith("nearest") else ranks[n]
targets = [1, 2, 3, 4, 7, 10]
for mode, arguments in modes.items():
    for n in (1, 2, 5):
        def resize(x, mode=mode, arguments=arguments):
            return torch.cat([last(F.interpolate(first(x), size, mode=mode_of(mode, 1), **arguments)) for size in targets], 1)
        case(f"interpolate.{mode}.{n}", [draw(1, n, 1)], resize, options=dict(mode=mode, sizes=[[size] for size in targets]))
    for dims, size in [([3, 4], [5, 3]), ([2, 3], [4, 6]), ([1, 1], [2, 3]), ([4, 4], [4, 2]), ([2, 3, 2], [3, 2, 5])]:
        text = "x".join(map(str, dims)) + "_" + "x".join(map(str, size))
        case(f"interpolate.{mode}.{text}", [draw(2, *dims, 2)],
             lambda x, n=len(dims): last(F.interpolate(first(x), size, mode=mode_of(mode, n), **arguments)),
             options=dict(mode=mode, sizes=[size]))
    for factors in ([1.7, 2.0], [0.6, 1.1]):
        case(f"interpolate.{mode}.by_{factors[0]}", [draw(1, 5, 4, 1)],
             lambda x: last(F.interpolate(first(x), scale_factor=tuple(factors), mode=mode_of(mode, 2), **arguments)),
             options=dict(mode=mode, factors=factors))
# Where the rounding of f32 decides.
for mode in ("nearest", "nearest-exact"):
    case(f"interpolate.{mode}.rounded", [draw(1, 2, 1)],
         lambda x: torch.cat([last(F.interpolate(first(x)[:, :, None], (1, size), mode=mode))[:, 0] for size in (41, 47, 55, 82)], 1),
         options=dict(mode=mode, sizes=[[41], [47], [55], [82]]))

# NLL loss.
logs, target = draw(6, 5, scale=3).log_softmax(1).mul(1000).round().div(1000), torch.tensor([0, 4, 2, 2, 1, 3])
ignored, class_weights = torch.tensor([0, -100, 2, -100, 1, 3]), draw(5).abs() + 0.1
case("nll_loss", [logs, target], F.nll_loss)
case("nll_loss.one", [logs[:1], target[:1]], F.nll_loss)
case("nll_loss.positions", [draw(2, 3, 4), torch.tensor([[0, 3, 1], [2, 2, 0]])], lambda x, t: F.nll_loss(first(x), t))
case("nll_loss.ignore", [logs, ignored], F.nll_loss)
case("nll_loss.class_weights", [logs, target, class_weights], lambda x, t, w: F.nll_loss(x, t, w.detach()))
case("nll_loss.everything", [logs, ignored, class_weights], lambda x, t, w: F.nll_loss(x, t, w.detach()))
case("nll_loss.impossible", [torch.tensor([[0.0, -1000], [-2, -0.5]]), torch.tensor([1, 0])], F.nll_loss)

# NaN: what is NaN after one element of the input is.
def add_nan(name, x, at, compute, options=None):
    place = torch.zeros(x.shape, dtype=torch.int32)
    place[at] = 1
    case(f"nan.{name}", [x, place], lambda x, place: compute(x.masked_fill(place == 1, nan)).isnan().int(),
         gradients=False, options=options)


add_nan("adaptive_avg", draw(1, 7, 1), (0, 3, 0), lambda x: last(F.adaptive_avg_pool1d(first(x), 3)))
add_nan("adaptive_max", draw(1, 7, 5, 1), (0, 2, 2, 0), lambda x: last(F.adaptive_max_pool2d(first(x), (3, 3))))
add_nan("conv_transpose", draw(1, 4, 1), (0, 1, 0), lambda x: last(F.conv_transpose1d(first(x), torch.ones(1, 1, 3), stride=2)))
add_nan("instance_norm", draw(2, 4, 2), (1, 2, 0), lambda x: last(F.instance_norm(first(x))))
for mode, arguments in modes.items():
    add_nan(f"interpolate.{mode}", draw(1, 4, 1), (0, 1, 0),
            lambda x: last(F.interpolate(first(x), 7, mode=mode_of(mode, 1), **arguments)), options=dict(mode=mode, sizes=[[7]]))
lstm, gru = nn.LSTM(1, 1, batch_first=True), nn.GRU(1, 1, batch_first=True)
add_nan("lstm", draw(2, 4, 1), (1, 1, 0), lambda x: lstm(x)[0])
add_nan("gru", draw(2, 4, 1), (1, 1, 0), lambda x: gru(x)[0])
add_nan("nll_loss", draw(2, 3), (1, 0), lambda x: F.nll_loss(x, torch.tensor([0, 2]), reduction="none"))


# Sequences of different lengths, with padding of any values. Last, so that the draws above stay.
def add_padded(name, kind, lengths, time, ins, hidden, layers=1, bidirectional=False, initial=False):
    module = kind(ins, hidden, layers, bidirectional=bidirectional, batch_first=True)
    names = [name for name, _ in module.named_parameters()]
    is_lstm, directions, batch = kind is nn.LSTM, 1 + bidirectional, len(lengths)
    weights = [draw(*reversed(p.shape), scale=0.7) for p in module.parameters()]
    states = [draw(layers * directions, batch, hidden) for _ in range(1 + is_lstm)] if initial else []

    def compute(x, lengths, *rest):
        states, weights = rest[:len(rest) - len(names)], rest[len(rest) - len(names):]
        given = {name: w.T if w.ndim == 2 else w for name, w in zip(names, weights)}
        state = None if not states else tuple(states) if is_lstm else states[0]
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, end = functional_call(module, given, (packed, state) if state is not None else (packed,))
        y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=time)
        end = end if is_lstm else (end,)
        return torch.cat([y.flatten()] + [h.flatten() for h in end]), y, *end

    options = dict(hidden=hidden, layers=layers, bidirectional=bidirectional, bias=True, initial=initial)
    case(name, [draw(batch, time, ins), torch.tensor(lengths)] + states + weights, compute, options=options)


for name, kind in [("lstm", nn.LSTM), ("gru", nn.GRU)]:
    add_padded(f"padded_{name}.plain", kind, [2, 4, 1], 4, 2, 2)
    add_padded(f"padded_{name}.bidirectional", kind, [1, 3], 5, 2, 2, bidirectional=True)
    add_padded(f"padded_{name}.deep", kind, [3, 1, 2], 3, 2, 2, layers=2, bidirectional=True, initial=True)

write("network_layers.json")
