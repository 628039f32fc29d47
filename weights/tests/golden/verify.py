"""Loads in PyTorch what halite saved, strictly, and compares it with the original.

    HALITE_SAVED=DIR cargo test -p halite-weights --test weights saved
    python verify.py DIR
"""

import json
import pathlib
import sys

import make
import safetensors.torch
import torch

HERE = pathlib.Path(__file__).parent
saved = pathlib.Path(sys.argv[1])

original = torch.load(HERE / "resnet.pth", weights_only=True)
counts = {name for name in original if name.endswith("num_batches_tracked")}


def compare(tensors):
    assert set(tensors) == set(original) - counts, set(tensors) ^ set(original)
    for name, tensor in tensors.items():
        assert tensor.dtype == original[name].dtype and torch.equal(tensor, original[name]), name


compare(safetensors.torch.load_file(saved / "resnet.safetensors"))
index = json.loads((saved / "sharded/model.safetensors.index.json").read_text())
shards = {}
for file in set(index["weight_map"].values()):
    for name, tensor in safetensors.torch.load_file(saved / "sharded" / file).items():
        assert index["weight_map"][name] == file, name
        shards[name] = tensor
compare(shards)
assert index["metadata"]["total_size"] == sum(t.numel() * t.element_size() for t in shards.values())

model = make.ResNet()
model.load_state_dict(safetensors.torch.load_file(saved / "resnet.safetensors"), strict=True)
expected = safetensors.torch.load_file(HERE / "resnet.expected.safetensors")
y = model.eval()(expected["x"].permute(0, 3, 1, 2))
assert torch.allclose(y, expected["y"], rtol=0, atol=1e-6)
print("equal")
