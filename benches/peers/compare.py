#!/usr/bin/env python3
"""halite beside its peers on the same work: builds them, runs them in turns, prints one table of ratios.

    python3 compare.py [--rounds 7] [--seconds 1.5] [--workloads w1,w2,..] [--peers halite,jax,..] [--accelerator cuda] [--no-build] [--json FILE]

Every peer of a workload is started, one after the other, so that they do not compile at the same time (at once on a GPU,
where the host has cores to spare and the device is what is timed). Then they are timed in rounds, A B C A B C ..., each for about SECONDS a round, and wait idle between their turns: what else the machine does
meets all of them. Ratios are of medians over rounds. README.md says what the columns mean.
"""
import argparse, json, os, pathlib, shutil, statistics, subprocess, sys, time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PYTHON = os.environ.get("PEERS_PYTHON", sys.executable)
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
THREADS = os.environ.get("PEERS_THREADS", str(os.cpu_count()))
# Threads sleep soon when there is nothing to do: a peer that waits for its turn must leave the cores to the others.
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS=THREADS, MKL_NUM_THREADS=THREADS, RAYON_NUM_THREADS=THREADS, KMP_BLOCKTIME="1",
                   GOMP_SPINCOUNT="100000", TF_CPP_MIN_LOG_LEVEL="2")
WORK = {
    "w1": "MLP 784-512-512-10, batch 128, Adam",
    "w2": "CNN 28x28, batch 128, SGD with momentum",
    "w3": "ResNet-18, 32x32, batch 64, SGD with momentum",
    "w4": "GPT 6x384, 256 tokens, batch 16, Adam",
    "w5": "ResNet-50, 224x224, batch 8, SGD with momentum",
    "w6": "MLP 32-32-32, batch 8, SGD",
    "w7": "ConvNeXt, 64x64, batch 16, AdamW",
    "w8": "VAE with transposed convolutions, 28x28, batch 32, Adam",
    "w3-bf16": "w3 in bf16, parameters in f32",
    "w4-bf16": "w4 in bf16, parameters in f32",
}
# A round in which a peer's threads waited for a core longer than this part of the time is not counted, where enough others are.
DISTURBED = 0.04


def python(script, *options):
    return lambda work, bf16, accelerator: [PYTHON, str(HERE / script), work, *(["bf16"] if bf16 else []), *options, accelerator]


def jax(*options):
    return python("jax_peer.py", *options)


def torch(*options):
    return python("torch_peer.py", *options)


def halite_command(binary, executor=None, launch="", mixed=False):
    # On a GPU JAX multiplies f32 in TF32, and so does halite here.
    f32 = lambda accelerator: "f32" if accelerator == "cpu" else "tf32"
    precision = lambda bf16, accelerator: "bf16-mixed" if bf16 or mixed else f32(accelerator)
    return lambda work, bf16, accelerator: [str(binary), work + launch, precision(bf16, accelerator), executor or accelerator]


def halite(*executor, **options):
    return halite_command(TARGET / "release" / "peer", *executor, **options)


def halite_steps(steps):
    return halite_command(TARGET / "release" / "peer", launch=f"x{steps}")


def rust(path):
    return lambda work, bf16, accelerator: [str(path), work]


PEERS = [
    # name, command by workload, workloads that it is worth a row in
    ("halite", halite(), "w1 w2 w3 w4 w5 w6 w7 w8 w3-bf16 w4-bf16"),
    ("halite, 16 steps a launch", halite_steps(16), "w6"),
    ("halite, 128 steps a launch", halite_steps(128), "w6"),
    ("embedded", halite("embedded"), "w1 w2 w3 w4 w5 w6 w7 w8"),
    ("embedded, bf16", halite("embedded", mixed=True), "w1 w2 w3 w4 w5 w6 w7 w8"),
    ("embedded, 4 devices", halite("embedded:4"), "w1 w2 w3 w4 w5 w6 w7 w8"),
    ("jax", jax(), "w1 w2 w3 w4 w5 w6 w7 w8 w3-bf16 w4-bf16"),
    ("jax, 16 steps a launch", jax("scan16"), "w6"),
    ("jax, 128 steps a launch", jax("scan128"), "w6"),
    ("jax, pool as reshape", jax("reshape_pool"), "w2"),
    ("torch", torch(), "w1 w2 w3 w4 w5 w6 w7 w8 w3-bf16 w4-bf16"),
    ("torch, channels last", torch("channels_last"), "w2 w3 w5 w7 w8 w3-bf16"),
    ("torch, one thread", torch("one_thread"), "w6"),
    ("torch, compiled", torch("compile"), "w1 w2 w4 w6 w7 w8"),
    ("burn", rust(TARGET / "peers" / "burn" / "release" / "burn-peer"), "w1 w2 w6"),
    ("candle", rust(TARGET / "peers" / "candle" / "release" / "candle-peer"), "w1 w2 w6"),
]
EVERY = " ".join(WORK)
IMAGES = "w2 w3 w5 w7 w8 w3-bf16"
GPU_PEERS = [
    ("halite", halite(), EVERY),
    ("jax", jax(), EVERY),
    ("torch", torch(), EVERY),
    ("torch, channels last", torch("channels_last"), IMAGES),
    ("torch, compiled", torch("compile"), EVERY),
    ("torch, compiled, channels last", torch("compile", "channels_last"), IMAGES),
]


