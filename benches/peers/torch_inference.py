#!/usr/bin/env python3
"""PyTorch's inference: `torch_inference.py resnet50|vit-s16 BATCH [compile] [channels_last] [bf16] [cuda]`; see inference.py."""
import os, sys

import torch

from protocol import serve

MODEL, BATCH, OPTIONS = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
torch.manual_seed(0)
if MODEL == "vit-s16":
    import timm
    model = timm.create_model("vit_small_patch16_224")
else:
    import torchvision
    model = getattr(torchvision.models, MODEL)()
model.eval()
x = torch.randn(BATCH, 3, 224, 224)
if "cuda" in OPTIONS:
    # In full precision, as halite's products of f32 are.
    torch.backends.cudnn.allow_tf32 = False
    model, x = model.cuda(), x.cuda()
if "bf16" in OPTIONS:
    model, x = model.bfloat16(), x.bfloat16()
if "channels_last" in OPTIONS:
    model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
forward = torch.compile(model) if "compile" in OPTIONS else model


@torch.inference_mode()
def run(passes):
    for _ in range(passes):
        logits = forward(x)
    return float(logits.flatten()[0])


if __name__ == "__main__":
    serve(run, sum(parameter.numel() for parameter in model.parameters()))
