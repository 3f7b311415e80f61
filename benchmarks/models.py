"""Models in Intarsia beside its peers: python benchmarks/models.py FOLDER [--what WHAT] [--compare PEERS]

WHAT is some of run,create,first,import,memory.

FOLDER holds NAME.onnx with NAME.npz (`in_*` inputs), as tests/models/export.py writes them.
benchmarks/README.md says how it measures.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch_peer

from intarsia.cli.peers import Runner, peer_runner
from intarsia.cli.timing import intarsia_runner, interleave, largest_difference

os.environ.setdefault("INTARSIA_COMPILE_IN_BACKGROUND", "0")  # what is timed are kernels compiled for the model

ENTRANCE = {
    "intarsia": "from intarsia import InferenceSession",
    "onnxruntime": "from onnxruntime import InferenceSession",
    "openvino": "from openvino import Core",
    "opencv": "import cv2",
    "emx-onnx-cgen": "from emx_onnx_cgen import Compiler",
    "torch": "import torch",
    "torch.compile": "import torch",
}


def feeds_of(model: Path) -> dict[str, np.ndarray]:
    with np.load(model.with_suffix(".npz")) as arrays:
        return {key.removeprefix("in_"): arrays[key] for key in arrays if key.startswith("in_")}


def create(runtime: str, model: Path, threads: int, config: Sequence[str] = ()) -> Runner:
    feeds = feeds_of(model)
    if runtime == "intarsia":
        return intarsia_runner(model, feeds, threads, config=config)
    if runtime in ("torch", "torch.compile"):
        return torch_peer.runner(model.stem, feeds, threads, compiled=runtime == "torch.compile")
    return peer_runner(runtime, model, feeds, threads)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A Markdown table that is also readable in a terminal."""
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    print(f"\n### {title}\n")
    for row in [columns, ["-" * w for w in widths], *rows]:
        print("| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |", flush=True)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def with_ratios(title: str, unit: str, values: dict[str, dict[str, float]], runtimes: Sequence[str]) -> None:
    """A row per model: each runtime's value, and each peer's relative to Intarsia's (above 1: Intarsia is ahead)."""
    first, *peers = runtimes
    rows = []
    for name, row in values.items():
        rows.append([name, *(f"{row[r]:.3f}" for r in runtimes), *(f"{row[p] / row[first]:.2f}" for p in peers)])
    means = [geometric_mean([row[p] / row[first] for row in values.values()]) for p in peers]
    rows.append(["geometric mean", *("" for _ in runtimes), *(f"{m:.2f}" for m in means)])
    print_table(title, ["model", *(f"{r} {unit}" for r in runtimes), *(f"{p} / {first}" for p in peers)], rows)


def measure_run(models: Sequence[Path], runtimes: Sequence[str], options: argparse.Namespace) -> None:
    medians: dict[str, dict[str, float]] = {}
    for model in models:
        runners = [create(runtime, model, options.threads, options.config) for runtime in runtimes]
        timings = interleave(runners, options.runs, options.seconds)
        medians[model.stem] = {r.name: t.median for r, t in zip(runners, timings, strict=True)}
        reference = runners[-1].run()
        differences = [f"{r.name} {largest_difference(r.run(), reference):.0e}" for r in runners[:-1]]
        times = " ".join(f"{r}={ms:.3f}" for r, ms in medians[model.stem].items())
        note = f"# {model.stem}: {times} ms; differs from {runners[-1].name}: {', '.join(differences)}"
        print(note, file=sys.stderr, flush=True)
        del runners
    with_ratios(f"One run, median, {options.threads} threads", "ms", medians, runtimes)


def child(arguments: Sequence[str], environment: dict[str, str] | None = None) -> dict[str, float]:
    """Run this file in a process of its own and return what it reports."""
    call = [sys.executable, __file__, "--child", *arguments]
    done = subprocess.run(call, env=os.environ | (environment or {}), check=True, stdout=subprocess.PIPE, text=True)
    report: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return report


def children(arguments: Sequence[str], options: argparse.Namespace, count: int) -> list[dict[str, float]]:
    """What `count` processes report, one after the other; the first one's cache is empty, but for one that is given."""
    with tempfile.TemporaryDirectory() as folder:
        return [child(arguments, {"INTARSIA_CACHE_DIR": options.cache or folder}) for _ in range(count)]


def measure_create(models: Sequence[Path], runtimes: Sequence[str], options: argparse.Namespace) -> None:
    threads, times = str(options.threads), {}
    for model in models:
        row: dict[str, float] = {}
        for runtime in runtimes:
            samples = [x["seconds"] for x in children(["create", runtime, str(model), threads], options, 4)]
            row[runtime] = statistics.median(samples[1:])
            if runtime == "intarsia":
                row["cold"] = samples[0]
        times[model.stem] = row
    with_ratios("Session creation in a new process (Intarsia: kernels in the disk cache)", "s", times, runtimes)
    if "intarsia" in runtimes and not options.cache:
        rows = [[name, f"{row['cold']:.2f}", f"{row['intarsia']:.3f}"] for name, row in times.items()]
        print_table("Intarsia's session creation", ["model", "cold cache s", "warm cache s"], rows)