class Peer:
    """A peer at work in its own process."""

    def __init__(self, name, command):
        self.name, self.rounds = name, []
        self.log = open(TARGET / "peers" / (name.replace(", ", "-").replace(" ", "-") + ".log"), "w")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, bufsize=1,
                                        env=ENVIRONMENT)

    def wait(self):
        """Waits for its fifth step."""
        self.ready = json.loads(self.line("READY"))
        return self

    def line(self, tag):
        for line in self.process.stdout:
            if line.startswith(tag + " "):
                return line[len(tag) + 1:]
        raise RuntimeError(f"ended without {tag}; see {self.log.name}")

    def run(self, steps):
        self.process.stdin.write(f"RUN {steps}\n")
        self.process.stdin.flush()
        return float(self.line("DONE"))

    def calibrate(self, seconds):
        """Finds how many steps a round has."""
        self.run(2)
        steps = max(1, int(0.3 / self.run(1)))
        self.steps = max(1, int(seconds / (self.run(steps) / steps)))

    def round(self):
        """Times one round: seconds a step, seconds of work a step on all cores, part of the time that it waited for a core."""
        ran, waited = self.scheduled()
        seconds = self.run(self.steps)
        ran, waited = (after - before for after, before in zip(self.scheduled(), (ran, waited)))
        self.rounds.append((seconds / self.steps, ran / self.steps, waited / seconds / int(THREADS)))

    def scheduled(self):
        """Seconds that its threads ran, and that they could have run but did not."""
        ran = waited = 0
        for thread in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                times = (thread / "schedstat").read_text().split()
                ran, waited = ran + int(times[0]), waited + int(times[1])
            except OSError:
                pass  # the thread has ended
        return ran * 1e-9, waited * 1e-9

    def quiet_rounds(self):
        return [round for round in self.rounds if round[2] < DISTURBED]

    def counted_rounds(self):
        return self.quiet_rounds() if len(self.quiet_rounds()) >= 4 else self.rounds

    def close(self):
        self.process.stdin.write("QUIT\n")
        self.process.stdin.flush()
        bye = json.loads(self.line("BYE"))
        self.process.wait(20)
        return bye


def build(wanted):
    """Builds the Rust peers that are wanted. One that does not build is left out of the tables."""
    native = dict(os.environ, RUSTFLAGS="-C target-cpu=native")
    if "halite" in wanted or "embedded" in wanted:
        subprocess.run(["cargo", "build", "--release", "-p", "halite-benches", "--bin", "peer"], cwd=ROOT, check=True)
    for name in ("burn", "candle"):
        if name in wanted:
            command = ["cargo", "build", "--release", "--manifest-path", str(HERE / name / "Cargo.toml"), "--target-dir", str(TARGET / "peers" / name)]
            subprocess.run(command, env=native)


def start(work, wanted, accelerator):
    """Starts the peers of a workload: an iterator of each with its fifth step done."""
    def one(name, command):
        arguments = command(work.removesuffix("-bf16"), work.endswith("-bf16"), accelerator)
        if not shutil.which(arguments[0]):
            raise RuntimeError(f"{arguments[0]} is not there")
        return Peer(name, arguments)

    def attempt(name, action):
        try:
            return action()
        except Exception as error:
            print(f"{work}: {name} left out: {error}", file=sys.stderr, flush=True)

    rows = PEERS if accelerator == "cpu" else GPU_PEERS
    rows = [(name, command) for name, command, workloads in rows if work in workloads.split() and name.split(",")[0] in wanted]
    started = ((name, attempt(name, lambda: one(name, command))) for name, command in rows)
    if accelerator != "cpu":
        started = list(started)
    ready = (attempt(name, peer.wait) for name, peer in started if peer)
    return filter(None, ready)


