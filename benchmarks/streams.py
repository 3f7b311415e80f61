"""Blocks of a stream through models with states: one call of `run_many`, a run for each, and onnxruntime's loop, in turn.

    pip install onnxruntime && pip install --no-deps silero-vad
    python benchmarks/streams.py                         # the voice detectors of the package silero-vad, 30 s of sound
    python benchmarks/streams.py --seconds 5 half        # a part of the files' names

Prints milliseconds of processor time (the least of `--rounds`) for all blocks, with one thread each, onnxruntime's over ours,
and the largest difference of results.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("INTARSIA_COMPILE_IN_BACKGROUND", "0")  # what is timed are kernels compiled for the model
COLUMNS = ("run_many", "run", "onnxrt", "many x", "run x", "differs")
RATE, BLOCK, CONTEXT = 16_000, 512, 64  # samples a second, in a block, and before it, as the package feeds them


def sound(seconds: float) -> np.ndarray:
    """[blocks, 1, CONTEXT + BLOCK]: noise that swells, each block with the end of the one before."""
    samples = np.random.default_rng(0).standard_normal(int(seconds * RATE)).astype(np.float32) * 0.1
    samples *= np.sin(np.linspace(0, 40, samples.size, dtype=np.float32)) ** 2
    padded = np.concatenate([np.zeros(CONTEXT, np.float32), samples])
    return np.stack([padded[i : i + CONTEXT + BLOCK] for i in range(0, samples.size - BLOCK + 1, BLOCK)])[:, None]


def ways(path: Path, blocks: np.ndarray) -> dict[str, Callable[[], np.ndarray]]:
    """By name what gives the results of all blocks."""
    import onnxruntime

    import intarsia

    options, theirs = intarsia.SessionOptions(), onnxruntime.SessionOptions()
    options.intra_op_num_threads = theirs.intra_op_num_threads = 1
    session = intarsia.InferenceSession(path, options)
    theirs.log_severity_level = 3
    peer = onnxruntime.InferenceSession(str(path), theirs, providers=["CPUExecutionProvider"])
    stream, more = session.stateful(), {"sr": np.array(RATE)} if any(a.name == "sr" for a in session.get_inputs()) else {}

    def many() -> np.ndarray:
        stream.reset()
        found: np.ndarray = stream.run_many({"input": blocks, **more})[0]
        return found

    def one_by_one() -> np.ndarray:
        stream.reset()
        return np.stack([stream.run(None, {"input": block, **more})[0] for block in blocks])

    def loop() -> np.ndarray:
        state, found = np.zeros((2, 1, 128), np.float32), []
        for block in blocks:
            result, state = peer.run(None, {"input": block, "state": state, **more})
            found.append(result)
        return np.stack(found)

    return {"run_many": many, "run": one_by_one, "onnxruntime": loop}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of file names")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=7)
    options: Any = parser.parse_args()
    spec = importlib.util.find_spec("silero_vad")
    if spec is None or spec.origin is None:
        sys.exit("silero-vad is not installed: pip install --no-deps silero-vad")
    blocks = sound(options.seconds)
    columns = (f"{name:>{width}}" for name, width in zip(COLUMNS, (9, 9, 9, 7, 7, 9), strict=True))
    print(f"{len(blocks)} blocks\n{'model':28}", *columns)
    for path in sorted((Path(spec.origin).parent / "data").glob("*.onnx")):
        if "sequence" in path.name or (options.names and not any(name in path.name for name in options.names)):
            continue  # the one that takes all blocks at once has no loop
        made = ways(path, blocks)
        results = {name: run() for name, run in made.items()}
        best = dict.fromkeys(made, float("inf"))
        for _ in range(options.rounds):
            for name, run in made.items():
                start = time.process_time()
                run()
                best[name] = min(best[name], 1e3 * (time.process_time() - start))
        differs = max(float(np.abs(results[name] - results["onnxruntime"]).max()) for name in ("run_many", "run"))
        times = " ".join(f"{best[name]:9.1f}" for name in made)
        ratios = " ".join(f"{best['onnxruntime'] / best[name]:7.2f}" for name in ("run_many", "run"))
        print(f"{path.stem:28} {times} {ratios} {differs:9.1e}", flush=True)


if __name__ == "__main__":
    main()
