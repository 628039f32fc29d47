"""Writes the files of this folder with the packages that publish weights in these formats.

    pip install torch==2.15.0 numpy==2.4.6 safetensors==0.8.0 gguf==0.19.0
    python make.py

`NAME.expected.safetensors` has what the package itself reads from each file, and names as halite
gives them. `verify.py` is the other direction.
"""

import collections
import pathlib

import gguf
import numpy
import safetensors.torch
import torch

HERE = pathlib.Path(__file__).parent
torch.manual_seed(0)


def expect(name, tensors):
    tensors = {key: tensor.detach().contiguous().clone() for key, tensor in tensors.items()}
    safetensors.torch.save_file(tensors, HERE / f"{name}.expected.safetensors")


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(4)


class ResNet(torch.nn.Module):
    """torchvision's names."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 4, 5, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(4)
        self.layer1 = torch.nn.Sequential(Block(), Block())
        self.layer2 = torch.nn.Sequential(Block())
        self.fc = torch.nn.Linear(4, 7)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        for block in [*self.layer1, *self.layer2]:
            x = x + torch.relu(block.bn1(block.conv1(x)))
        return self.fc(x.mean((2, 3)))


def resnet():
    model = ResNet()
    # Running statistics that are not those of a new model.
    for _ in range(3):
        model(torch.randn(8, 3, 9, 9))
    model.eval()
    state = model.state_dict()
    torch.save(state, HERE / "resnet.pth")
    torch.save(state, HERE / "resnet_legacy.pth", _use_new_zipfile_serialization=False)
    safetensors.torch.save_file(state, HERE / "resnet.safetensors", {"format": "pt"})
    x = torch.randn(2, 3, 9, 9)
    with torch.no_grad():
        expect("resnet", {"x": x.permute(0, 2, 3, 1), "y": model(x)})


def types():
    """Every element type, layout and container."""
    base = torch.randn(4, 6)
    tensors = {
        "transposed": base.t(),
        "view": base[1:3, ::2],
        "tail": base[2:],
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "bool": torch.tensor([True, False, True]),
    }
    for dtype in [torch.float64, torch.float16, torch.bfloat16]:
        tensors[str(dtype).removeprefix("torch.")] = torch.randn(5).to(dtype)
    for dtype in [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]:
        tensors[str(dtype).removeprefix("torch.")] = torch.arange(5).to(dtype)
    tensors["complex64"] = torch.randn(3, dtype=torch.complex64)
    parameter = torch.nn.Parameter(torch.randn(3))
    nested = {
        "state_dict": collections.OrderedDict(tensors),
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "lists": [torch.ones(1), [parameter]]},
        "epoch": 3,
        "best": 0.25,
        "name": "run",
        "big": 2**80,
        "none": None,
        "shape": base.shape,
        "device": torch.device("cpu"),
    }
    torch.save(nested, HERE / "types_legacy.pt", _use_new_zipfile_serialization=False)
    # What has no storage class of its own; the older form cannot hold it.
    new = {"uint16": torch.arange(3).to(torch.uint16), "float8": torch.randn(4).to(torch.float8_e4m3fn)}
    torch.save({**nested, "new": new}, HERE / "types.pt")
    names = {f"state_dict.{key}": value for key, value in tensors.items()}
    names["optimizer.state.0.step"] = torch.tensor(3.0)
    names["optimizer.lists.0"] = torch.ones(1)
    names["optimizer.lists.1.0"] = parameter
    expect("types_legacy", names)
    names |= {f"new.{key}": value for key, value in new.items()}
    expect("types", names)


def arrays():
    arrays = {
        "rows": numpy.random.default_rng(0).normal(size=(3, 5)),
        "columns": numpy.asfortranarray(numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4)),
        "half": numpy.arange(4, dtype=numpy.float16),
        "ints": numpy.arange(6, dtype=numpy.int64).reshape(2, 3),
        "bools": numpy.array([True, False]),
        "scalar": numpy.array(7, dtype=numpy.int32),
        "empty": numpy.zeros((0, 2), dtype=numpy.float32),
    }
    numpy.savez(HERE / "arrays.npz", **arrays)
    numpy.savez_compressed(HERE / "arrays_compressed.npz", **arrays)
    expect("arrays", {key: torch.from_numpy(value.copy(order="C")) for key, value in arrays.items()})


def blocks():
    """GGUF: blocks that `gguf` quantizes where it can, and random ones of the other kinds."""
    random = numpy.random.default_rng(1)
    kinds = gguf.GGMLQuantizationType
    writer = gguf.GGUFWriter(HERE / "blocks.gguf", "llama")
    writer.add_context_length(2048)
    writer.add_float32("halite.number", 0.5)
    writer.add_token_list(["<s>", "a", "\u00e9"])
    expected = {}
    for kind in [kinds.F32, kinds.F16, kinds.BF16, kinds.Q8_0, kinds.Q4_0, kinds.Q4_1]:
        values = random.normal(size=(3, 64)).astype(numpy.float32)
        packed = gguf.quants.quantize(values, kind)
        plain = kind in [kinds.F32, kinds.F16]
        writer.add_tensor(kind.name, packed, raw_dtype=None if plain else kind)
        if kind == kinds.F16:
            expected[kind.name] = torch.from_numpy(packed)
        elif kind == kinds.BF16:
            expected[kind.name] = torch.from_numpy(packed.view(numpy.int16)).view(torch.bfloat16)
        else:
            expected[kind.name] = torch.from_numpy(gguf.quants.dequantize(packed, kind))
    for kind, scales in [(kinds.Q4_K, [0, 2]), (kinds.Q6_K, [208])]:
        _, size = gguf.GGML_QUANT_SIZES[kind]
        packed = random.integers(0, 256, size=(2, 2, size), dtype=numpy.uint8)
        for at in scales:
            factors = random.normal(scale=0.01, size=(2, 2, 1)).astype(numpy.float16)
            packed[..., at : at + 2] = factors.view(numpy.uint8)
        packed = packed.reshape(2, 2 * size)
        writer.add_tensor(kind.name, packed, raw_dtype=kind)
        expected[kind.name] = torch.from_numpy(gguf.quants.dequantize(packed, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    expect("blocks", expected)


def archive():
    # The folder of the archive is named by the file: a name of 21 letters.
    torch.save({"fc.bias": torch.ones(3)}, HERE / "resnet18-finetuned-v2.pth")


if __name__ == "__main__":
    resnet()
    archive()
    types()
    arrays()
    blocks()
