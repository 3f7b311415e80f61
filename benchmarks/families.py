"""Models as users bring them: python benchmarks/families.py FOLDER [NAME ...] [--what WHAT] [--form script|dynamo] [--opset N]

WHAT is some of export,check,accuracy,time.

`export` writes FOLDER/NAME.onnx with the inputs and torch's outputs of each run (NAME.npz); `check` runs them all in one
session, in turn, and prints differences and what is not compiled; `accuracy` compares the first run's errors against float64
with onnxruntime's (`accuracy.py`); `time` compares the first run's speed with the peers, with `--batch` repeated that often.
Needs the extra `train`; some families need torchvision, timm or diffusers (what is missing is said).
"""

from __future__ import annotations

import argparse
import fnmatch
import gc
import importlib
import math
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import errors, exact

from intarsia.cli.peers import peer_runner
from intarsia.cli.timing import intarsia_runner, interleave, largest_difference

os.environ.setdefault("INTARSIA_COMPILE_IN_BACKGROUND", "0")  # what is timed are kernels compiled for the model

MODULES = (
    "family_text", "family_boxes", "family_vision", "family_sound", "family_other", "family_tensorflow", "family_habits",
    "family_drawn", "family_recent", "family_backbones", "family_decoders", "family_encoders", "family_signals",
    "family_scenes", "family_keras", "family_types", "family_pictures", "family_places", "family_widths",
    "family_deployed", "family_sequences", "family_science", "family_zoo",
)  # fmt: skip
MOST_ERROR = 4.0  # times onnxruntime's own error against float64
TOLERANCE = 2e-5  # of the largest element; torch's own kernels differ by a tenth of it


def registry() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every family by name; those of a module whose packages are not there are left out, aloud."""
    for module in MODULES:
        try:
            yield from ((f.__name__, f) for f in importlib.import_module(f"cases.{module}").FAMILIES)
        except ModuleNotFoundError as error:
            print(f"# {module}: {error}", flush=True)


def export(path: Path, make: Callable[[], Any], dynamo: bool, opset: int) -> None:
    import onnx
    import torch
    from cases.family import exported, results

    torch.manual_seed(0)
    family = make()
    if family.module:
        family.module.eval()
    model = exported(family, dynamo, opset)
    if family.module:
        family.module.eval()  # an exporter may leave a part of it as it found it
    present = {value.name for value in model.graph.input}
    arrays: dict[str, np.ndarray] = {}
    for i, run in enumerate(family.runs):
        arrays |= {f"run{i}_{name}": x.numpy() for name, x in run.items() if name in present}
        if family.module:
            arrays |= {f"out{i}_{k:03}": x.numpy() for k, x in enumerate(results(family.module, run))}
    arrays |= {key.replace("run0_", "in_", 1): x for key, x in arrays.items() if key.startswith("run0_")}
    onnx.save_model(model, path)
    np.savez(path.with_suffix(".npz"), **arrays)
    print(f"{path.stem}: {len(model.graph.node)} nodes, {path.stat().st_size >> 20} MB", flush=True)


def runs_of(path: Path) -> list[tuple[dict[str, np.ndarray], list[np.ndarray]]]:
    with np.load(path.with_suffix(".npz")) as kept:
        arrays = dict(kept)
    count = 1 + max(int(key[3 : key.index("_")]) for key in arrays if key.startswith("run"))
    return [
        ({key.removeprefix(f"run{i}_"): x for key, x in arrays.items() if key.startswith(f"run{i}_")},
         [arrays[key] for key in sorted(arrays) if key.startswith(f"out{i}_")])
        for i in range(count)
    ]  # fmt: skip


def expected_by_onnxruntime(path: Path, feeds: dict[str, np.ndarray]) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return list(onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feeds))


def peer_failure(path: Path) -> str:
    """Whether onnxruntime fails as well: an exporter may write what holds for the traced sizes only."""
    if not path.with_suffix(".npz").exists():
        return ""
    try:
        for feeds, _ in runs_of(path):
            expected_by_onnxruntime(path, feeds)
    except Exception as error:  # noqa: BLE001 - whatever it raises, it does not run the model
        return f" (onnxruntime: {str(error)[:120]})"
    return " (onnxruntime runs it)"


def check(path: Path, threads: int) -> None:
    """All runs in one session, forwards and then backwards: sizes change between them."""
    import intarsia

    options = intarsia.SessionOptions()
    options.intra_op_num_threads = threads
    start = time.perf_counter()
    session = intarsia.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    runs, notes, worst = runs_of(path), [], 0.0
    expected: dict[int, list[Any]] = {}
    told: set[int] = set()
    for i in (*range(len(runs)), *reversed(range(len(runs)))):
        feeds, outputs = runs[i]
        if i not in expected:
            expected[i] = outputs or expected_by_onnxruntime(path, feeds)
        found = session.run(None, feeds)
        shapes = [(np.shape(y), np.shape(t)) for y, t in zip(found, expected[i], strict=True) if np.shape(y) != np.shape(t)]
        if shapes:
            notes.append(f"run {i}: shapes {shapes[:2]}")
            continue
        difference = largest_difference(found, expected[i])
        if difference > TOLERANCE and i not in told:
            peer = largest_difference(expected_by_onnxruntime(path, feeds), expected[i]) if outputs else 0.0
            told.add(i)
            notes.append(f"run {i}: {difference:.0e} (onnxruntime {peer:.0e})")
        worst = max(worst, difference)
    taken = time.perf_counter() - start
    others = [(n.op, n.provider or n.kind) for n in session.explain().nodes if n.kind == "host" or n.provider == "reference"]
    if others:
        notes.append("not compiled: " + ", ".join(f"{op} ({where})" for op, where in sorted(set(others))))
    mark = "" if worst <= TOLERANCE and not notes else "  <<<"
    print(f"{path.stem}: differs by {worst:.0e}, {taken:.1f} s; {'; '.join(notes)}{mark}", flush=True)


def accuracy(path: Path, threads: int) -> None:
    """Errors of the first run against float64, largest and root mean square, and how many times onnxruntime's they are."""
    feeds = runs_of(path)[0][0]
    wanted = exact(path, feeds)
    ours = errors(intarsia_runner(path, feeds, threads).run(), wanted)
    peer = errors(expected_by_onnxruntime(path, feeds), wanted)
    ratios = [mine / other if other else float(mine > 0) for mine, other in zip(ours, peer, strict=True)]
    mark = "  <<<" if max(ratios) > MOST_ERROR or not all(map(math.isfinite, ours)) else ""
    texts = [f"{mine:.1e} (onnxruntime {other:.1e}, {r:.2f})" for mine, other, r in zip(ours, peer, ratios, strict=True)]
    print(f"{path.stem}: largest error {texts[0]}, root mean square {texts[1]}{mark}", flush=True)


