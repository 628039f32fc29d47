"""PyTorch's rates of the row `jpeg` of `input`: `input_torch.py DIR SECONDS` prints, for each form of
the pipeline, its name, images a second, and images a second of one processor."""

import csv
import os
import sys
import time

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2

torch.set_num_threads(1)
TICK = os.sysconf("SC_CLK_TCK")


def find(dir):
    """Paths and labels of a generated set."""
    listed = {}
    with open(os.path.join(dir, "train.csv"), newline="") as file:
        for study, series, image, *labels in list(csv.reader(file))[1:]:
            folder = os.path.join(dir, "train", study, series)
            if folder not in listed:
                names = os.listdir(folder)
                listed[folder] = {name[:-4].split("_")[1]: name for name in names}
            path = os.path.join(folder, listed[folder][image])
            yield path, torch.tensor([float(label) for label in labels])


class Slices(Dataset):
    def __init__(self, samples, decode, steps):
        self.samples, self.decode, self.steps = samples, decode, steps

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        return self.steps(self.decode(path)), label


def pillow(path):
    return Image.open(path).convert("RGB")


def torchvision(path):
    return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)


def processor_time(ids):
    """Seconds that processes ran."""
    total = 0
    for id in ids:
        with open(f"/proc/{id}/stat") as file:
            cells = file.read().rpartition(")")[2].split()
        total += int(cells[11]) + int(cells[12])
    return total / TICK


def forever(loader):
    while True:
        yield from loader


def measure(name, dataset, workers, seconds):
    loader = DataLoader(
        dataset,
        batch_size=32,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        prefetch_factor=4 if workers > 0 else None,
    )
    batches = forever(loader)
    for _ in range(8):
        next(batches)
    ids = [os.getpid()]
    if workers > 0:
        ids += [worker.pid for worker in loader._iterator._workers]
    before, started, count = processor_time(ids), time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        images, _ = next(batches)
        count += len(images)
    elapsed = time.perf_counter() - started
    processor = processor_time(ids) - before
    print(f"{name}, workers {workers}", count / elapsed, count / processor, sep="\t")


dir, seconds = sys.argv[1], float(sys.argv[2])
samples = list(find(dir))
crop = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
forms = {
    "Pillow": (pillow, v2.Compose([*crop, v2.PILToTensor()])),
    "torchvision.io": (torchvision, v2.Compose(crop)),
}
for form, (decode, steps) in forms.items():
    for workers in [0, 1, 2]:
        measure(form, Slices(samples, decode, steps), workers, seconds)
