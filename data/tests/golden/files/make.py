#!/usr/bin/env python3
"""Small files of samples by other writers: NumPy, safetensors and Python's `json`.

    python3 -m venv V && V/bin/pip install numpy safetensors
    V/bin/python make.py

Of four samples: `image: u8[2, 3]`, 0 to 23 in all, and `score: f32[]`, half the number of the sample less 1.
"""
import json, pathlib

import numpy
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
image = numpy.arange(24, dtype=numpy.uint8).reshape(4, 2, 3)
score = numpy.arange(4, dtype=numpy.float32) / 2 - 1

numpy.savez(HERE / "samples.npz", image=image, score=score)
numpy.savez_compressed(HERE / "compressed.npz", image=image, score=score)
numpy.savez(HERE / "columns.npz", image=numpy.asfortranarray(image), score=score)
save_file({"image": image, "score": score}, HERE / "samples.safetensors")
numpy.save(HERE / "image.npy", image)
# Python objects: a pickle.
numpy.save(HERE / "objects.npy", numpy.array([{}, None], dtype=object), allow_pickle=True)
with open(HERE / "samples.jsonl", "w", encoding="utf-8-sig") as file:
    for i in range(4):
        json.dump({"image": image[i].tolist(), "score": float(score[i]), "name": "\u00e9\n"}, file)
        file.write("\r\n\n" if i == 1 else "\n")
(numpy.arange(11) * 6000).astype("<u2").tofile(HERE / "tokens_u16.bin")
(numpy.arange(11) * 6000).astype("<u4").tofile(HERE / "tokens_u32.bin")
