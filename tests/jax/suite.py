"""Runs JAX's own tests on a PJRT plugin, and counts what passes and why the rest does not.

    python suite.py [--most N] TESTS LIBRARY PLATFORM OUTPUT [FILE ..]

TESTS is the folder `tests` of a checkout of JAX, at the version of `requirements.txt`. It needs
`absl-py`, `hypothesis` and `pytest` as well. Each file runs in a process of its own, which starts
again behind a test that ends it or takes longer than `--deadline`. Tests that fail run once more,
on JAX's CPU backend: what fails there as well is not counted against the plugin. OUTPUT is a JSON
file of counts by file, and `OUTPUT.failed` has a line for each test that failed; counts of files
that do not run this time stay.
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

# Those of one device that compute, then those of several.
FILES = """ann api array array_interoperability batching blocked_sampler checkify custom_api
    custom_linear_solve custom_root debug_nans dtypes experimental_rnn export fft
    fused_attention_stablehlo generated_fun image jet lax lax_autodiff lax_control_flow
    lax_numpy_einsum lax_numpy_indexing lax_numpy_operators lax_numpy_reducers lax_numpy_setops
    lax_numpy lax_numpy_ufuncs lax_numpy_vectorize lax_scipy lax_scipy_sparse
    lax_scipy_special_functions lax_scipy_spectral_dac lax_vmap_op lax_vmap linalg memories
    mutable_array nn ode optimizers pjit pmap polynomial python_callback random_impl random_lax
    random scaled_dot scipy_fft scipy_interpolate scipy_ndimage scipy_optimize scipy_signal
    scipy_spatial scipy_stats shape_poly shard_alike shard_map sparse_bcoo_bcsr sparse sparsify
    stateful_rng stax svd unary_ops_accuracy x64_context""".split()

# Variables of the processes that run tests.
CASES = {"JAX_NUM_GENERATED_CASES": "10", "JAX_ENABLE_X64": "1"}


def cause(kind, text):
    """A short name of what an exception says: the same for the same fault."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    rule = re.search(r"rule for primitive '([^']+)' not found for platform", text)
    if rule:
        return f"JAX has no lowering for a plugin: {rule[1]}"
    if re.search(r"Not equal to tolerance|Arrays are not equal|not almost equal", text):
        return "wrong value"
    status = re.search(r"\b(UNIMPLEMENTED|INVALID_ARGUMENT|INTERNAL|RESOURCE_EXHAUSTED): .*", text)
    said = status[0] if status else f"{kind}: {lines[0]}"
    said = re.sub(r"`?jit[\w.<>-]*`?: ", "", re.sub(r"0x[0-9a-f]+", "0x..", said))
    return re.sub(r"\d+", "N", said)[:160]


class Reports:
    """The plugin for `pytest` in the processes that run tests."""

    def __init__(self, path, chosen, behind, most):
        self.out = open(path, "a", buffering=1)
        self.chosen, self.behind, self.most = chosen, behind, most
        self.kinds = {}

    def write(self, **what):
        print(json.dumps(what), file=self.out)

    def pytest_collection_modifyitems(self, items):
        self.write(tests=len(items))
        name = lambda item: item.nodeid.split("::", 1)[1]
        digest = lambda item: hashlib.sha256(name(item).encode()).digest()
        if self.chosen is not None:
            kept = [item for item in items if name(item) in self.chosen]
        else:
            taken = {id(item) for item in sorted(items, key=digest)[: self.most]}
            kept = [item for item in items if id(item) in taken]
        names = [name(item) for item in kept]
        items[:] = kept[names.index(self.behind) + 1 if self.behind in names else 0 :]

    def pytest_runtest_logstart(self, nodeid):
        self.write(starts=nodeid.split("::", 1)[1])

    def pytest_runtest_makereport(self, item, call):
        if call.excinfo is not None:
            self.kinds[item.nodeid] = cause(call.excinfo.typename, str(call.excinfo.value))

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            why = self.kinds.get(report.nodeid, "") if report.failed else ""
            self.write(test=report.nodeid.split("::", 1)[1], outcome=report.outcome, why=why)


def pytest_configure(config):
    """Found by `pytest -p suite`."""
    if "SUITE" in os.environ:
        config.pluginmanager.register(Reports(**json.loads(os.environ["SUITE"])))


