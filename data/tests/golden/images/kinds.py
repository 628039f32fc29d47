#!/usr/bin/env python3
"""Writes parts of a photograph as JPEG and PNG of every kind that Pillow writes, for `compare.py`.

    V/bin/python kinds.py PHOTO DIR
"""
import pathlib, sys

import numpy as np
from PIL import Image

photo, folder = Image.open(sys.argv[1]).convert("RGB").resize((256, 256)), pathlib.Path(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
for width, height in [(1, 1), (2, 3), (7, 5), (8, 8), (15, 17), (16, 16), (17, 33), (31, 20), (33, 31), (100, 75), (64, 64)]:
    part = photo.crop((90, 40, 90 + width, 40 + height))
    for mode, options in [("L", {}), ("CMYK", {}), *(("RGB", {"subsampling": s}) for s in range(3))]:
        for progressive in [False, True]:
            name = f"{mode}_{options.get('subsampling', 0)}_{progressive}_{width}x{height}.jpg"
            part.convert(mode).save(folder / name, quality=85, progressive=progressive, **options)
    for mode in ["1", "L", "P", "RGB", "RGBA", "LA"]:
        part.convert(mode).save(folder / f"{mode}_{width}x{height}.png")
    wide = np.asarray(part.convert("L")).astype(np.uint16) * 257
    Image.fromarray(wide).save(folder / f"I16_{width}x{height}.png")
