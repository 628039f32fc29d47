#!/usr/bin/env python3
"""PyTorch and ONNX Runtime for the benchmark `embed`: embeddings of sentences by MiniLM in f32.

usage: embed_peers.py MODEL_DIRECTORY SENTENCES_FILE

Reads lines, and answers each with one of JSON: `peers` with the names; a name with the seconds of a pass over all
sentences, tokenization included, and the first embedding's first four numbers. As sentence-transformers does,
sentences are sorted by length, and batches of 32 padded to their longest. A peer that cannot be set up is left
out, with the reason on stderr.
"""
import json
import os
import sys
import time

import torch
from transformers import AutoModel, AutoTokenizer

THREADS = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count()))
torch.set_num_threads(THREADS)
torch.set_grad_enabled(False)

directory, sentences = sys.argv[1], open(sys.argv[2], encoding="utf-8").read().split("\n")[:-1]
tokenizer = AutoTokenizer.from_pretrained(directory)
model = AutoModel.from_pretrained(directory).eval()


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        features = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(2).to(features.dtype)
        return torch.nn.functional.normalize((features * mask).sum(1) / mask.sum(1), dim=1)


encoder = Encoder().eval()


def passes(forward):
    """One pass over all sentences."""
    order = sorted(range(len(sentences)), key=lambda index: -len(sentences[index]))
    results = [None] * len(sentences)
    for start in range(0, len(order), 32):
        batch = order[start : start + 32]
        inputs = tokenizer([sentences[index] for index in batch], padding=True, truncation=True, max_length=512,
                           return_tensors="np")
        for index, row in zip(batch, forward(inputs["input_ids"], inputs["attention_mask"])):
            results[index] = row
    return results


def onnxruntime_peer():
    import onnxruntime

    path = os.path.join(os.path.dirname(os.path.abspath(sys.argv[2])), "encoder.onnx")
    example = (torch.ones(2, 8, dtype=torch.long), torch.ones(2, 8, dtype=torch.long))
    axes = {0: "batch", 1: "time"}
    torch.onnx.export(encoder, example, path, input_names=["input_ids", "attention_mask"], output_names=["y"],
                      dynamic_axes={"input_ids": axes, "attention_mask": axes, "y": {0: "batch"}}, dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda ids, mask: session.run(None, {"input_ids": ids, "attention_mask": mask})[0]


def torch_peer():
    return lambda ids, mask: encoder(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()


peers = {}
for name, setup in {"torch": torch_peer, "onnxruntime": onnxruntime_peer}.items():
    try:
        peers[name] = setup()
    except Exception as error:
        print(f"{name}: {error}", file=sys.stderr)

for line in sys.stdin:
    name = line.strip()
    if name == "peers":
        print(json.dumps(list(peers)), flush=True)
        continue
    started = time.perf_counter()
    results = passes(peers[name])
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "first": [float(x) for x in results[0][:4]]}), flush=True)
