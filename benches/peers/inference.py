#!/usr/bin/env python3
"""Inference of image classifiers in f32: halite beside PyTorch, in turns, with one table of ratios.

    PEERS_PYTHON=peers/bin/python python3 inference.py [--rounds 7] [--seconds 1.5] [--models resnet50,vit-s16] [--batches 1,32] [--rows 'halite;torch'] [--accelerator cuda] [--no-build]

The Python environment needs torch, torchvision and timm. The machine should do nothing else. The table has milliseconds for a batch
(median over rounds), the spread of the rounds, and times as a multiple of the best row of PyTorch: below 1, halite is faster.
"""
import argparse, statistics, subprocess, sys

from compare import HERE, PYTHON, ROOT, TARGET, Peer

ROWS = [
    ("halite", lambda model, batch, accelerator: [str(TARGET / "release" / "inference"), model, batch, accelerator]),
    ("embedded", lambda model, batch, accelerator: [str(TARGET / "release" / "inference"), model, batch, "embedded"]),
    *((f"torch{', ' + ', '.join(options) if options else ''}",
       lambda model, batch, accelerator, options=options:
           [PYTHON, str(HERE / "torch_inference.py"), model, batch, *options, accelerator])
      for options in ([], ["channels_last"], ["compile"], ["compile", "channels_last"])),
]


def compare(model, batch, rounds, seconds, rows, accelerator):
    peers = []
    for name, command in ROWS:
        if rows and name not in rows or "channels_last" in name and model.startswith("vit"):
            continue
        if accelerator != "cpu" and name == "embedded":
            continue
        try:
            peers.append(Peer(f"{model} {batch} {name}", command(model, batch, accelerator)).wait())
            peers[-1].row = name
        except Exception as error:
            print(f"{model} {batch}: {name} left out: {error}", file=sys.stderr, flush=True)
    counts = {peer.ready["parameters"] for peer in peers}
    if len(counts) > 1:
        raise SystemExit(f"{model}: not the same model: {counts} parameters")
    for peer in peers:
        peer.calibrate(seconds)
    for _ in range(rounds):
        for peer in peers:
            peer.round()
    results = {}
    for peer in peers:
        times = [time for time, _, _ in peer.counted_rounds()]
        results[peer.row] = (statistics.median(times) * 1e3, (max(times) - min(times)) / statistics.median(times))
        peer.close()
    best = min((ms for name, (ms, _) in results.items() if name.startswith("torch")), default=float("nan"))
    for name, (ms, spread) in results.items():
        print(f"{model:<10}{batch:>6}  {name:<28}{ms:>10.2f} ms{spread:>7.0%}{ms / best:>8.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--models", default="resnet50,vit-s16")
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--rows", type=lambda text: text.split(";"), help="of " + "; ".join(name for name, _ in ROWS))
    parser.add_argument("--accelerator", default="cpu", help="cpu or cuda")
    parser.add_argument("--no-build", action="store_true")
    options = parser.parse_args()
    (TARGET / "peers").mkdir(parents=True, exist_ok=True)
    if not options.no_build:
        subprocess.run(["cargo", "build", "--release", "-p", "halite-benches", "--bin", "inference"], cwd=ROOT, check=True)
    print(f"{'model':<10}{'batch':>6}  {'row':<28}{'median':>13}{'spread':>7}{'of torch':>9}")
    for model in options.models.split(","):
        for batch in options.batches.split(","):
            compare(model, batch, options.rounds, options.seconds, options.rows, options.accelerator)


if __name__ == "__main__":
    main()
