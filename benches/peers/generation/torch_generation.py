#!/usr/bin/env python3
"""PyTorch: `torch_generation.py MODEL [f32|bf16]`, a directory of Hugging Face; see compare.py for the work.

The forward pass is that of `transformers`, eager, with its key-value cache; tokens are taken here, without
`generate`, whose checks of every token would count.
"""
import json, os, sys, time

import torch
from transformers import AutoModelForCausalLM

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[sys.argv[2] if len(sys.argv) > 2 else "f32"]
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=dtype).eval()
vocabulary = model.config.vocab_size
prompt = torch.tensor([[place * 7919 % vocabulary for place in range(512)]])


@torch.inference_mode()
def once():
    start = time.perf_counter()
    output = model(prompt, use_cache=True, logits_to_keep=1)
    token = output.logits[:, -1].argmax(-1, keepdim=True)
    token[0, 0].item()
    prefill = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(64):
        output = model(token, past_key_values=output.past_key_values, use_cache=True)
        token = output.logits[:, -1].argmax(-1, keepdim=True)
    last = token[0, 0].item()
    print(json.dumps({"prefill": prefill, "decode": time.perf_counter() - start, "last": last}), flush=True)


once()
for _ in sys.stdin:
    once()
