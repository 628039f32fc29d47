#!/usr/bin/env python3
"""Training steps of a job on one machine: halite and PyTorch's DistributedDataParallel with gloo, on the same work in turns.

    benches/processes/compare.py [--workloads w1,w2,w4] [--rounds 5] [--processes 2] [--python python3] [--engine MPICH]

Each process has one thread. `one process` is halite with as many threads as there are processes. Processor time is that of all
processes together for one step of the whole batch. `--engine FOLDER` also times MPI's all-reduce alone: halite's calls beside
those of a C program, with the MPICH in FOLDER (`include/mpi_abi.h`, `lib`, `bin`). Needs `cargo build --release -p halite
-p halite-benches --bin halite --bin processes` and `cargo build --release -p halite-cluster --example speed`.
"""
import argparse, json, os, pathlib, re, statistics, subprocess, sys, tempfile

HERE = pathlib.Path(__file__).resolve().parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target")) / "release"
STEPS = {"w1": 100, "w2": 8, "w4": 1}


def reports(text):
    """The lines of JSON that the processes printed, with or without a launcher's prefix."""
    return [json.loads(line[line.index("{"):]) for line in text.splitlines() if '{"rank"' in line]


def launched(count, *command, check=True):
    launcher = [TARGET / "halite", "launch", "-n", str(count), "--threads", "1", "--log-dir", tempfile.mkdtemp(), "--"]
    return subprocess.run([*launcher, *command], check=check, capture_output=True, text=True).stdout


def halite(count, accelerator, strategy):
    def run(workload, epochs):
        command = [TARGET / "processes", workload, accelerator, strategy, str(epochs), str(STEPS[workload])]
        return reports(launched(count, *command))
    return run


def one_process(workload, epochs):
    command = [TARGET / "processes", workload, "cpu", "-", str(epochs), str(STEPS[workload])]
    return reports(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def ddp(count, python, *options):
    def run(workload, epochs):
        command = [python, str(HERE / "ddp_peer.py"), workload, str(epochs), str(STEPS[workload]), *options]
        variables = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29611", "OMP_NUM_THREADS": "1"}
        started = [subprocess.Popen(command, env=os.environ | variables | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True) for rank in range(count)]
        return [line for process in started for line in reports(process.communicate()[0])]
    return run


def steps(options):
    peers = {"halite": halite(options.processes, "cpu", "-"), "halite, dp": halite(options.processes, "cpu", "dp"),
             "halite, embedded": halite(options.processes, "embedded", "-"), "one process": one_process}
    if options.python:
        peers |= {"PyTorch DDP": ddp(options.processes, options.python), "PyTorch DDP, channels last": ddp(options.processes, options.python, "channels_last")}
    for workload in options.workloads.split(","):
        chosen = [name for name in peers if "channels" not in name or workload == "w2"]
        times = {name: [] for name in chosen}
        for number in range(options.rounds):
            for name in chosen if number % 2 == 0 else reversed(chosen):
                lines = peers[name](workload, options.epochs)
                times[name].append((sum(line["cpu_ms"] for line in lines), max(line["ms"] for line in lines)))
        print(f"\n{workload}: {options.processes} processes of one thread, {options.rounds} rounds")
        print(f"{'':28}{'cpu ms':>9} {'of halite':>10}{'least':>7}{'most':>7}{'ms':>10}")
        for name in chosen:
            ratios = [other[0] / mine[0] for other, mine in zip(times[name], times["halite"])]
            cpu, wall = (statistics.median(column) for column in zip(*times[name]))
            print(f"{name:28}{cpu:9.2f} {statistics.median(ratios):10.2f}{min(ratios):7.2f}{max(ratios):7.2f}{wall:10.2f}", flush=True)


def engine(options):
    """All-reduces of halite and of C, in turns."""
    mpich = pathlib.Path(options.engine).resolve()
    program = pathlib.Path(tempfile.mkdtemp()) / "engine"
    subprocess.run(["cc", "-O2", f"-I{mpich}/include", HERE / "engine.c", mpich / "lib/libmpi_abi.so.1", f"-Wl,-rpath,{mpich}/lib", "-o", program], check=True)
    commands = {"C": lambda count: launched(count, program, check=False),  # it does not say that it finished
                "halite": lambda count: launched(count, TARGET / "examples/speed")}
    for count in (2, 4):
        times = {name: {} for name in commands}
        for number in range(options.rounds):
            for name in commands if number % 2 == 0 else reversed(commands):
                for size, time in re.findall(r"all-reduce of (\d+) kB: ([\d.]+) ms", commands[name](count)):
                    times[name].setdefault(int(size), []).append(float(time))
        print(f"\nall-reduce over {count} processes, ms, and C's time as a multiple of halite's")
        for size, mine in times["halite"].items():
            ratios = [c / own for c, own in zip(times["C"][size], mine)]
            print(f"{size:7} kB: C {statistics.median(times['C'][size]):8.3f}, halite {statistics.median(mine):8.3f}, ratio "
                  f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default="w1,w2,w4", help="empty: none")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4, help="epochs of a round; the first does not count")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--python", help="a Python that has PyTorch")
    parser.add_argument("--engine", help="a folder with MPICH")
    options = parser.parse_args()
    if options.engine:
        engine(options)
    if options.workloads:
        steps(options)


if __name__ == "__main__":
    sys.exit(main())
