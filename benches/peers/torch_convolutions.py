#!/usr/bin/env python3
"""PyTorch's convolutions for the benchmark `convolutions`. Reads lines, and answers each with one:

    shape DTYPE DIMS BATCH SIZE FEATURES OUTPUTS GROUPS KERNEL STRIDE DILATION INPUT_DILATION PADDING     -> ok
    run PASS SECONDS          -> seconds of processor time of a call, all threads together

PASS is 0 for the result, 1 for the gradient of the input, 2 for that of the kernel. A turn takes about SECONDS for each memory
format, contiguous and channels last; the answer is that of the faster one. INPUT_DILATION above 1 is a transposed convolution.
"""
import os, sys, time

import torch

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
torch.set_grad_enabled(False)


def prepare(dtype, dims, batch, size, features, outputs, groups, kernel, stride, dilation, input_dilation, padding):
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    transposed = input_dilation > 1
    weight = (features, outputs // groups) if transposed else (outputs, features // groups)
    x = torch.rand(batch, features, *[size] * dims) - 0.5
    w = torch.rand(*weight, *[kernel] * dims) - 0.5
    step, edge = (input_dilation, dilation * (kernel - 1) - padding) if transposed else (stride, padding)
    options = ([step] * dims, [edge] * dims, [dilation] * dims, transposed, [0] * dims, groups)
    formats = [lambda t: t.contiguous()]
    if dims == 2:
        formats.append(lambda t: t.contiguous(memory_format=torch.channels_last))
    passes = [[], [], []]
    for form in formats:
        left, right = form(x.to(dtype)), form(w.to(dtype))
        g = form(torch.rand_like(torch.convolution(left, right, None, *options)) - 0.5)
        passes[0].append(lambda a=left, b=right: torch.convolution(a, b, None, *options))
        for index, mask in ((1, [True, False, False]), (2, [False, True, False])):
            passes[index].append(lambda a=left, b=right, g=g, mask=mask: torch.ops.aten.convolution_backward(g, a, b, None, *options, mask))
    return passes


def seconds(call, turn):
    call()
    started = time.process_time()
    call()
    count = max(1, min(400, int(turn / max(time.process_time() - started, 1e-6))))
    started = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - started) / count


for line in sys.stdin:
    words = line.split()
    if words[0] == "shape":
        passes = prepare(words[1], *map(int, words[2:]))
        print("ok", flush=True)
    else:
        print("%.9f" % min(seconds(call, float(words[2])) for call in passes[int(words[1])]), flush=True)
