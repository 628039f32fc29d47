#!/usr/bin/env python3
"""What halite does on this machine's accelerator, as one report: what works, how fast, beside JAX and PyTorch where they are.

    python3 measure.py [--quick] [--accelerator cuda] [--minutes 30] [--only devices,check,train,..] [--out report]

Needs Python alone, no network and no compiler: `pack` beside this file gathers the binaries and the data. Each step is a command
with a deadline; one that fails is a line of the report, and the others still run. Writes OUT/report.md, OUT/report.json, and the
output of every command in OUT/log.txt.
"""
import argparse, json, os, pathlib, platform, shutil, subprocess, sys, time

HERE = pathlib.Path(__file__).resolve().parent
EPOCHS = {"digits": ["--epochs", "20"], "mnist": [], "text": ["--steps", "500"]}
PRECISIONS = ["f32", "tf32", "bf16-mixed", "f16-mixed"]
WORKLOADS = "w1,w2,w3,w4,w5,w6,w7,w8,w3-bf16,w4-bf16"
# What `--quick` leaves of it.
QUICK_PRECISIONS = ["f32", "bf16-mixed", "f16-mixed"]
QUICK_WORKLOADS = "w1,w2,w4,w4-bf16"


class Report:
    """The steps that ran, and their output."""

    def __init__(self, out, minutes):
        self.out, self.steps, self.end = out, [], time.monotonic() + 60 * minutes
        out.mkdir(parents=True, exist_ok=True)
        self.log = open(out / "log.txt", "w")

    def run(self, section, name, command, seconds=120, environment=None, read=None, refused=None):
        """Runs a command, and keeps what `read` finds in its output. A step that does not fit in the time left is left out.

        A command that has to fail is right if one of the texts `refused` is in its error.
        """
        left = self.end - time.monotonic()
        if left < 5:
            self.steps.append(dict(section=section, name=name, state="left out", reason="no time left"))
            return None
        started = time.monotonic()
        try:
            done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                  timeout=min(seconds, left), env=dict(os.environ, PYTHONUNBUFFERED="1", **(environment or {})), stdin=subprocess.DEVNULL)
            state, output, errors = ("ok" if done.returncode == 0 else f"exit code {done.returncode}"), done.stdout, done.stderr
        except FileNotFoundError:
            state, output, errors = "not there", "", ""
        except subprocess.TimeoutExpired as expired:
            text = lambda part: (part or b"").decode(errors="replace")
            state, output, errors = f"timed out after {expired.timeout:.0f} s", text(expired.stdout), text(expired.stderr)
        step = dict(section=section, name=name, state=state, seconds=round(time.monotonic() - started, 2))
        self.log.write(f"\n==== {section}: {name}: {state}, {step['seconds']} s\n$ {' '.join(map(str, command))}\n{output}\n---- stderr\n{errors}\n")
        self.log.flush()
        if refused and state.startswith("exit code") and any(text in errors for text in refused):
            step |= dict(state="ok", error=errors.strip())
        elif refused:
            step |= dict(state=f"not refused: {state}", reason=(errors or output).strip())
        elif state == "ok" and read:
            try:
                step |= read(output) or {}
            except (OSError, ValueError, KeyError, IndexError) as error:
                step |= dict(state="unreadable", reason=repr(error))
        elif state.startswith("timed out") and output and read is table:
            step |= table(output)
        elif state != "ok":
            step["reason"] = "\n".join((errors or output).strip().splitlines()[-6:])
        self.steps.append(step)
        print(f"{section}: {name}: {step['state']}, {step.get('seconds', 0)} s", file=sys.stderr, flush=True)
        return step


