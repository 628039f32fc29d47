#!/usr/bin/env python3
"""Images of odd sizes through torchvision's transforms of inference.

    python3 -m venv V && V/bin/pip install pillow==13.0.0 numpy torchvision && V/bin/python framing.py

Writes `framing.json` beside this file: an image, and for each case the dimensions of the part of it that is
taken, the size of `Resize`, the size of `CenterCrop`, the filter, and the bytes of the result.
"""
import json, pathlib

import numpy as np
from PIL import Image
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Resize

HERE = pathlib.Path(__file__).parent
rows, columns = np.mgrid[0:37, 0:53]
photo = np.stack([128 + 100 * np.sin(rows / 3), 128 + 90 * np.cos(columns / 5), (rows * columns * 7) % 256], 2).astype(np.uint8)
modes = {"Bilinear": InterpolationMode.BILINEAR, "Bicubic": InterpolationMode.BICUBIC}

cases = []
for height, width in [(37, 53), (36, 53), (37, 21), (20, 37), (7, 9), (30, 1)]:
    for resize, crop in [(16, 14), (17, 14), (13, 10), (12, 9), (12, 12)]:
        for name, mode in modes.items():
            image = Image.fromarray(photo[:height, :width])
            result = np.asarray(Compose([Resize(resize, mode), CenterCrop(crop)])(image))
            cases.append({"image": [height, width], "resize": resize, "crop": crop, "filter": name, "bytes": result.flatten().tolist()})

image = {"dims": list(photo.shape), "bytes": photo.flatten().tolist()}
json.dump({"image": image, "cases": cases}, open(HERE / "framing.json", "w"), separators=(",", ":"))
