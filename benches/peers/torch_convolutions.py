#!/usr/bin/env python3
"""PyTorch's convolutions for the benchmark `convolutions`. Reads lines, and answers each with one:

    shape DTYPE DIMS BATCH SIZE FEATURES OUTPUTS GROUPS KERNEL STRIDE DILATION INPUT_DILATION PADDING     -> ok
    run PASS SECONDS          -> seconds of a call: of the processor, all threads together, and those that pass

PASS is 0 for the result, 1 for the gradient of the input, 2 for that of the kernel. A turn takes about SECONDS for each memory
format, contiguous and channels last; the answers are the least of both. INPUT_DILATION above 1 is a transposed convolution. A
sequence is an image of one line, for which there are both formats too.
"""
import os, sys, time

import torch

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
torch.set_grad_enabled(False)


def prepare(dtype, dims, batch, size, features, outputs, groups, kernel, stride, dilation, input_dilation, padding):
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    transposed = input_dilation > 1
    weight = (features, outputs // groups) if transposed else (outputs, features // groups)
    image = lambda of, line: [line] * (2 - dims) + [of] * dims
    x = torch.rand(batch, features, *image(size, 1)) - 0.5
    w = torch.rand(*weight, *image(kernel, 1)) - 0.5
    step, edge = (input_dilation, dilation * (kernel - 1) - padding) if transposed else (stride, padding)
    options = (image(step, 1), image(edge, 0), image(dilation, 1), transposed, [0, 0], groups)
    passes = [[], [], []]
    for memory_format in (torch.contiguous_format, torch.channels_last):
        form = lambda t: t.to(dtype).contiguous(memory_format=memory_format)
        left, right = form(x), form(w)
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
    started, passed = time.process_time(), time.perf_counter()
    for _ in range(count):
        call()
    return (time.process_time() - started) / count, (time.perf_counter() - passed) / count


for line in sys.stdin:
    words = line.split()
    if words[0] == "shape":
        passes = prepare(words[1], *map(int, words[2:]))
        print("ok", flush=True)
    else:
        forms = [seconds(call, float(words[2])) for call in passes[int(words[1])]]
        print("%.9f %.9f" % tuple(min(form) for form in zip(*forms)), flush=True)
