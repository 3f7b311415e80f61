"""This build beside an earlier one, in turn: runs of models, warm starts, and what a run costs beside its kernels.

    python benchmarks/in_turn.py SRC FOLDER [NAME...] [--what run,start,overhead] [--pairs 3] [--rounds 10] [--seconds 0.1]

SRC is the `src` folder of the earlier build, FOLDER holds NAME.onnx with NAME.npz (`in_*` inputs), as tests/models/export.py
writes them. Each build runs in processes of its own with a cache of its own, on one thread, and both take turns. Printed is the
least processor time of a run or a start of either: on a machine that others use, too, medians and clocks tell more of them than
of the builds. A ratio above 1: this build is slower. `--seconds` is how long a burst of runs takes.
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WHAT = ("run", "start", "overhead")

RUNS = """
import itertools, json, os, sys, time
import numpy as np
import intarsia as ort

options = ort.SessionOptions()
options.intra_op_num_threads = 1
options.add_session_config_entry("session.compile_in_background", "0")
name, seconds = sys.argv[1], float(sys.argv[2])
if os.path.exists(name):
    model = name
    with np.load(name.removesuffix(".onnx") + ".npz") as arrays:
        feeds = itertools.repeat({key[3:]: arrays[key] for key in arrays.files if key.startswith("in_")})
else:
    sys.path.insert(0, sys.argv[3])
    import overheads
    case = next(case for case in overheads.cases() if case.name == name)
    model, feeds = case.model, case.feeds()
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
session.run(None, next(feeds))
print("ready", flush=True)
for _ in sys.stdin:
    least, end = float("inf"), time.perf_counter() + seconds
    session.run(None, next(feeds))
    while True:
        feed = next(feeds)
        start = time.process_time_ns()
        session.run(None, feed)
        least = min(least, time.process_time_ns() - start)
        if time.perf_counter() > end:
            break
    print(json.dumps(least / 1e3), flush=True)
os._exit(0)
"""

START = """
import json, os, sys, time
import numpy as np
model = sys.argv[1]
with np.load(model.removesuffix(".onnx") + ".npz") as arrays:
    feeds = {key[3:]: arrays[key] for key in arrays.files if key.startswith("in_")}
begun = time.process_time_ns()
import intarsia as ort
options = ort.SessionOptions()
options.intra_op_num_threads = 1
options.add_session_config_entry("session.compile_in_background", "0")
start = time.process_time_ns()
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
made = time.process_time_ns()
session.run(None, feeds)
print(json.dumps([(b - a) / 1e3 for a, b in ((begun, start), (start, made), (made, time.process_time_ns()))]), flush=True)
if len(sys.argv) < 3:  # else what is written to the cache is waited for
    os._exit(0)
"""


class Build:
    """One build of the package: its sources, and a cache."""

    def __init__(self, source: Path, cache: Path) -> None:
        self.environment = {**os.environ, "PYTHONPATH": str(source), "INTARSIA_CACHE_DIR": str(cache), "PYTHONHASHSEED": "0"}

    def command(self, text: str, *arguments: str) -> list[str]:
        return [sys.executable, "-c", text, *arguments]

    def once(self, text: str, *arguments: str) -> Any:
        """What a process prints as JSON."""
        done = subprocess.run(
            self.command(text, *arguments), env=self.environment, check=True, stdout=subprocess.PIPE, text=True
        )
        return json.loads(done.stdout.splitlines()[-1])

    @contextlib.contextmanager
    def process(self, text: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A process that answers each line with one; it has said that it is ready."""
        pipe = subprocess.PIPE
        with subprocess.Popen(
            self.command(text, *arguments), env=self.environment, stdin=pipe, stdout=pipe, text=True
        ) as child:
            try:
                if answer(child) != "ready":
                    raise SystemExit(f"a process for {arguments[0]} ended before its first run")
                yield child
            finally:
                child.kill()


