"""Models of 16 bits beside their float32 form, in turn: python benchmarks/half_models.py FOLDER [MODEL ...]

FOLDER holds float32 models NAME.onnx with NAME.npz, as tests/models/export.py writes them. Their copies in float16 and
bfloat16 have weights, constants, casts, inputs and outputs of that type. A ratio above 1: faster than in float32.
benchmarks/README.md says how it measures.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from intarsia.cli.peers import Runner, peer_runner
from intarsia.cli.timing import intarsia_runner, interleave
from models import feeds_of, geometric_mean, print_table

TYPES: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def write_half(model: Path, target: Path, kind: str = "float16") -> Path:
    """Write `model` in a type of 16 bits to `target`."""
    proto = onnx.load(model)
    _Narrowed(kind).graph(proto.graph)
    onnx.save(proto, target)
    return target


def in_type(feeds: dict[str, np.ndarray], kind: str) -> dict[str, np.ndarray]:
    """Inputs for the model in that type."""
    return {name: array.astype(TYPES[kind]) if array.dtype == np.float32 else array for name, array in feeds.items()}


class _Narrowed:
    """What a float32 graph becomes in a type of 16 bits."""

    def __init__(self, kind: str) -> None:
        self.dtype = TYPES[kind]
        self.elem_type = onnx.TensorProto.DataType.Value(kind.upper())

    def graph(self, graph: onnx.GraphProto) -> None:
        scales = {n.input[2] for n in graph.node if n.op_type == "Resize" and len(n.input) > 2}  # float32 in every model
        for tensor in graph.initializer:
            if tensor.name not in scales:
                self.tensor(tensor)
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
                value.type.tensor_type.elem_type = self.elem_type
        for node in graph.node:
            if node.op_type == "Constant" and any(a.name in ("value_float", "value_floats") for a in node.attribute):
                array = np.array(onnx.helper.get_attribute_value(node.attribute[0]), np.float32)
                del node.attribute[:]
                node.attribute.append(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(array)))
            for attribute in node.attribute:
                if attribute.name in ("to", "dtype") and attribute.i == onnx.TensorProto.FLOAT:
                    attribute.i = self.elem_type
                if attribute.HasField("t") and not scales.intersection(node.output):
                    self.tensor(attribute.t)
                if attribute.HasField("g"):
                    self.graph(attribute.g)

    def tensor(self, tensor: onnx.TensorProto) -> None:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            narrow = onnx.numpy_helper.to_array(tensor).astype(self.dtype)
            tensor.CopyFrom(onnx.numpy_helper.from_array(narrow, tensor.name))


def _runners(model: Path, options: argparse.Namespace, folder: Path) -> list[Runner]:
    feeds = feeds_of(model)
    found = [replace(intarsia_runner(model, feeds, options.threads), name="float32")]
    for kind in TYPES:
        narrow, given = write_half(model, folder / f"{model.stem}_{kind}.onnx", kind), in_type(feeds, kind)
        found.append(replace(intarsia_runner(narrow, given, options.threads), name=kind))
        if options.peer and kind == "float16":  # bfloat16 is no type of onnxruntime's CPU provider
            found.append(replace(peer_runner("onnxruntime", narrow, given, options.threads), name="onnxruntime, float16"))
    return found


def _error(run: Runner, wanted: Runner) -> float:
    """Root mean square of what outputs are off, relative to that of float32's, at most."""
    pairs = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(run.run(), wanted.run(), strict=True)]
    return max(float(np.sqrt(np.mean((a - b) ** 2) / max(np.mean(b**2), 1e-30))) for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure models of 16 bits beside their float32 form.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="models to measure (default: all in the folder)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=100, help="timed runs of each")
    parser.add_argument("--seconds", type=float, default=30.0, help="per model, about")
    parser.add_argument("--peer", action="store_true", help="onnxruntime on the float16 model, too")
    options = parser.parse_args()
    rows, ratios = [], {}
    for model in sorted(m for m in options.folder.glob("*.onnx") if not options.names or m.stem in options.names):
        with tempfile.TemporaryDirectory() as folder:
            runners = _runners(model, options, Path(folder))
            medians = [t.median for t in interleave(runners, options.runs, options.seconds)]
            for runner, median in zip(runners, medians, strict=True):
                ratios.setdefault(runner.name, []).append(medians[0] / median)
            rows.append([
                model.stem, *(f"{m:.3f}" for m in medians), *(f"{medians[0] / m:.2f}" for m in medians[1:]),
                *(f"{_error(r, runners[0]):.0e}" for r in runners[1:]),
            ])  # fmt: skip
            del runners
    first, *others = ratios
    means = (f"{geometric_mean(ratios[name]):.2f}" for name in others)
    rows.append(["geometric mean", *("" for _ in ratios), *means, *("" for _ in others)])
    columns = ["model", *(f"{n} ms" for n in ratios), *(f"{first} / {n}" for n in others), *(f"error of {n}" for n in others)]
    print_table(f"Models of 16 bits, median, {options.threads} threads", columns, rows)


if __name__ == "__main__":
    main()
