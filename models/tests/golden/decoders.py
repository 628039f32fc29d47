"""Small random decoders by `transformers`: weights, logits and gradients in f32.

python decoders.py    (torch 2.15, transformers 5.24, safetensors)

Each directory, such as `qwen2`, is a model as `save_pretrained` writes it. The file of its name,
`qwen2.safetensors`, has `tokens`, the `logits` of all but the last of them, the mean next-token
`loss`, and its gradients under the names of the parameters.
"""

import json
import pathlib

import torch
from safetensors.torch import save_file
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

HERE = pathlib.Path(__file__).parent
SHAPE = dict(
    vocab_size=20,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=100.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)


def write(name, model):
    directory = HERE / name
    torch.manual_seed(len(name))
    for key, parameter in model.named_parameters():
        center = 1.0 if "norm" in key or ".ln_" in key else 0.0
        with torch.no_grad():
            parameter.copy_(center * (key.endswith("weight")) + 0.3 * torch.randn_like(parameter))
    model.eval().save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    tokens = torch.randint(0, 20, (2, 33))
    logits = model(tokens[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 20), tokens[:, 1:].reshape(-1))
    loss.backward()
    tied = "lm_head.weight"
    expected = {"tokens": tokens.to(torch.int32), "logits": logits.detach().contiguous(), "loss": loss.detach()}
    for key, parameter in model.named_parameters():
        if key != tied or not model.config.tie_word_embeddings:
            expected["gradient." + key] = parameter.grad.contiguous()
    save_file(expected, HERE / f"{name}.safetensors")
    return directory


torch.set_num_threads(1)
directory = write("llama3", LlamaForCausalLM(LlamaConfig(**SHAPE, rope_parameters=LLAMA3, tie_word_embeddings=False)))
# As Llama 3's own config.json has it.
config = json.loads((directory / "config.json").read_text())
config["rope_scaling"] = config.pop("rope_parameters")
config["rope_theta"] = config["rope_scaling"].pop("rope_theta")
(directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")

write("mistral", MistralForCausalLM(MistralConfig(**SHAPE, head_dim=6, sliding_window=None)))
write("qwen2", Qwen2ForCausalLM(Qwen2Config(**SHAPE, tie_word_embeddings=True)))
write(
    "gpt2",
    GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=64, n_embd=16, n_layer=2, n_head=4)),
)
