"""Python's times of the rows of `checkpoints`: `checkpoints.py DIR ROW COUNT` prints two times."""

import os
import sys
import time

import numpy as np
from safetensors.numpy import load_file, save_file


def synced(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def measure(dir, count, elements):
    path = os.path.join(dir, "python.safetensors")
    factor = np.uint32(0x9E3779B9)
    words = np.arange(elements, dtype=np.uint32)
    arrays = {
        f"layers.{index}.weight": ((words + np.uint32(index)) * factor).view(np.float32)
        for index in range(count)
    }
    started = time.perf_counter()
    save_file(arrays, path)
    synced(path)
    saved = time.perf_counter()
    loaded = load_file(path)
    # Mapped arrays would not be in memory yet.
    assert all(array[-1] is not None for array in loaded.values())
    ended = time.perf_counter()
    os.remove(path)
    print(saved - started, ended - saved)


dir, row, count = sys.argv[1:]
measure(dir, int(count), {"save_and_load": 4_000_000, "many": 64}[row])
