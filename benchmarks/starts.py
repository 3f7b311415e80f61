"""First starts of models: with nothing in the cache, on the first tier, after `intarsia cache warm`, and from the cache, beside
onnxruntime's.

    python benchmarks/starts.py FOLDER [NAME...] [--threads 2] [--repeat 3]

FOLDER holds NAME.onnx with NAME.npz (`in_*` inputs), as tests/models/export.py writes them. Each start is a process of its own
with a cache of its own; what is printed is the median of the seconds of a session and its first run, without imports.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ONE_START = """
import os, sys, time
import numpy as np
import {runtime} as ort
model, threads = sys.argv[1], int(sys.argv[2])
with np.load(model.removesuffix(".onnx") + ".npz") as arrays:
    feeds = {{name[3:]: arrays[name] for name in arrays.files if name.startswith("in_")}}
options = ort.SessionOptions()
options.intra_op_num_threads = threads
if len(sys.argv) > 3:
    options.add_session_config_entry("session.compile_in_background", sys.argv[3])
start = time.perf_counter()
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
session.run(None, feeds)
print(time.perf_counter() - start, flush=True)
os._exit(0)  # what is still compiled in the background is not waited for
"""


def one_start(runtime: str, model: Path, threads: int, cache: Path, *extra: str) -> float:
    command = [sys.executable, "-c", ONE_START.format(runtime=runtime), str(model), str(threads), *extra]
    done = subprocess.run(
        command, env={**os.environ, "INTARSIA_CACHE_DIR": str(cache)}, check=True, capture_output=True, text=True
    )  # fmt: skip
    return float(done.stdout)


def filled_cache(cache: Path) -> Path:
    """A cache with the kernels that many models have in common."""
    fill = "from intarsia.cli.precompile import compile_common; compile_common()"
    subprocess.run([sys.executable, "-c", fill], env={**os.environ, "INTARSIA_CACHE_DIR": str(cache)}, check=True)
    return cache


def starts(model: Path, threads: int, repeat: int, common: Path, place: Path) -> list[float]:
    """Medians in seconds: cold, cold with common kernels, warm, onnxruntime, cold on the first tier."""
    found: list[list[float]] = [[], [], [], [], []]
    for _ in range(repeat):
        cache = place / "cache"
        found[4].append(one_start("intarsia", model, threads, cache))
        shutil.rmtree(cache, ignore_errors=True)
        found[0].append(one_start("intarsia", model, threads, cache, "0"))
        found[2].append(one_start("intarsia", model, threads, cache))
        shutil.rmtree(cache)
        shutil.copytree(common, cache, copy_function=os.link)
        found[1].append(one_start("intarsia", model, threads, cache, "0"))
        shutil.rmtree(cache)
        found[3].append(one_start("onnxruntime", model, threads, cache))
    return [statistics.median(times) for times in found]


def tier_alone(models: list[Path], threads: int, repeat: int, cache: Path) -> None:
    """First results on the first tier beside onnxruntime's, in turn."""
    print("| model | first tier s | onnxruntime s | ratio |\n| --- | ---: | ---: | ---: |")
    ratios = []
    for model in models:
        pairs = []
        for _ in range(repeat):
            shutil.rmtree(cache, ignore_errors=True)
            tier = one_start("intarsia", model, threads, cache)
            pairs.append((tier, one_start("onnxruntime", model, threads, cache)))
        ours, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
        ratios.append(ours / theirs)
        print(f"| {model.stem} | {ours:.3f} | {theirs:.3f} | {ours / theirs:.2f} |", flush=True)
    print(f"| geometric mean | | | {statistics.geometric_mean(ratios):.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--tier", action="store_true", help="the first tier and onnxruntime alone")
    options = parser.parse_args()
    models = [options.folder / f"{name}.onnx" for name in options.names] or sorted(options.folder.glob("*.onnx"))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        if options.tier:
            tier_alone(models, options.threads, options.repeat, place / "cache")
            return
        print("| model | cold s | after `cache warm` s | warm s | onnxruntime s | first tier s |")
        print("| --- | ---: | ---: | ---: | ---: | ---: |")
        common = filled_cache(place / "common")
        for model in models:
            times = " | ".join(f"{t:.3f}" for t in starts(model, options.threads, options.repeat, common, place))
            print(f"| {model.stem} | {times} |", flush=True)


if __name__ == "__main__":
    main()
