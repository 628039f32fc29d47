#!/usr/bin/env python3
"""Text generation by halite, PyTorch and candle, in turns: a prompt of 512 tokens, then 64 greedy tokens.

    PEERS_PYTHON=peers/bin/python python3 benches/peers/generation/compare.py FILE.gguf [--rounds 7]

`peers/bin/python` has torch, transformers and gguf. The weights of the GGUF file are unpacked once to a directory
of Hugging Face beside this script's build folder, which all peers load, in f32 and in bf16. One sequence, all cores
(`PEERS_THREADS` changes that). Medians over the rounds; a peer that does not start is named and left out.
"""
import argparse, json, os, statistics, subprocess, sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BUILD = ROOT / "target" / "generation"
PYTHON = os.environ.get("PEERS_PYTHON", sys.executable)
UNPACK = """
import os, sys, torch
from transformers import AutoModelForCausalLM
directory, file = os.path.split(os.path.abspath(sys.argv[1]))
model = AutoModelForCausalLM.from_pretrained(directory, gguf_file=file, dtype=torch.float32)
model.save_pretrained(sys.argv[2])
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

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gguf")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--peers", default="halite,embedded,torch,candle")
    options = parser.parse_args()
    model = BUILD / "model"
    if not (model / "model.safetensors").exists():
        subprocess.run([PYTHON, "-c", UNPACK, options.gguf, str(model)], check=True)
    cargo = ["cargo", "build", "--release"]
    build(cargo + ["-p", "halite-benches", "--bin", "generation"], ROOT)
    candle = BUILD / "candle"
    if "candle" in options.peers:
        build(cargo + ["--target-dir", str(candle)], HERE / "candle")
    halite = str(ROOT / "target/release/generation")
    environment = os.environ.copy()
    if "PEERS_THREADS" in environment:
        for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
            environment[name] = environment["PEERS_THREADS"]
    print(f"{'':10} {'type':5} {'prefill':>9} {'decode':>8}   tokens a second; last token")
    for dtype in options.types.split(","):
        commands = {
            "halite": [halite, str(model), dtype, "cpu"],
            "embedded": [halite, str(model), dtype, "embedded"],
            "torch": [PYTHON, str(HERE / "torch_generation.py"), str(model), dtype],
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
            median = lambda field: statistics.median(row[field] for row in peer.rows)
            prefill, decode = 512 / median("prefill"), 64 / median("decode")
            print(f"{peer.name:10} {dtype:5} {prefill:9.1f} {decode:8.2f}   {peer.rows[-1]['last']}")


main()