def answer(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def ask(child: subprocess.Popen[str]) -> float:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()
    return float(answer(child))


def runs(before: Build, now: Build, name: str, options: argparse.Namespace) -> tuple[float, float]:
    """The least microseconds of a run of either. Pairs of processes differ by where their pages lie, so that there are several;
    which of a pair begins alternates."""
    arguments, times = (name, str(options.seconds), str(HERE)), list[tuple[float, float]]()
    for pair in range(options.pairs):
        builds = (before, now) if pair % 2 == 0 else (now, before)
        with builds[0].process(RUNS, *arguments) as one, builds[1].process(RUNS, *arguments) as other:
            found = [(ask(one), ask(other)) for _ in range(options.rounds)]
        times += [row if pair % 2 == 0 else row[::-1] for row in found]
    return min(row[0] for row in times), min(row[1] for row in times)


def starts(before: Build, now: Build, model: str, rounds: int) -> list[tuple[float, float]]:
    """The least microseconds of an import, a session from the cache and its first run, of either."""
    builds = (before, now)
    for build in builds:  # twice: what the first leaves in the cache, the second notes
        for _ in range(2):
            build.once(START, model, "fill")
    found = [[build.once(START, model) for build in builds] for _ in range(rounds)]
    return [(min(f[0][i] for f in found), min(f[1][i] for f in found)) for i in range(3)]


def print_runs(before: Build, now: Build, names: Sequence[str], options: argparse.Namespace) -> None:
    print("\n| model | before, µs | now, µs | now / before |\n| --- | ---: | ---: | ---: |", flush=True)
    ratios = []
    for name in names:
        least, ours = runs(before, now, name, options)
        ratios.append(ours / least)
        shown = Path(name).stem if name.endswith(".onnx") else name
        print(f"| {shown} | {least:.1f} | {ours:.1f} | {ratios[-1]:.3f} |", flush=True)
    print(f"| geometric mean | | | {math.exp(statistics.fmean(map(math.log, ratios))):.3f} |", flush=True)


def print_starts(before: Build, now: Build, models: Sequence[Path], options: argparse.Namespace) -> None:
    parts = ("import", "session", "first run")
    print(f"\n| model | {' | '.join(f'{p}, before | now' for p in parts)} | now - before, ms |", flush=True)
    print(f"| --- |{' ---: |' * 7}", flush=True)
    for model in models:
        found = starts(before, now, str(model), options.rounds)
        more = sum(ours - least for least, ours in found) / 1e3
        cells = " | ".join(f"{least / 1e3:.2f} | {ours / 1e3:.2f}" for least, ours in found)
        print(f"| {model.stem} | {cells} | {more:+.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="models, or parts of the names of overheads.py's cases; all by default")
    parser.add_argument("--what", default="run", help=f"by commas: {', '.join(WHAT)}")
    parser.add_argument("--now", type=Path, default=HERE.parent / "src", help="the src folder of this build")
    parser.add_argument("--caches", type=Path, help="a folder for the caches of both, for a later call (default: none)")
    parser.add_argument("--pairs", type=int, default=3, help="of processes, for runs")
    parser.add_argument("--rounds", type=int, default=10, help="of bursts of each pair; starts of each model")
    parser.add_argument("--seconds", type=float, default=0.1)
    options = parser.parse_args()
    what = options.what.split(",")
    if unknown := set(what) - set(WHAT):
        parser.error(f"--what: unknown {', '.join(sorted(unknown))}; there are {', '.join(WHAT)}")
    for source in (options.source, options.now):
        if not (source / "intarsia" / "__init__.py").is_file():
            parser.error(f"{source} has no intarsia: expected the src folder of a checkout, or a folder of packages")
    models = [m for m in sorted(options.folder.glob("*.onnx")) if not options.names or m.stem in options.names]
    if not models and what != ["overhead"]:
        parser.error(f"no such models in {options.folder}")
    with tempfile.TemporaryDirectory() as folder:
        caches = (options.caches or Path(folder)).resolve()
        builds = Build(options.source.resolve(), caches / "before"), Build(options.now.resolve(), caches / "now")
        if "run" in what:
            print_runs(*builds, [str(m) for m in models], options)
        if "start" in what:
            print_starts(*builds, models, options)
        if "overhead" in what:
            print_runs(*builds, cases(options.names), options)


def cases(names: Sequence[str]) -> list[str]:
    import overheads

    return [c.name for c in overheads.cases() if not names or any(n in c.name for n in names)]


if __name__ == "__main__":
    main()