def measure_first(models: Sequence[Path], runtimes: Sequence[str], options: argparse.Namespace) -> None:
    """The first run of a session in a new process, after one that filled Intarsia's cache; and all of a start without that."""
    first: dict[str, dict[str, float]] = {}
    start: dict[str, dict[str, float]] = {}
    for model in models:
        first[model.stem], start[model.stem] = {}, {}
        for runtime in runtimes:
            samples = children(["first", runtime, str(model), str(options.threads)], options, 4)
            whole = [sample["seconds"] + sample["first"] for sample in samples]
            first[model.stem][runtime] = 1e3 * statistics.median(sample["first"] for sample in samples[1:])
            start[model.stem][runtime] = whole[0] if runtime == "intarsia" else statistics.median(whole[1:])
    with_ratios("First run of a session in a new process (Intarsia: a warm start)", "ms", first, runtimes)
    if not options.cache:
        with_ratios("Session creation and first run (Intarsia: with an empty cache)", "s", start, runtimes)


def measure_import(_: Sequence[Path], runtimes: Sequence[str], __: argparse.Namespace) -> None:
    rows = []
    for runtime in runtimes:
        code = f"import time; start = time.perf_counter(); {ENTRANCE[runtime]}; print(time.perf_counter() - start)"
        call = [sys.executable, "-c", code]
        samples = [float(subprocess.run(call, check=True, capture_output=True, text=True).stdout) for _ in range(5)]
        rows.append([runtime, f"{statistics.median(samples) * 1e3:.0f}"])
    print_table("Import of the session class, NumPy included", ["runtime", "ms"], rows)


def measure_memory(models: Sequence[Path], runtimes: Sequence[str], options: argparse.Namespace) -> None:
    """Each process a second time, after one that filled Intarsia's cache; the first one's peak apart."""
    peaks: dict[str, dict[str, float]] = {}
    cold: dict[str, float] = {}
    for model in models:
        row: dict[str, float] = {}
        for runtime in runtimes:
            samples = [x["peak_mb"] for x in children(["memory", runtime, str(model), str(options.threads)], options, 2)]
            row[runtime] = samples[1]
            if runtime == "intarsia":
                cold[model.stem] = samples[0]
        peaks[model.stem] = row
    with_ratios(
        "Peak memory of a process that loads the model and runs it three times (Intarsia: a warm start)", "MB", peaks, runtimes
    )
    if cold and not options.cache:
        print_table("Intarsia's first start", ["model", "empty cache MB"], [[name, f"{mb:.0f}"] for name, mb in cold.items()])


MEASURES: dict[str, Callable[[Sequence[Path], Sequence[str], argparse.Namespace], None]] = {
    "run": measure_run,
    "create": measure_create,
    "import": measure_import,
    "memory": measure_memory,
    "first": measure_first,
}


def report_child(what: str, runtime: str, model: str, threads: str) -> None:
    """The measured process: prints one line of JSON."""
    with contextlib.redirect_stdout(sys.stderr):
        exec(ENTRANCE[runtime])
        runner = create(runtime, Path(model), int(threads))
        begun = time.perf_counter()
        if what != "create":
            runner.run()
        first = time.perf_counter() - begun
        if what == "memory":
            for _ in range(2):
                runner.run()
    print(json.dumps({"seconds": runner.created_s, "first": first, "peak_mb": peak_mb()}))


def peak_mb() -> float:
    """The most memory that this process had in use since it was started, in MB of 10^6 bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage counts what the parent had when it forked, too
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) * 1024 / 1e6
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        report_child(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description="Measure models in several runtimes.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="models to measure (default: all in the folder)")
    parser.add_argument("--what", default="run", help=f"separated by commas: {', '.join(MEASURES)}")
    peers = ", ".join(name for name in ENTRANCE if name != "intarsia")
    parser.add_argument("--compare", default="onnxruntime,openvino", help=f"separated by commas: {peers}; '' for none")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache", default="", help="a cache that was filled before; nothing is measured with an empty one")
    parser.add_argument("--runs", type=int, default=100, help="timed runs of each")
    parser.add_argument("--seconds", type=float, default=30.0, help="per model, about")
    parser.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="Intarsia's session configuration (run)"
    )
    options = parser.parse_args()
    models = [m for m in sorted(options.folder.glob("*.onnx")) if not options.names or m.stem in options.names]
    if not models:
        parser.error(f"no such models in {options.folder}")
    what = options.what.split(",")
    if unknown := set(what) - set(MEASURES):
        parser.error(f"--what: unknown {', '.join(sorted(unknown))}; there are {', '.join(MEASURES)}")
    runtimes = ["intarsia", *filter(None, options.compare.split(","))]
    if unknown := set(runtimes) - set(ENTRANCE):
        parser.error(f"--compare: unknown {', '.join(sorted(unknown))}; there are {peers}")
    for name in what:
        MEASURES[name](models, runtimes, options)


if __name__ == "__main__":
    main()
