"""Numbers of BERT for `tests/models/bert.rs`, by Hugging Face's `transformers`.

usage: bert.py MINILM_DIRECTORY OUT_DIRECTORY
Writes bert/: a small model of random weights in f64 (config.json, model.safetensors), and
bert.safetensors: its inputs, features, pooled features, and the gradients of the sum of
squares of the features at tokens; lora/: adapters of it that peft saved, and lora.safetensors: the
features with them, and the gradients of the adapters; minilm.safetensors: embeddings of MiniLM in f32, of texts that are
embedded one by one (mean over tokens, length 1).
"""
import json
import os
import sys

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

TEXTS = [
    "Hello world",
    "The quick brown fox jumps over the lazy dog.",
    "A sentence encoder maps texts to vectors whose distance is that of their meanings.",
    "Ein Satz auf Deutsch, mit Umlauten: \u00e4\u00f6\u00fc.",
    "I",
    "",
    " ".join(["It was the best of times, it was the worst of times."] * 6),
]


def small(out):
    # Without the token 0, the padding, whose row of the table PyTorch gives no gradient.
    torch.manual_seed(30)
    config = BertConfig(
        vocab_size=29, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20,
        max_position_embeddings=9, type_vocab_size=2, hidden_act="gelu", layer_norm_eps=1e-12,
        attn_implementation="eager",
    )
    model = BertModel(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    tokens = torch.randint(1, 29, (3, 7))
    types = torch.randint(0, 2, (3, 7))
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6])
    result = model(input_ids=tokens, token_type_ids=types, attention_mask=mask)
    kept = mask.unsqueeze(2).double()
    (result.last_hidden_state.square() * kept).sum().add(result.pooler_output.sum()).backward()
    save = {
        "tokens": tokens.int(), "types": types.int(), "mask": mask.bool(),
        "features": result.last_hidden_state * kept, "pooled": result.pooler_output,
    }
    save |= {f"gradient.{name}": parameter.grad for name, parameter in model.named_parameters()}
    save_file({name: value.detach().contiguous() for name, value in save.items()}, f"{out}/bert.safetensors")
    os.makedirs(f"{out}/bert", exist_ok=True)
    with open(f"{out}/bert/config.json", "w") as file:
        json.dump({"model_type": "bert"} | {key: getattr(config, key) for key in (
            "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
            "max_position_embeddings", "type_vocab_size", "hidden_act", "layer_norm_eps")}, file, indent=1)
        file.write("\n")
    save_file({name: value.detach().contiguous() for name, value in model.state_dict().items()},
              f"{out}/bert/model.safetensors")


def lora(out):
    torch.manual_seed(31)
    model = BertModel.from_pretrained(f"{out}/bert", attn_implementation="eager", dtype=torch.float64).eval()
    targets = ["query", "value", "attention.output.dense", "intermediate.dense"]
    model = get_peft_model(model, LoraConfig(r=2, lora_alpha=5, target_modules=targets))
    model = model.double().eval()
    adapters = {name: parameter for name, parameter in model.named_parameters() if "lora_" in name}
    with torch.no_grad():
        for parameter in adapters.values():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    tokens = torch.randint(1, 29, (3, 7))
    features = model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state
    features.square().sum().add(features.sin().sum()).backward()
    save = {"tokens": tokens.int(), "features": features}
    save |= {name.replace(".default", ""): parameter.grad for name, parameter in adapters.items()}
    save_file({name: value.detach().contiguous() for name, value in save.items()}, f"{out}/lora.safetensors")
    model.save_pretrained(f"{out}/lora")
    os.remove(f"{out}/lora/README.md")


def minilm(directory, out):
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModel.from_pretrained(directory).eval()
    embeddings = []
    for text in TEXTS:
        with torch.no_grad():
            features = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        embeddings.append(torch.nn.functional.normalize(features.mean(0), dim=0))
    save_file({"embeddings": torch.stack(embeddings)}, f"{out}/minilm.safetensors",
              metadata={"texts": json.dumps(TEXTS)})


torch.set_num_threads(1)
small(sys.argv[2])
lora(sys.argv[2])
minilm(sys.argv[1], sys.argv[2])
