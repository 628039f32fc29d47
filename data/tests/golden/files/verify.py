#!/usr/bin/env python3
"""Reads with other packages what halite wrote.

    HALITE_SAVED=DIR cargo test -p halite-data --test data written_files
    python3 -m venv V && V/bin/pip install numpy tfrecord==1.14.6
    V/bin/python verify.py DIR
"""
import pathlib, sys

import numpy
from tfrecord.reader import tfrecord_loader
from tfrecord.tools.tfrecord2idx import create_index

saved = pathlib.Path(sys.argv[1])
HERE = pathlib.Path(__file__).parent

path = str(saved / "examples.tfrecord")
create_index(path, path + ".other")
assert open(path + ".other").read() == open(path + ".idx").read()
# In parts by the index, too: reader `part` of 2.
for index, part in [(None, None), (path + ".idx", (0, 2)), (path + ".idx", (1, 2))]:
    found = list(tfrecord_loader(path, index, shard=part))
    numbers = range(4) if part is None else range(2 * part[0], 2 * part[0] + 2)
    assert len(found) == len(numbers), found
    for i, example in zip(numbers, found):
        assert sorted(example) == ["image", "label", "scores"], example
        assert list(example["label"]) == [i - 2, -(2**63)], example
        assert (example["scores"] == numpy.array([0.5 * i, -1.25, 3e38], numpy.float32)).all(), example
        images = example["image"]
        assert [bytes(image) for image in images] == [bytes([i] * (3 * i)), b"two"], example

samples = numpy.load(HERE / "samples.npz")
for name in samples:
    array = numpy.load(saved / f"{name}.npy", mmap_mode="r")
    assert array.dtype == samples[name].dtype and (array == samples[name]).all(), name
assert list(numpy.fromfile(saved / "tokens.bin", "<u2")) == [0, 65535, 7]
print("all files are read")
