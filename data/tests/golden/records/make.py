#!/usr/bin/env python3
"""Writes `examples.tfrecord` and `examples.tfrecord.idx` with an independent writer.

    python3 -m venv V && V/bin/pip install tfrecord==1.14.6
    V/bin/python make.py
"""
import pathlib
from tfrecord.writer import TFRecordWriter
from tfrecord.tools.tfrecord2idx import create_index

path = pathlib.Path(__file__).parent / "examples.tfrecord"
writer = TFRecordWriter(str(path))
for i in range(5):
    writer.write({
        "image/encoded": (bytes([i] * (3 * i)), "byte"),
        "scores": ([0.5 * i, -1.25, 3e38], "float"),
        "label": (i - 2, "int"),
    })
writer.close()
create_index(str(path), str(path) + ".idx")
