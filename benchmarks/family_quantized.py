"""Families of models as onnxruntime's quantiser leaves them: python benchmarks/family_quantized.py FOLDER [NAME ...]

FOLDER holds NAME.onnx with NAME.npz, as `families.py` and tests/models/export.py write them. Each is written in the formats of
`quantized.py` (or as "half", float16 inside) to FOLDER/quantized, where it is kept; what the quantiser cannot make is said.

`--what check` compares with onnxruntime without optimisations on the same file, which is the definition in float32, and says
how far onnxruntime with them is from that; then how far both are from the float32 model, and which nodes are not compiled.
`--what time` prints milliseconds: the float32 model in Intarsia, then the form in Intarsia and the peers, all in one process
in turn (least, one thread by processor time), then the float32 model's and the better peer's time in Intarsia's.
`intarsia profile FILE` says what it goes into.
"""

from __future__ import annotations

import argparse
import fnmatch
import gc
import logging
import math
import os
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from family_variants import half
from n_bits import timed as in_turn
from quantized import FORMATS, quantise

from intarsia.cli.peers import peer_runner
from intarsia.cli.timing import intarsia_runner, largest_difference
from models import feeds_of, geometric_mean

os.environ.setdefault("INTARSIA_COMPILE_IN_BACKGROUND", "0")  # what is timed are kernels compiled for the model


def written(source: Path, form: str) -> Path:
    """The model in that form, with its inputs; made where it is not there yet."""
    folder = source.parent / "quantized"
    folder.mkdir(exist_ok=True)
    target = folder / f"{source.stem}_{form}.onnx"
    if not target.with_suffix(".npz").exists():
        half(source, target) if form == "half" else quantise(source, target, form)
        shutil.copy(source.with_suffix(".npz"), target.with_suffix(".npz"))
    return target


def definition(path: Path, feeds: dict[str, np.ndarray], optimised: bool) -> list[Any]:
    """onnxruntime's outputs, node by node or with its optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return list(onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feeds))


def apart(outputs: Sequence[Any], wanted: Sequence[Any]) -> float:
    """Root mean square of what floating-point outputs are off, relative to that of `wanted`; the worst output's."""
    worst = 0.0
    for found, expected in zip(outputs, wanted, strict=True):
        if isinstance(expected, np.ndarray) and expected.dtype.kind == "f" and expected.size:
            x, y = np.asarray(found, np.float64), expected.astype(np.float64)
            worst = max(worst, math.sqrt(np.mean((x - y) ** 2) / max(np.mean(y**2), 1e-30)))
    return worst


def check(source: Path, path: Path, threads: int) -> str:
    import intarsia

    feeds = feeds_of(path)
    options = intarsia.SessionOptions()
    options.intra_op_num_threads = threads
    session = intarsia.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found = session.run(None, feeds)
    notes = []
    try:
        wanted, peer = (definition(path, feeds, optimised) for optimised in (False, True))
    except Exception as error:  # noqa: BLE001 - whatever it raises, it does not run the model
        notes.append(f"onnxruntime: {str(error).splitlines()[0][:80]}")
    else:
        ours, others = apart(found, wanted), apart(peer, wanted)
        notes.append(f"off by {ours:.1e} (onnxruntime {others:.1e}), at most {largest_difference(found, wanted):.1e}")
        floats = definition(source, feeds, True)
        notes.append(f"off the float32 model by {apart(found, floats):.1e} ({apart(wanted, floats):.1e})")
    others = sorted(
        {(n.op, n.provider or n.kind) for n in session.explain().nodes if n.kind == "host" or n.provider == "reference"}
    )
    if others:
        notes.append("not compiled: " + ", ".join(f"{op} ({where})" for op, where in others))
    return "; ".join(notes)


def timed(source: Path, path: Path, options: argparse.Namespace) -> tuple[str, dict[str, float]]:
    """A line of times, and the ratios: of the float32 model's, and of the better peer's."""
    feeds, threads = feeds_of(path), options.threads
    found = {
        "float32": intarsia_runner(source, feeds, threads).run,
        "intarsia": intarsia_runner(path, feeds, threads, config=options.config).run,
    }
    notes = []
    for peer in filter(None, options.compare.split(",")):
        try:
            run = peer_runner(peer, path, feeds, threads).run
            run()
            found[peer] = run
        except Exception as error:  # noqa: BLE001 - what a peer cannot load or run has no time
            notes.append(f"{peer}: {str(error).strip().splitlines()[0][:60]}")
    samples = in_turn(found, options.seconds * len(found), threads)
    least = {name: min(us) / 1e3 for name, us in samples.items()}
    own = least["intarsia"]
    ratios = {"float32": least["float32"] / own}
    if peers := [ms for name, ms in least.items() if name not in ("float32", "intarsia")]:
        ratios["peer"] = min(peers) / own
    times = ", ".join(f"{name} {ms:.4g}" for name, ms in least.items())
    return "; ".join([times, *(f"{n} / intarsia {r:.2f}" for n, r in ratios.items()), *notes]), ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=["*"], help="patterns of names")
    parser.add_argument("--formats", default="qdq,u8,qoperator,dynamic", help=f"of {', '.join((*FORMATS, 'half'))}")
    parser.add_argument("--what", default="check,time", help="of write, check, time")
    parser.add_argument("--compare", default="onnxruntime,openvino", help="peers, separated by commas; '' for none")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each runtime")
    parser.add_argument("--config", action="append", default=[], help="a configuration entry of intarsia's session, KEY=VALUE")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    ratios: dict[str, list[float]] = {}
    sources = [p for p in sorted(options.folder.glob("*.onnx")) if any(fnmatch.fnmatch(p.stem, n) for n in options.names)]
    for source in sources:
        for form in options.formats.split(","):
            try:
                path = written(source, form)
                if "check" in options.what:
                    print(f"{path.stem}: {check(source, path, options.threads)}", flush=True)
                if "time" in options.what:
                    text, found = timed(source, path, options)
                    print(f"{path.stem}, ms: {text}", flush=True)
                    for name, ratio in found.items():
                        ratios.setdefault(f"{form}, {name}", []).append(ratio)
            except Exception as error:  # noqa: BLE001 - one form that fails says so; the others go on
                print(f"{source.stem}_{form}: FAILED {type(error).__name__}: {str(error)[:200]}", flush=True)
            gc.collect()
    for name, values in ratios.items():
        print(f"{name} / intarsia: {len(values)} models, geometric mean {geometric_mean(values):.2f}, least {min(values):.2f}")


if __name__ == "__main__":
    main()
