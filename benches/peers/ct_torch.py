#!/usr/bin/env python3
"""The CT pipeline of `halite train ct` and `examples/ct.rs` in PyTorch: JPEG files and a CSV file in, ROC-AUC out.

    halite data fake ct --out ct --studies 100 --side 64
    python ct_torch.py ct --side 64 --save-initial initial.pth      # writes the initial weights, and ends
    python ct_torch.py ct --side 64 --weights initial.pth --epochs 2
    halite train ct --data ct --weights initial.pth --keep-head --max-epochs 2 --transforms 64,random-resized-crop=0.8..1,rotate=10
"""
import argparse, csv, os, time
from pathlib import Path
import torch
from PIL import Image
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision import transforms as T
from torchvision.models import resnet34

IDS = ["StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID"]


class Slices(Dataset):
    def __init__(self, root, rows, labels, transform):
        self.transform = transform
        self.paths = [next((root / row[IDS[0]] / row[IDS[1]]).glob(f"*{row[IDS[2]]}.jpg")) for row in rows]
        self.labels = torch.tensor([[float(row[label]) for label in labels] for row in rows])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.transform(Image.open(self.paths[index]).convert("RGB")), self.labels[index]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--weights", help="state dict of a ResNet-34; a head of another size is left out")
    parser.add_argument("--save-initial", metavar="FILE", help="write the initial weights, and end")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--channels-last", action="store_true")
    return parser.parse_args()


def main():
    options = arguments()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    rows = list(csv.DictReader(open(options.data / "train.csv")))
    labels = [column for column in rows[0] if column not in IDS]
    normalize = [T.ToTensor(), T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
    augment = T.Compose([T.RandomResizedCrop(options.side, scale=(0.8, 1.0)), T.RandomRotation(10, T.InterpolationMode.BILINEAR), *normalize])
    resize = T.Compose([T.Resize(options.side), T.CenterCrop(options.side), *normalize])
    train_rows, valid_rows = next(GroupKFold(5).split(rows, groups=[row[IDS[0]] for row in rows]))
    root = options.data / "train"
    train = Subset(Slices(root, rows, labels, augment), train_rows)
    valid = Subset(Slices(root, rows, labels, resize), valid_rows)
    workers = dict(num_workers=options.workers, persistent_workers=options.workers > 0, pin_memory=device == "cuda")
    train_loader = DataLoader(train, options.batch_size, shuffle=True, drop_last=True, **workers)
    valid_loader = DataLoader(valid, options.batch_size, **workers)

    net = resnet34(num_classes=len(labels))
    if options.save_initial:
        return torch.save(net.state_dict(), options.save_initial)
    if options.weights:
        state = torch.load(options.weights, map_location="cpu")
        if len(state["fc.bias"]) != len(labels):
            state = {name: value for name, value in state.items() if not name.startswith("fc.")}
        net.load_state_dict(state, strict=False)
    net = net.to(device, memory_format=torch.channels_last if options.channels_last else torch.contiguous_format)
    loss_of = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(net.parameters(), lr=options.learning_rate)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

    best = float("inf")
    for epoch in range(options.epochs):
        net.train()
        start, total = time.perf_counter(), 0.0
        for step, (images, targets) in enumerate(train_loader, 1):
            loss = loss_of(net(images.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            if step % 100 == 0:
                print(f"step {step}/{len(train_loader)}  loss {loss.item():.4f}  mean {total / step:.4f}")
            if step == 1000:
                break
        schedule.step()
        trained = time.perf_counter()

        net.eval()
        outputs = []
        with torch.inference_mode():
            for images, targets in valid_loader:
                outputs.append((net(images.to(device)).cpu(), targets))
        logits, targets = (torch.cat(part) for part in zip(*outputs))
        loss = loss_of(logits, targets).item()
        validated = time.perf_counter()
        scores = [roc_auc_score(targets[:, i], logits[:, i]) for i in range(len(labels)) if 0 < targets[:, i].mean() < 1]
        print(f"epoch {epoch + 1}: {trained - start:.1f} s, loss {total / step:.4f}; validation: {validated - trained:.1f} s, "
              f"loss {loss:.4f}, ROC-AUC {sum(scores) / len(scores):.4f}", flush=True)
        if loss < best:
            best = loss
            torch.save(net.state_dict(), options.data / "best.pth")
    for i, label in enumerate(labels):
        if 0 < targets[:, i].mean() < 1:
            print(f"  {label}: {roc_auc_score(targets[:, i], logits[:, i]):.4f}")


if __name__ == "__main__":
    main()
