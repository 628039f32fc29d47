#!/usr/bin/env python3
"""Deterministic steps of transforms, by torchvision on Pillow images.

    python3 -m venv V && V/bin/pip install pillow torch torchvision numpy && V/bin/python transforms.py

Writes `transforms.json` beside this file: an image, and what each step makes of it.
"""
import json, pathlib

import numpy as np
from PIL import Image
from torchvision.transforms import InterpolationMode, functional as F

HERE = pathlib.Path(__file__).parent
rows, columns = np.mgrid[0:19, 0:26]
pixels = np.stack([128 + 120 * np.sin(rows / 3), 128 + 110 * np.cos(columns / 4), 128 + 90 * np.sin(rows * columns / 60)], 2).astype(np.uint8)
pixels[4:9, 10:15] = [250, 20, 60]
image = Image.fromarray(pixels)
square = image.crop((3, 0, 22, 19))
linear = InterpolationMode.BILINEAR


def flat(image):
    read = np.asarray(image)
    return {"dims": list(read.shape), "bytes": read.flatten().tolist()}


# Ours is clockwise, as `affine`; `rotate` is not.
affine = [
    {"degrees": degrees, "translate": translate, "scale": scale, "shear": shear}
    for degrees, translate, scale, shear in [
        (0, [0, 0], 1.0, [0.0, 0.0]),
        (90, [0, 0], 1.0, [0.0, 0.0]),
        (10, [0, 0], 1.0, [0.0, 0.0]),
        (-33.5, [3, -2], 1.0, [0.0, 0.0]),
        (0, [0, 0], 1.3, [0.0, 0.0]),
        (20, [-4, 5], 0.7, [12.0, 0.0]),
        (-75, [1, 1], 1.1, [-20.0, 8.0]),
    ]
]
cases = {
    "image": flat(image),
    "square": flat(square),
    "flip": flat(F.hflip(square)),
    "flip_vertical": flat(F.vflip(square)),
    "affine": [
        case | flat(F.affine(image, case["degrees"], case["translate"], case["scale"], case["shear"], linear))
        for case in affine
    ],
    "rotate": [{"degrees": -degrees} | flat(F.rotate(image, degrees, linear)) for degrees in [7, -41]],
    "color": [
        {"factors": [brightness, contrast, saturation]}
        | flat(F.adjust_saturation(F.adjust_contrast(F.adjust_brightness(image, brightness), contrast), saturation))
        for brightness, contrast, saturation in [
            (0.6, 1.0, 1.0), (1.7, 1.0, 1.0), (1.0, 0.4, 1.0), (1.0, 1.9, 1.0), (1.0, 1.0, 0.0), (1.0, 1.0, 1.8), (0.9, 1.2, 0.7),
        ]
    ],
    "blur": [
        {"sigma": sigma} | flat(F.gaussian_blur(image, 2 * int(np.ceil(3 * sigma)) + 1, sigma))
        for sigma in [0.3, 0.8, 1.5, 2.9]
    ],
}
json.dump(cases, open(HERE / "transforms.json", "w"), separators=(",", ":"))
