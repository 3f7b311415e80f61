"""The first steps of a decoder whose cache grows, in processes that begin from the cache, beside onnxruntime's.

    python benchmarks/first_steps.py [--threads 2] [--repeat 5] [--steps 64] [--heads 8] [--size 64]

Each start is a process of its own. Two processes fill the cache before; feeds are made before the clock starts. The table has
milliseconds: a session, the first step, the second, the third and fourth, and all steps, at best and in the median, and the
processor time of all steps at best.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from cases.growing_cases import FIRST, Decoder

os.environ.setdefault("INTARSIA_COMPILE_IN_BACKGROUND", "0")  # what is timed are kernels compiled for the model

STEPS = """
import sys, time
import numpy as np
import {runtime} as ort
model, threads, steps, first = sys.argv[1], *map(int, sys.argv[2:])
options = ort.SessionOptions()
options.intra_op_num_threads = threads
start = time.perf_counter()
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
print((time.perf_counter() - start) * 1e3)
inputs = [(x.name, x.shape) for x in session.get_inputs()]
room = np.random.default_rng(0).standard_normal(1 << 22).astype(np.float32)
def feed(length):
    sizes, found = dict(b=1, p=length, t=length + 1, s=100), dict()
    for name, shape in inputs:
        shape = [sizes.get(n, n) for n in shape]
        found[name] = room[: np.prod(shape)].reshape(shape) if name != "mask" else np.ones(shape, np.float32)
    return found
feeds = [feed(first + i) for i in range(steps)]
begun = time.process_time()
for feed in feeds:
    start = time.perf_counter()
    result = session.run(None, feed)
    del result
    print((time.perf_counter() - start) * 1e3)
print((time.process_time() - begun) * 1e3)
"""


def steps_of(runtime: str, model: Path, threads: int, steps: int, cache: Path) -> list[float]:
    """Milliseconds of the session, each step, and the processor time of all."""
    command = [sys.executable, "-c", STEPS.format(runtime=runtime), *map(str, (model, threads, steps, FIRST))]
    environment = {**os.environ, "INTARSIA_CACHE_DIR": str(cache)}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return [float(line) for line in done.stdout.split()]


def row(name: str, runs: list[list[float]]) -> str:
    parts = {
        "session": [r[0] for r in runs], "first": [r[1] for r in runs], "second": [r[2] for r in runs],
        "third, fourth": [sum(r[3:5]) for r in runs], "all": [sum(r[1:-1]) for r in runs],
    }  # fmt: skip
    cells = [f"{min(times):.1f} | {statistics.median(times):.1f}" for times in parts.values()]
    return f"| {name} | {' | '.join(cells)} | {min(r[-1] for r in runs):.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--size", type=int, default=64)
    options = parser.parse_args()
    columns = "session first second third,fourth all".split()
    print(f"| runtime | {' | '.join(f'{c} | median' for c in columns)} | processor |")
    print(f"| --- |{' ---: |' * 11}")
    with tempfile.TemporaryDirectory() as folder:
        model, cache = Path(folder) / "model.onnx", Path(folder) / "cache"
        model.write_bytes(Decoder(heads=options.heads, size=options.size).model())
        os.utime(model, (1e9, 1e9))
        for _ in range(2):
            steps_of("intarsia", model, options.threads, options.steps, cache)
        runs: dict[str, list[list[float]]] = {"intarsia": [], "onnxruntime": []}
        for _ in range(options.repeat):
            for runtime, found in runs.items():
                found.append(steps_of(runtime, model, options.threads, options.steps, cache))
    for runtime, found in runs.items():
        print(row(runtime, found))


if __name__ == "__main__":
    main()