def repeated(path: Path, feeds: dict[str, np.ndarray], times: int) -> dict[str, np.ndarray]:
    """The feeds with the axis repeated that the model names like the first axis of its first input."""
    import onnx

    inputs = {value.name: value.type.tensor_type.shape.dim for value in onnx.load(path, load_external_data=False).graph.input}
    batch = next((dims[0].dim_param for name, dims in inputs.items() if name in feeds and dims), "")
    if times == 1 or not batch:
        return feeds
    axes = {name: [i for i, d in enumerate(dims) if d.dim_param == batch] for name, dims in inputs.items()}
    return {name: np.repeat(x, times, axes[name][0]) if axes.get(name) else x for name, x in feeds.items()}


def timed(path: Path, threads: int, seconds: float, batch: int = 1, peers: Sequence[str] = ("onnxruntime", "openvino")) -> None:
    feeds = repeated(path, runs_of(path)[0][0], batch)
    runners = [intarsia_runner(path, feeds, threads)]
    for peer in peers:
        try:
            runners.append(peer_runner(peer, path, feeds, threads))
            runners[-1].run()
        except Exception as error:  # noqa: BLE001 - what a peer cannot load or run has no time
            runners = [r for r in runners if r.name != peer]
            print(f"# {path.stem}: {peer}: {str(error).splitlines()[0][:120]}", flush=True)
    mine, *others = interleave(runners, 10**6, seconds * len(runners))
    texts = [f"{r.name} {min(t.samples):.4g}, {t.median:.4g}" for r, t in zip(runners, (mine, *others), strict=True)]
    if others:
        texts.append(f"best peer / intarsia {min(map(min, (t.samples for t in others))) / min(mine.samples):.2f}")
        texts.append(f"medians {min(t.median for t in others) / mine.median:.2f}")
    what = f"{path.stem}{f' by {batch}' if batch > 1 else ''}"
    print(f"{what}, {threads} threads, ms: {'; '.join(texts)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=["*"], help="patterns of names")
    parser.add_argument("--what", default="export,check,time")
    parser.add_argument(
        "--form", choices=("script", "dynamo"), default="script", help="which exporter of torch writes the model"
    )
    parser.add_argument("--opset", type=int, default=17)
    parser.add_argument("--threads", default="2,1")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each runtime")
    parser.add_argument("--batch", type=int, default=1, help="times: how often the first run's batch is repeated")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    dynamo = options.form == "dynamo"
    for name, make in registry():
        if not any(fnmatch.fnmatch(name, pattern) for pattern in options.names):
            continue
        if options.list:
            print(name, (make.__doc__ or "").strip())
            continue
        path = options.folder / f"{name}{'_dynamo' if dynamo else ''}{'' if options.opset == 17 else f'_{options.opset}'}.onnx"
        try:
            if "export" in options.what and not path.with_suffix(".npz").exists():
                export(path, make, dynamo, options.opset)
            if "check" in options.what:
                check(path, int(options.threads.split(",")[0]))
            if "accuracy" in options.what:
                accuracy(path, int(options.threads.split(",")[0]))
            if "time" in options.what:
                for threads in map(int, options.threads.split(",")):
                    timed(path, threads, options.seconds, options.batch)
        except Exception as error:  # noqa: BLE001 - one family that fails says so; the others go on
            print(f"{path.stem}: FAILED {type(error).__name__}: {str(error)[:400]}{peer_failure(path)}", flush=True)
            traceback.print_exc(limit=-2, chain=False)
        gc.collect()


if __name__ == "__main__":
    main()
