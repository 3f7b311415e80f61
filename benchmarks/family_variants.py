"""What tools make of a model before it is run: python benchmarks/family_variants.py FOLDER NAME ... [--kinds KIND,...]

Writes NAME_KIND.onnx beside FOLDER/NAME.onnx, with its inputs; `families.py FOLDER NAME_KIND --what check,time` then has no
family of that name, so each is checked here, against onnxruntime on the same file (float16 and bytes against the model they
were made from as well). Kinds: half (float16 inside), int8 (dynamic quantisation), simplified, slimmed, optimised
(onnxruntime's own graph with its fused operators), layout (the same with its blocked convolutions, com.microsoft.nchwc, which
Intarsia refuses by name).
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from families import expected_by_onnxruntime, runs_of

from intarsia.cli.timing import largest_difference

os.environ.setdefault("INTARSIA_COMPILE_IN_BACKGROUND", "0")  # what is timed are kernels compiled for the model


def half(source: Path, target: Path) -> None:
    from onnxconverter_common import float16

    model = float16.convert_float_to_float16(onnx.load(source), keep_io_types=True)
    onnx.save(model, target)


def int8(source: Path, target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(str(source), str(target), weight_type=QuantType.QUInt8)


def simplified(source: Path, target: Path) -> None:
    import onnxsim

    onnx.save(onnxsim.simplify(onnx.load(source))[0], target)


def slimmed(source: Path, target: Path) -> None:
    import onnxslim

    onnx.save(onnxslim.slim(onnx.load(source)), target)


def _saved(source: Path, target: Path, level: str) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(target)
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def optimised(source: Path, target: Path) -> None:
    _saved(source, target, "ORT_ENABLE_EXTENDED")


def layout(source: Path, target: Path) -> None:
    _saved(source, target, "ORT_ENABLE_ALL")


KINDS: dict[str, Callable[[Path, Path], None]] = {f.__name__: f for f in (half, int8, simplified, slimmed, optimised, layout)}


def written(folder: Path, name: str, kind: str) -> Path:
    source, target = folder / f"{name}.onnx", folder / f"{name}_{kind}.onnx"
    if not target.exists():
        with tempfile.TemporaryDirectory() as place:
            made = Path(place) / target.name
            KINDS[kind](source, made)
            shutil.move(made, target)
        shutil.copy(source.with_suffix(".npz"), target.with_suffix(".npz"))
    return target


def check(path: Path, threads: int) -> None:
    import intarsia

    options = intarsia.SessionOptions()
    options.intra_op_num_threads = threads
    session = intarsia.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    worst: list[str] = []
    for i, (feeds, outputs) in enumerate(runs_of(path)):
        found = session.run(None, feeds)
        try:
            expected = expected_by_onnxruntime(path, feeds)
        except Exception as error:  # noqa: BLE001 - what onnxruntime refuses has only its source to compare with
            worst.append(f"run {i}: onnxruntime {str(error).splitlines()[0][:80]}")
            expected = None
        text = "" if expected is None else f"{largest_difference(found, expected):.0e}"
        if outputs:
            peer = "" if expected is None else f", onnxruntime {largest_difference(expected, outputs):.0e}"
            text += f" (torch {largest_difference(found, outputs):.0e}{peer})"
        finite = all(np.isfinite(y).all() for y in found if isinstance(y, np.ndarray) and y.dtype.kind == "f")
        worst.append(text + ("" if finite else " not finite"))
    others = sorted(
        {(n.op, n.provider or n.kind) for n in session.explain().nodes if n.kind == "host" or n.provider == "reference"}
    )
    print(f"{path.stem}: {'; '.join(worst)}{f'; not compiled: {others}' if others else ''}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    for name in options.names:
        for kind in options.kinds.split(","):
            try:
                check(written(options.folder, name, kind), options.threads)
            except Exception as error:  # noqa: BLE001 - one that fails says so; the others go on
                print(f"{name}_{kind}: FAILED {type(error).__name__}: {str(error)[:300]}", flush=True)


if __name__ == "__main__":
    main()