def compare(work, wanted, rounds, seconds, accelerator):
    peers = list(start(work, wanted, accelerator))
    for peer in peers:
        peer.calibrate(seconds)
    counts = {peer.ready["parameters"] for peer in peers if "parameters" in peer.ready}
    if len(counts) > 1:
        raise SystemExit(f"{work}: not the same model: " + ", ".join(f"{peer.name} has {peer.ready.get('parameters')} parameters" for peer in peers))
    # On past ROUNDS, at most twice as many, while a peer lacks quiet ones.
    for number in range(2 * rounds):
        for peer in peers:
            peer.round()
        if number + 1 >= rounds and all(len(peer.quiet_rounds()) >= 5 for peer in peers):
            break
    results = []
    for peer in peers:
        times, work_times, _ = zip(*peer.counted_rounds())
        median = statistics.median(times)
        results.append(dict(work=work, peer=peer.name, ms=median * 1e3, best_ms=min(times) * 1e3, spread=(max(times) - min(times)) / median,
                            cpu_ms=statistics.median(work_times) * 1e3, steps=peer.steps, rounds=len(peer.rounds), quiet=len(peer.quiet_rounds()), **peer.ready, **peer.close()))
    return results


def table(work, results):
    base = {(result["peer"], what): result[what] for result in results for what in ("ms", "cpu_ms")}
    print(f"\n{work}: {WORK[work]}")
    print(f"{'peer':<24}{'ms/step':>10}{'of halite':>11}{'of jax':>9}{'cpu ms':>10}{'of jax':>8}{'spread':>9}{'quiet':>8}{'first step s':>14}{'MB':>7}")
    for result in results:
        of = lambda name, what="ms": f"{result[what] / base[name, what]:.2f}" if (name, what) in base else "-"
        quiet = f"{result['quiet']}/{result['rounds']}"
        print(f"{result['peer']:<24}{result['ms']:>10.4f}{of('halite'):>11}{of('jax'):>9}{result['cpu_ms']:>10.4f}{of('jax', 'cpu_ms'):>8}{result['spread']:>8.0%} {quiet:>8}"
              f"{result['since_exec_s']:>13.2f}{result['peak_rss_mb']:>8.0f}", flush=True)
    losses = ", ".join(f"{result['peer']} {result['loss1']:.4f} {result.get('loss5', '')}".rstrip() for result in results)
    print(f"loss of step 1 and of step 5: {losses}")
    print(f"parameters: {next((result['parameters'] for result in results if 'parameters' in result), '?')}")


def ratios(results):
    """One table: how many times halite's step each peer's step takes. Above 1, halite is faster."""
    works = [work for work in WORK if any(result["work"] == work for result in results)]
    ms = {(result["peer"], result["work"]): result["ms"] for result in results}
    print("\ntime of a step, as a multiple of halite's")
    print(f"{'peer':<24}" + "".join(f"{work:>10}" for work in works))
    for name in dict.fromkeys(result["peer"] for result in results):
        cell = lambda work: f"{ms[name, work] / ms['halite', work]:.2f}" if (name, work) in ms and ("halite", work) in ms else "-"
        print(f"{name:<24}" + "".join(f"{cell(work):>10}" for work in works))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--workloads", default="w1,w2,w3,w4,w5,w6,w7,w8,w3-bf16,w4-bf16")
    parser.add_argument("--peers", default="halite,embedded,jax,torch,burn,candle")
    parser.add_argument("--accelerator", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--no-build", action="store_true")
    parser.add_argument("--json", help="a file to append the results to, one line for each run")
    options = parser.parse_args()
    wanted, works = options.peers.split(","), options.workloads.split(",")
    # Peers wait for their turns on one device: none may take its memory for itself.
    ENVIRONMENT.update(JAX_PLATFORMS=options.accelerator, XLA_PYTHON_CLIENT_PREALLOCATE="false")
    (TARGET / "peers").mkdir(parents=True, exist_ok=True)
    if not options.no_build:
        build(wanted)
    results = []
    for work in works:
        found = compare(work, wanted, options.rounds, options.seconds, options.accelerator)
        table(work, found)
        results += found
    ratios(results)
    print(f"\n{THREADS} threads; load at the end {os.getloadavg()[0]:.1f}")
    if options.json:
        with open(options.json, "a") as file:
            file.write(json.dumps(dict(at=time.strftime("%Y-%m-%d %H:%M"), threads=THREADS, results=results)) + "\n")


if __name__ == "__main__":
    main()
