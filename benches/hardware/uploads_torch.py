#!/usr/bin/env python3
"""PyTorch's rates of copies to a GPU, in GB/s, beside those of the program `uploads`: from pageable memory, and from page-locked."""
import json, time

import torch

for size in (1 << 20, 16 << 20, 128 << 20):
    rates = {}
    for name, memory in (("pageable", torch.zeros(size, dtype=torch.uint8)), ("pinned", torch.zeros(size, dtype=torch.uint8).pin_memory())):
        for count in (1, (1 << 30) // size):
            torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(count):
                memory.cuda()
                torch.cuda.synchronize()
            rates[name] = round(count * size / (time.perf_counter() - started) / 1e9, 2)
    print(json.dumps({"bytes": size, **rates}))