def started(file, environment, folder, **reports):
    suite = json.dumps({"chosen": None, "behind": None, "most": None} | reports)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "suite", "-p", "no:cacheprovider",
               "--tb=no", "-W", "ignore", str(file)]
    paths = [str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = environment | {"SUITE": suite, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    output = open(folder / "output", "w")
    return subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=output)


def run(path, environment, deadline, chosen=None, most=None):
    """The number of tests of a file, and the outcome and cause of each that was chosen."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        lines, behind, tests, results = folder / "lines", None, 0, {}
        while True:
            lines.write_text("")
            process = started(path, environment, folder, path=str(lines), chosen=chosen,
                              behind=behind, most=most)
            late = False
            while process.poll() is None:
                time.sleep(0.5)
                seen = lines.stat()
                # Loading the file is no test.
                allowed = deadline if seen.st_size else 10 * deadline
                if time.time() - seen.st_mtime > allowed:
                    process.kill()
                    late = True
            running = None
            for line in map(json.loads, lines.read_text().splitlines()):
                tests = line.get("tests", tests)
                running = line.get("starts", running)
                if "test" in line:
                    results[line["test"]] = (line["outcome"], line["why"])
            if process.returncode in (0, 1, 5):
                return tests, results
            if running is None or running == behind:
                said = (folder / "output").read_text().strip().splitlines()
                why = next((line for line in said if line.startswith("E ")), (said or [""])[-1])
                return tests, results | {"the file": ("failed", f"does not load: {why[:120]}")}
            why = f"ends the process ({process.returncode})"
            why = f"longer than {deadline} s" if late else why
            results[running] = ("failed", why)
            behind = running


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ["tests", "library", "platform", "output"]:
        parser.add_argument(name, type=pathlib.Path if name in ("tests", "output") else str)
    parser.add_argument("files", nargs="*", help="names without `_test.py`; by default all that "
                        "compute on one process")
    parser.add_argument("--most", type=int, help="tests of each file, by a digest of their names")
    parser.add_argument("--deadline", type=int, default=60, help="seconds of one test")
    parser.add_argument("--only", action="append", help="a test, `Class::name`; can be repeated")
    given = parser.parse_args()
    read_by_jax = ("JAX_", "XLA_", "PJRT_", "HALITE_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(read_by_jax)} | CASES
    table = json.loads(given.output.read_text()) if given.output.exists() else {"files": {}}
    table |= {"variables": CASES}
    for name in given.files or FILES:
        path = (given.tests / f"{name}_test.py").resolve()
        devices = 8 if "request_cpu_devices" in path.read_text() else 1
        with tempfile.TemporaryDirectory() as folder:
            plugin = pathlib.Path(folder) / "plugin.json"
            options = {"devices": devices} if devices > 1 else {}
            described = {"library_path": os.path.abspath(given.library),
                         "create_options": options}
            plugin.write_text(json.dumps(described))
            ours = clean | {"PJRT_NAMES_AND_LIBRARY_PATHS": f"{given.platform}:{plugin}",
                            "JAX_PLATFORMS": f"{given.platform},cpu"}
            begin = time.time()
            tests, results = run(path, ours, given.deadline, given.only, given.most)
        failed = {test: why for test, (outcome, why) in results.items() if outcome == "failed"}
        cpu = clean | {"JAX_PLATFORMS": "cpu"}
        on_cpu = run(path, cpu, given.deadline, list(failed))[1] if failed else {}
        passes = {test: on_cpu.get(test, ("", ""))[0] == "passed" for test in failed}
        causes = collections.Counter(why for test, why in failed.items() if passes[test])
        count = lambda wanted: sum(outcome == wanted for outcome, _ in results.values())
        row = {"tests": tests, "run": len(results), "passed": count("passed"),
               "skipped": count("skipped"), "cpu_does_not_pass": list(passes.values()).count(False),
               "failed": dict(causes.most_common())}
        print(f"{name}: {json.dumps(row)} {time.time() - begin:.0f} s", flush=True)
        with open(f"{given.output}.failed", "a") as lines:
            for test, why in failed.items():
                print(name, test, why if passes[test] else f"(not on cpu either) {why}", sep="\t",
                      file=lines)
        table["files"][name] = row
        table["files"] = dict(sorted(table["files"].items()))
        given.output.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
