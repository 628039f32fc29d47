#!/usr/bin/env python3
"""One process of PyTorch's DistributedDataParallel with gloo. `ddp_peer.py WORKLOAD EPOCHS STEPS [channels_last]`, with torchrun's variables.

Prints what `src/bin/processes.rs` prints: processor time and time of a step, medians over the epochs after the first.
"""
import json, os, pathlib, statistics, sys, time

workload, epochs, steps, options = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "peers"))
sys.argv[1:] = [workload, "one_thread", *options]
import torch_peer as peer  # noqa: E402
import torch  # noqa: E402

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.distributed.init_process_group("gloo")
rows = len(peer.x) // size
labels = len(peer.y) // size
peer.x, peer.y = peer.x[rank * rows:(rank + 1) * rows], peer.y[rank * labels:(rank + 1) * labels]
peer.model = torch.nn.parallel.DistributedDataParallel(peer.model)
times = []
for _ in range(epochs):
    wall, cpu = time.perf_counter(), time.process_time()
    peer.run(steps)
    times.append((1e3 * (time.process_time() - cpu) / steps, 1e3 * (time.perf_counter() - wall) / steps))
cpu, wall = (statistics.median(column) for column in zip(*times[1:]))
print(json.dumps({"rank": rank, "cpu_ms": cpu, "ms": wall}), flush=True)
torch.distributed.destroy_process_group()
