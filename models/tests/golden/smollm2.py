"""Greedy tokens and logits of SmolLM2-135M-Instruct by `transformers` in f32, from the GGUF file.

python smollm2.py FILE.gguf > smollm2.json    (torch 2.15, transformers 5.24, gguf)

`smollm2.json`: the prompt, 64 greedy tokens, and the logits of every 997th token of the vocabulary
for the last token of the prompt and for the 64th generated token. `transformers` unpacks the blocks
of the file to f32.
"""

import json
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXT = "The three most important inventions of the nineteenth century are"
TOKENS = 64
STEP = 997

torch.set_num_threads(1)
directory, file = os.path.split(os.path.abspath(sys.argv[1]))
tokenizer = AutoTokenizer.from_pretrained(directory, gguf_file=file)
model = AutoModelForCausalLM.from_pretrained(directory, gguf_file=file, dtype=torch.float32).eval()

prompt = tokenizer(TEXT, return_tensors="pt").input_ids
with torch.no_grad():
    output = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=False,
        max_new_tokens=TOKENS,
        min_new_tokens=TOKENS,
        repetition_penalty=1.0,
        eos_token_id=[],
        pad_token_id=0,
    )
    logits = model(output).logits[0]
last = prompt.shape[1] - 1


def sparse(row):
    return [round(float(value), 6) for value in row[::STEP]]


golden = {
    "text": TEXT,
    "prompt": prompt[0].tolist(),
    "generated": output[0, prompt.shape[1] :].tolist(),
    "step": STEP,
    "first_logits": sparse(logits[last]),
    "last_logits": sparse(logits[-1]),
}
print(json.dumps(golden, indent=1))
print(repr(tokenizer.decode(output[0])), file=sys.stderr)
margins = logits[last:-1].topk(2).values
print("least margin of the first to the second token:", (margins[:, 0] - margins[:, 1]).min().item(), file=sys.stderr)
