"""Reads event files with TensorBoard itself: `python3 check.py golden.tfevents` checks the file that
the test `event_file_is_that_which_tensorboard_reads` compares with, and `python3 check.py RUN` prints
the scalars of a run's directory. Needs `pip install tensorboard pillow`; last checked with 2.21.
"""

import io
import math
import sys

from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def read(path):
    events = EventAccumulator(path, size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    events.Reload()
    return events


def scalars(events):
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def check_golden(path):
    events = read(path)
    assert events.file_version == 2.0, events.file_version
    found = scalars(events)
    step, value = found.pop("not finite")[0]
    assert step == 4 and math.isnan(value), (step, value)
    assert found == {
        "loss/train": [(3, 0.5), (300_000_000_000, -1.5)],
        "loss/validation": [(3, 0.25)],
    }, found
    (text,) = events.Tensors("sample")
    assert text.step == 5 and text.tensor_proto.string_val[0].decode() == "**\u00e4** | text"
    metadata = events.SummaryMetadata("sample")
    assert metadata.plugin_data.plugin_name == "text", metadata
    (image,) = events.Images("picture")
    assert (image.step, image.height, image.width) == (6, 2, 3), image
    pixels = list(Image.open(io.BytesIO(image.encoded_image_string)).tobytes())
    assert pixels == list(range(18)), pixels
    print("TensorBoard reads what was written")


if sys.argv[1].endswith(".tfevents"):
    check_golden(sys.argv[1])
else:
    for tag, values in scalars(read(sys.argv[1])).items():
        print(tag, values)
