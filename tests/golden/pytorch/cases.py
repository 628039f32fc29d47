"""Golden cases: inputs, outputs and gradients of functions in f64, and the file they are written to.

Images are turned from PyTorch's [batch, features, height, width] to halite's features last, and kernels from
[out, in, height, width] to [height, width, in, out], on the way in and out.
"""
import json, pathlib
import torch

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
cases = {}


def draw(*dims, scale=1.0, shift=0.0):
    return (torch.randn(dims) * scale + shift).mul(1000).round().div(1000)


def pack(tensor):
    tensor = tensor.detach()
    kind = "f64" if tensor.is_floating_point() else "s32"
    return {"dims": list(tensor.shape), "dtype": kind, "values": tensor.flatten().tolist()}


def case(name, inputs, compute, gradients=True, options=None):
    """`compute` of leaves made of `inputs`; the gradient is of the sum of the first output times `cotangent`."""
    leaves = [t.clone().requires_grad_(gradients and t.is_floating_point()) for t in inputs]
    outputs = compute(*leaves)
    outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    entry = {"inputs": [pack(t) for t in inputs], "outputs": [pack(t) for t in outputs]}
    if gradients:
        cotangent = draw(*outputs[0].shape)
        (outputs[0] * cotangent).sum().backward()
        entry["cotangent"] = pack(cotangent)
        entry["gradients"] = [pack(t.grad) if t.grad is not None else None for t in leaves]
    if options is not None:
        entry["options"] = options
    assert name not in cases, name
    cases[name] = entry


first = lambda x: x.movedim(-1, 1)
last = lambda x: x.movedim(1, -1)
kernel = lambda w: w.movedim(-1, 0).movedim(-1, 1)  # [.., in, out] -> [out, in, ..]


def write(name):
    """Writes all cases as JSON to the file `name` beside this one."""
    path = pathlib.Path(__file__).with_name(name)
    lines = [f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in cases.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(cases)} cases, {path.stat().st_size} bytes")