def machine():
    """What the machine is, without any accelerator's library."""
    read = lambda path: pathlib.Path(path).read_text() if pathlib.Path(path).exists() else ""
    models = [line.split(":", 1)[1].strip() for line in read("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    memory = [line.split()[1] for line in read("/proc/meminfo").splitlines() if line.startswith("MemTotal")]
    return dict(system=platform.platform(), processor=models[0] if models else platform.machine(), cores=os.cpu_count(),
                memory_gb=round(int(memory[0]) / 1e6, 1) if memory else None, python=platform.python_version(), at=time.strftime("%Y-%m-%d %H:%M"))


def counts(output):
    """The last line of `halite plugins check`: how many cases passed."""
    return dict(result=next(line for line in output.splitlines() if " passed, " in line))


def devices(path):
    """The devices, with the peaks that halite knows of them; this script has no table of its own."""
    def read(_):
        found = json.loads(path.read_text())["accelerator"]["devices"]
        return dict(devices=[{name: device[name] for name in ("kind", "memory_limit", "published") if device.get(name) is not None} for device in found])

    return read


def training(run):
    def read(_):
        found = json.loads((run / "report.json").read_text())
        keep = ["metrics", "steps", "seconds", "samples_per_second", "device_busy_seconds", "input_wait_seconds", "training_seconds", "compiles",
                "seconds_to_first_step", "blocking_reads", "uploads", "device_memory_peak", "device", "mfu", "precision", "loss_scale", "plugin", "findings"]
        return dict(run={name: found[name] for name in keep if found.get(name) is not None})

    return read


def table(output):
    """A comparison, as it was printed; part of it, if it ran out of time."""
    return dict(table=output)


def lines_of_json(output):
    return dict(rows=[json.loads(line) for line in output.splitlines() if line.startswith("{")])


# A decoder of SmolLM2-135M's form, with random weights, which no machine has to be sent.
DECODER = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
config = LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
                     max_position_embeddings=8192, rope_theta=100000.0, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2)
LlamaForCausalLM(config).save_pretrained(sys.argv[1])
"""


def models(report, options, halite, runs):
    """Training of networks of `halite-models` on generated images, and the CT pipeline from JPEG."""
    batch, steps, precisions = ("8", "10", ("f32",)) if options.accelerator == "cpu" else ("128", options.steps, ("tf32", "bf16-mixed"))
    for model in ("resnet50", "vit-s16"):
        for precision in precisions:
            run = runs / f"{model}-{precision}"
            command = [halite, "train", "imagenet", "--fake-data", "--benchmark", "--model", model, "--batch-size", batch, "--max-steps", steps,
                       "--accelerator", options.accelerator, "--precision", precision, "--quiet", "--out", run]
            report.run("models", f"train {model}, batch {batch}, {precision}", command, 120, read=training(run))
    data = runs / "ct-data"
    report.run("models", "data fake ct", [halite, "data", "fake", "ct", "--out", data], 60)
    command = [halite, "train", "ct", "--data", data, "--accelerator", options.accelerator, "--batch-size", "32", "--quiet", "--out", runs / "ct"]
    report.run("models", "train ct", command, 120, read=training(runs / "ct"))


def inference(report, options, runs):
    """Inference and generation by networks of `halite-models`, beside PyTorch."""
    environment = dict(CARGO_TARGET_DIR=str(options.binaries), PEERS_PYTHON=sys.executable)
    peers, beside = HERE.parent / "peers", ["--no-build", "--accelerator", options.accelerator, "--rounds", options.rounds]
    decoder = runs / "decoder"
    report.run("inference", "a decoder of random weights", [sys.executable, "-c", DECODER, decoder], 60)
    if (decoder / "model.safetensors").exists():
        command = [sys.executable, peers / "generation" / "compare.py", decoder, *beside, "--peers", "halite,torch" if options.quick else "halite,torch,torch-compiled"]
        report.run("inference", "generation", command, 180 if options.quick else 300, environment, table)
    rows = ["--rows", "halite;torch;torch, channels_last"] if options.quick else []
    command = [sys.executable, peers / "inference.py", *beside, "--seconds", "0.3", *rows]
    report.run("inference", "resnet50 and vit-s16", command, 240 if options.quick else 300, environment, table)



# Takes most of the memory of the GPU until its input ends.
HOLD = """
import sys, torch
held = torch.empty(int(torch.cuda.mem_get_info()[0] * 0.97), dtype=torch.uint8, device="cuda")
print("held", flush=True)
sys.stdin.read()
"""


def refusals(report, halite):
    """Machines that are set up wrongly: each command has to fail with an error that says what is wrong."""
    devices = [halite, "devices", "--accelerator", "cuda"]
    for value in ("", "7", "all"):
        report.run("errors", f"CUDA_VISIBLE_DEVICES={value}", devices, 60, dict(CUDA_VISIBLE_DEVICES=value), refused=[f"CUDA_VISIBLE_DEVICES is `{value}`"])
    report.run("errors", "GPU_NUM_DEVICES=99", devices, 60, dict(GPU_NUM_DEVICES="99"), refused=["99 devices asked for"])
    report.run("errors", "cuda:[7]", [halite, "devices", "--accelerator", "cuda:[7]"], 60, refused=["unknown device 7"])
    other = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        if other.stdout.readline() == "held\n":
            command = [halite, "train", "imagenet", "--fake-data", "--model", "resnet50", "--batch-size", "256", "--max-steps", "2", "--accelerator", "cuda",
                       "--quiet", "--out", report.out / "runs" / "no-memory"]
            report.run("errors", "another process holds the memory", command, 90, refused=[str(other.pid)])
    finally:
        other.kill()
        other.wait()


def measure(report, options):
    halite, cuda = options.binaries / "release" / "halite", options.accelerator == "cuda"
    wanted = lambda section: not options.only or section in options.only.split(",")
    data = ["--cache-dir", options.binaries / "cache"] if (options.binaries / "cache").exists() else []
    runs = report.out / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    if wanted("devices"):
        if cuda:
            report.run("devices", "nvidia-smi", ["nvidia-smi"])
        report.run("devices", "halite devices", [halite, "devices", "--accelerator", options.accelerator, "--report", report.out / "devices.json"],
                   read=devices(report.out / "devices.json"))
        report.run("devices", "auto", [halite, "devices"])
    if wanted("check"):
        report.run("check", "conformance", [halite, "plugins", "check", options.accelerator], 240, read=counts)
    if wanted("train"):
        for task, epochs in EPOCHS.items():
            for precision in QUICK_PRECISIONS if options.quick or not cuda else PRECISIONS:
                run = runs / f"{task}-{precision}"
                command = [halite, "train", task, "--accelerator", options.accelerator, "--precision", precision, "--quiet", "--out", run, *epochs, *data]
                report.run("train", f"{task}, {precision}", command, 180, read=training(run))
    if wanted("resume"):
        run = runs / "resumed"
        first = [halite, "train", "digits", "--accelerator", options.accelerator, "--quiet", "--out", run, *data]
        report.run("resume", "digits, 3 epochs", [*first, "--epochs", "3"], read=training(run))
        report.run("resume", "digits, on to 6", [*first, "--epochs", "6", "--resume", "--allow-changes", "all"], read=training(run))
    if wanted("errors") and cuda:
        refusals(report, halite)
    if wanted("plan"):
        target = options.target or "cpu:1"
        report.run("plan", f"gpt2-124m for {target}", [halite, "plan", "gpt2-124m", "--target", target, "--json"], 120, read=lambda output: dict(plan=json.loads(output)))
        if (options.binaries / "cache").exists() and cuda:
            run = runs / "gpt2"
            command = [halite, "train", "text", "--model", "gpt2-124m", "--tokenizer", "gpt2", "--context", "1024", "--batch-size", "8", "--max-steps", "60",
                       "--accelerator", options.accelerator, "--quiet", "--out", run, *data]
            report.run("plan", "gpt2-124m as it is", command, 180, read=training(run))
    if wanted("uploads"):
        report.run("uploads", "halite, GB/s", [options.binaries / "release" / "uploads", options.accelerator], 60, read=lines_of_json)
        if cuda:
            report.run("uploads", "PyTorch, GB/s", [sys.executable, HERE / "uploads_torch.py"], 60, read=lines_of_json)
            for name, flags in (("pageable", []), ("pinned", ["--pinned-memory"])):
                run = runs / f"resnet50-{name}"
                command = [halite, "train", "imagenet", "--fake-data", "--benchmark", "--model", "resnet50", "--batch-size", "128", "--max-steps", options.steps,
                           "--accelerator", options.accelerator, "--precision", "bf16-mixed", "--workers", "4", "--quiet", "--out", run, *flags]
                report.run("uploads", f"train resnet50, {name} memory", command, 120, read=training(run))
    if wanted("models"):
        models(report, options, halite, runs)
    if wanted("inference"):
        inference(report, options, runs)
    if wanted("peers"):
        environment = dict(CARGO_TARGET_DIR=str(options.binaries), PEERS_PYTHON=sys.executable)
        command = [sys.executable, HERE.parent / "peers" / "compare.py", "--no-build", "--accelerator", options.accelerator, "--json", report.out / "peers.json",
                   "--rounds", options.rounds, "--seconds", "0.3", "--peers", options.peers, "--workloads", options.workloads or (QUICK_WORKLOADS if options.quick else WORKLOADS)]
        report.run("peers", "halite beside JAX and PyTorch", command, 540, environment, table)


# What of a run's report a reader needs, with its unit.
RUN = [("steps", "{:,.0f} steps"), ("samples_per_second", "{:,.0f} samples/s"), ("seconds_to_first_step", "{:.2f} s to the first step"),
       ("device_memory_peak", "{0:,.0f} bytes of the device"), ("mfu", "MFU {:.1%}"), ("loss_scale", "loss scale {:,.0f}")]


TIMES = {"step_seconds": "with full overlap", "step_seconds_without_overlap": "without"}


def planned(plan):
    """What a plan says of memory and time, as text."""
    estimate = plan["estimate"] or {}
    times = [f"{estimate[key] * 1e3:.1f} ms a step {words}" for key, words in TIMES.items() if key in estimate]
    return [f"{plan['memory']['peak'] / 1e9:.3f} GB at most", *times, f"{plan['compile_seconds']:.1f} s to compile"]


def readable(step):
    """The facts of a step, as text."""
    if "plan" in step:
        return planned(step["plan"])
    if "devices" in step:
        return [", ".join(f"{name} {value}" for name, value in device.items() if name != "published") for device in step["devices"]]
    if "run" not in step:
        skipped = ("section", "name", "state", "seconds", "table", "reason", "error", "rows")
        return [f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in step.items() if name not in skipped]
    run = step["run"]
    facts = [f"{name} {float(value):.4g}" for name, value in run.get("metrics", {}).items()]
    facts += [form.format(run[name]) for name, form in RUN if run.get(name) is not None]
    if run.get("training_seconds"):
        shares = (("device busy", "device_busy_seconds"), ("input wait", "input_wait_seconds"))
        facts += [f"{name} {run[key] / run['training_seconds']:.0%}" for name, key in shares if run.get(key) is not None]
    return facts + run.get("findings", [])


def columns(rows):
    """Rows with the same names, as a table."""
    names = list(rows[0])
    cells = lambda values: "| " + " | ".join(values) + " |"
    lines = [cells(names), cells(["---"] * len(names))]
    return ["", *lines, *(cells(["" if row[name] is None else f"{row[name]:,}" for name in names]) for row in rows), ""]


def markdown(report, about):
    lines = ["# halite on hardware", "", ", ".join(f"{name} {value}" for name, value in about.items()), ""]
    section = None
    for step in report.steps:
        if step["section"] != section:
            section = step["section"]
            lines += ["", f"## {section}", ""]
        seconds = [f"{step['seconds']} s"] if "seconds" in step else []
        lines.append(f"- **{step['name']}**: {step['state']}; " + ", ".join(seconds + readable(step)))
        if step.get("rows"):
            lines += columns(step["rows"])
        for text in (step.get("reason"), step.get("error"), step.get("table")):
            if text and step["state"] != "left out":
                lines += ["", "```", text, "```", ""]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accelerator", default="cuda", help="cuda or cpu")
    parser.add_argument("--target", help="target of `halite plan`, such as cuda:h100:1x1")
    parser.add_argument("--quick", action="store_true", help="fewer precisions, workloads and peers, in 10 minutes")
    parser.add_argument("--minutes", type=float, help="steps that do not fit are left out [default: 30, or 10 if quick]")
    parser.add_argument("--only", help="sections, separated by commas: devices,check,train,resume,errors,plan,uploads,models,inference,peers")
    parser.add_argument("--peers", default="halite,jax,torch")
    parser.add_argument("--workloads", help="workloads of `peers`")
    parser.add_argument("--steps", default="60", help="training steps of the networks of `models`")
    parser.add_argument("--rounds", help="rounds of comparisons [default: 5, or 3 on the CPU]")
    parser.add_argument("--binaries", type=pathlib.Path, default=HERE.parent.parent / "target", help="folder with release/halite and the other programs")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("hardware-report"))
    options = parser.parse_args()
    options.rounds = options.rounds or ("3" if options.accelerator == "cpu" else "5")
    report, about = Report(options.out, options.minutes or (10 if options.quick else 30)), machine()
    measure(report, options)
    (options.out / "report.json").write_text(json.dumps(dict(machine=about, steps=report.steps), indent=1) + "\n")
    (options.out / "report.md").write_text(markdown(report, about))
    shutil.rmtree(options.out / "runs", ignore_errors=True)
    wrong = [step for step in report.steps if step["state"] not in ("ok", "left out")]
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
