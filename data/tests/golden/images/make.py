#!/usr/bin/env python3
"""Small images of every kind, and what Pillow reads from them.

    python3 -m venv V && V/bin/pip install pillow==13.0.0 numpy && V/bin/python make.py

Writes the images and `expected.json` beside this file: dimensions and bytes of
`ImageOps.exif_transpose(Image.open(file)).convert("RGB")`, but for 16-bit images, of which the upper bytes are expected.
"""
import io, json, pathlib

import numpy as np
from PIL import Image, ImageOps

HERE = pathlib.Path(__file__).parent
HEIGHT, WIDTH = 5, 7
rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
rgb = np.stack([rows * 50, columns * 40, 255 - rows * 20 - columns * 20], 2).astype(np.uint8)
gray = rgb[..., 1]
expected = {}


def add(name, image, want=None, **options):
    image.save(HERE / name, **options)
    read = np.asarray(ImageOps.exif_transpose(Image.open(HERE / name)).convert("RGB")) if want is None else want
    expected[name] = {"dims": list(read.shape), "bytes": read.flatten().tolist()}


add("rgb.png", Image.fromarray(rgb))
add("gray.png", Image.fromarray(gray))
add("bits.png", Image.fromarray(gray > 100))
add("palette.png", Image.fromarray(rgb).convert("P", palette=Image.Palette.ADAPTIVE, colors=11))
add("transparent_palette.png", Image.fromarray(rgb).convert("P", palette=Image.Palette.ADAPTIVE, colors=11), transparency=3)
alpha = (rows * columns * 8).astype(np.uint8)
add("alpha.png", Image.fromarray(np.dstack([rgb, alpha])))
add("gray_alpha.png", Image.fromarray(np.dstack([gray, alpha])))
wide = np.minimum(gray.astype(np.uint32) * 257 + 100, 65535).astype(np.uint16)
add("gray16.png", Image.fromarray(wide), want=np.repeat((wide >> 8).astype(np.uint8)[..., None], 3, 2))

# Smooth, so that decoders that interpolate colors in other ways agree.
rows, columns = np.mgrid[0:21, 0:34]
smooth = np.stack([rows * 4 + 60, columns * 3 + 50, 200 - rows * 2 - columns * 2], 2).astype(np.uint8)
add("rgb.jpg", Image.fromarray(smooth), quality=95, subsampling=0)
add("subsampled.jpg", Image.fromarray(smooth), quality=90, subsampling=2)
add("progressive.jpeg", Image.fromarray(smooth), quality=90, progressive=True)
add("gray.jpg", Image.fromarray(smooth[..., 1]), quality=95)
add("cmyk.jpg", Image.fromarray(smooth).convert("CMYK"), quality=95)
for orientation in range(1, 9):
    exif = Image.Exif()
    exif[0x0112] = orientation
    add(f"orientation{orientation}.jpg", Image.fromarray(smooth), quality=90, subsampling=0, exif=exif)
exif = Image.Exif()
exif[0x0112] = 6
add("orientation6.png", Image.fromarray(rgb), exif=exif)

# Resizing, against Pillow's.
photo = np.stack([128 + 100 * np.sin(rows / 3), 128 + 90 * np.cos(columns / 5), 128 + 80 * np.sin(rows * columns / 50)], 2).astype(np.uint8)
filters = {"Bilinear": Image.BILINEAR, "Bicubic": Image.BICUBIC, "Box": Image.BOX, "Lanczos": Image.LANCZOS}
resized = {"image": {"dims": list(photo.shape), "bytes": photo.flatten().tolist()}}
for name, filter in filters.items():
    for height, width in [(8, 8), (30, 50), (21, 10)]:
        read = np.asarray(Image.fromarray(photo).resize((width, height), filter))
        resized[f"{name} {height} {width}"] = {"dims": list(read.shape), "bytes": read.flatten().tolist()}

json.dump({"files": expected, "resized": resized}, open(HERE / "expected.json", "w"), separators=(",", ":"))
