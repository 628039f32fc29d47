#!/usr/bin/env python3
"""Text generation by halite, PyTorch and candle, in turns: a prompt of 512 tokens, then 64 greedy tokens.

    PEERS_PYTHON=peers/bin/python python3 benches/peers/generation/compare.py FILE.gguf [--rounds 7] [--accelerator cuda]

`peers/bin/python` has torch, transformers and gguf. The weights of the GGUF file are unpacked once to a directory
of Hugging Face in target/generation, which all peers load (or such a directory is named), in f32 and in bf16. One sequence, all cores
(`PEERS_THREADS` changes that). Medians over the rounds, in turns; `spread` is the slowest round less the fastest as a
part of the median, and `of torch` the median as a multiple of that of PyTorch's faster row: below 1, it is faster than
PyTorch. A peer that does not start is named and left out.
"""
import argparse, json, os, statistics, subprocess, sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BUILD = TARGET / "generation"
PYTHON = os.environ.get("PEERS_PYTHON", sys.executable)
# Tokens of each part.
PARTS = {"prefill": 512, "decode": 64}
UNPACK = """
import os, sys, torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
directory, file = os.path.split(os.path.abspath(sys.argv[1]))
model = AutoModelForCausalLM.from_pretrained(directory, gguf_file=file, dtype=torch.float32)
# They are not quantized any more, and the output layer is the embedding.
del model.config.quantization_config
model.config.save_pretrained(sys.argv[2])
weights = {name: value.contiguous() for name, value in model.state_dict().items() if name != "lm_head.weight"}
save_file(weights, os.path.join(sys.argv[2], "model.safetensors"), {"format": "pt"})
"""


def build(command, cwd):
    return subprocess.run(command, cwd=cwd, stdout=sys.stderr).returncode == 0


class Peer:
    def __init__(self, name, command, environment):
        self.name, self.rows = name, []
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.first = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise OSError("it ended")
        return json.loads(line)

    def round(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.rows.append(self.read())

    def median(self, part):
        return statistics.median(row[part] for row in self.rows)

    def spread(self, part):
        times = [row[part] for row in self.rows]
        return (max(times) - min(times)) / self.median(part)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gguf")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--peers", default="halite,embedded,torch,torch-compiled,candle")
    parser.add_argument("--accelerator", default="cpu", help="cpu or cuda")
    parser.add_argument("--no-build", action="store_true")
    options = parser.parse_args()
    model = Path(options.gguf) if Path(options.gguf).is_dir() else BUILD / "model"
    if not (model / "model.safetensors").exists():
        subprocess.run([PYTHON, "-c", UNPACK, options.gguf, str(model)], check=True)
    cargo = ["cargo", "build", "--release"]
    candle = BUILD / "candle"
    if not options.no_build:
        build(cargo + ["-p", "halite-benches", "--bin", "generation"], ROOT)
    if "candle" in options.peers and not options.no_build:
        build(cargo + ["--target-dir", str(candle)], HERE / "candle")
    halite = str(TARGET / "release" / "generation")
    environment = os.environ.copy()
    if "PEERS_THREADS" in environment:
        for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
            environment[name] = environment["PEERS_THREADS"]
    columns = "".join(f"{part:>11}{'spread':>6}{'per s':>8}{'of torch':>9}" for part in PARTS)
    print(f"{'':15}{'type':5}{columns}{'last':>8}", flush=True)
    for dtype in options.types.split(","):
        commands = {
            "halite": [halite, str(model), dtype, options.accelerator],
            "embedded": [halite, str(model), dtype, "embedded"],
            "torch": [PYTHON, str(HERE / "torch_generation.py"), str(model), dtype, options.accelerator],
            "torch-compiled": [PYTHON, str(HERE / "torch_generation.py"), str(model), dtype, "compile", options.accelerator],
            "candle": [str(candle / "release/candle-generation"), str(model), dtype],
        }
        peers = []
        for name in options.peers.split(","):
            try:
                peers.append(Peer(name, commands[name], environment))
            except OSError as error:
                print(f"{name} {dtype}: {error}")
        for _ in range(options.rounds):
            for peer in peers:
                peer.round()
        for peer in peers:
            peer.end()
        best = {part: min((peer.median(part) for peer in peers if peer.name.startswith("torch")), default=float("nan"))
                for part in PARTS}
        for peer in peers:
            cells = "".join(
                f"{peer.median(part):>9.3f} s{peer.spread(part):>6.0%}{PARTS[part] / peer.median(part):>8.1f}"
                f"{peer.median(part) / best[part]:>9.2f}" for part in PARTS)
            print(f"{peer.name:15}{dtype:5}{cells}{peer.rows[-1]['last']:>8}", flush=True)


main()
