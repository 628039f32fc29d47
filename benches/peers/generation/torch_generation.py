#!/usr/bin/env python3
"""PyTorch: `torch_generation.py MODEL [f32|bf16] [compile] [cuda]`, a directory of Hugging Face or a GGUF file; see compare.py
for the work.

The forward pass is that of `transformers`, with its key-value cache; tokens are taken here, without `generate`, whose
checks of every token would count. Compiled, one token is a program over a cache of fixed length, as `transformers`
recommends it, and the prompt stays eager.
"""
import json, os, sys, time

import torch
from transformers import AutoModelForCausalLM, StaticCache

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[sys.argv[2] if len(sys.argv) > 2 else "f32"]
device = "cuda" if "cuda" in sys.argv else "cpu"
directory, file = (sys.argv[1], None) if os.path.isdir(sys.argv[1]) else os.path.split(os.path.abspath(sys.argv[1]))
model = AutoModelForCausalLM.from_pretrained(directory, gguf_file=file, dtype=dtype).eval().to(device)
step = torch.compile(model) if "compile" in sys.argv else model
vocabulary = model.config.vocab_size
prompt = torch.tensor([[place * 7919 % vocabulary for place in range(512)]], device=device)


@torch.inference_mode()
def once():
    start = time.perf_counter()
    positions = torch.arange(512 + 64, device=device)
    cache = StaticCache(config=model.config, max_cache_len=len(positions)) if step is not model else None
    output = model(prompt, past_key_values=cache, use_cache=True, logits_to_keep=1)
    token = output.logits[:, -1].argmax(-1, keepdim=True)
    token[0, 0].item()
    prefill = time.perf_counter() - start
    start = time.perf_counter()
    for place in range(512, 512 + 64):
        output = step(token, past_key_values=output.past_key_values, position_ids=positions[place:place + 1][None], use_cache=True)
        token = output.logits[:, -1].argmax(-1, keepdim=True)
    last = token[0, 0].item()
    print(json.dumps({"prefill": prefill, "decode": time.perf_counter() - start, "last": last}), flush=True)


once()
for _ in sys.stdin:
    once()
