"""How far float32 results are from float64 ones: python benchmarks/accuracy.py FOLDER [MODEL ...] [--config KEY=VALUE ...]

FOLDER holds NAME.onnx with NAME.npz (`in_*` inputs), as tests/models/export.py writes them. The exact result is that of the
same model with all float32 tensors as float64, by Intarsia's CPU provider without Winograd. An error is the largest
difference of an output from it, and the root of the mean square, relative to the exact output's largest magnitude.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from intarsia import InferenceSession, SessionOptions
from intarsia.cli.peers import peer_runner
from intarsia.cli.timing import intarsia_runner
from models import feeds_of, geometric_mean, print_table

os.environ.setdefault("INTARSIA_COMPILE_IN_BACKGROUND", "0")  # what is timed are kernels compiled for the model

FLOAT, DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE
STAYS_FLOAT = {"Resize": (2,), "Upsample": (1,)}  # operands whose type is float32 whatever the others' is


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and those inside its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                yield from graphs(inner)


def widened(path: Path) -> onnx.ModelProto:
    """The model with every float32 tensor as float64."""
    model = onnx.load(path)
    for graph in graphs(model.graph):
        kept = {n.input[i] for n in graph.node for i in STAYS_FLOAT.get(n.op_type, ()) if i < len(n.input)}
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type == FLOAT:
                value.type.tensor_type.elem_type = DOUBLE
        for tensor in graph.initializer:
            if tensor.data_type == FLOAT and tensor.name not in kept:
                tensor.CopyFrom(_double(tensor))
        for node in graph.node:
            if not kept.intersection(node.output):
                _widen(node)
        del graph.value_info[:]
    return model


def _widen(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.HasField("t") and attribute.t.data_type == FLOAT:
            attribute.t.CopyFrom(_double(attribute.t))
        elif attribute.name in ("to", "dtype") and attribute.i == FLOAT:
            attribute.i = DOUBLE
        elif attribute.name in ("value_float", "value_floats") and node.op_type == "Constant":
            values = np.array(attribute.f if attribute.name == "value_float" else attribute.floats, np.float64)
            attribute.CopyFrom(onnx.helper.make_attribute("value", numpy_helper.from_array(values)))
    if node.op_type in ("LayerNormalization", "RMSNormalization", "GroupNormalization"):
        others = [a for a in node.attribute if a.name != "stash_type"]
        del node.attribute[:]
        node.attribute.extend([*others, onnx.helper.make_attribute("stash_type", DOUBLE)])


def _double(tensor: onnx.TensorProto) -> onnx.TensorProto:
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)


def exact(path: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The model's outputs in float64."""
    options = SessionOptions()
    options.add_session_config_entry("session.disable_winograd", "1")
    options.add_session_config_entry("session.cache_weights_mib", "0")
    wide = {n: x.astype(np.float64) if x.dtype == np.float32 else x for n, x in feeds.items()}
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "wide.onnx"
        onnx.save(widened(path), target, save_as_external_data=True, location="weights")
        with InferenceSession(target, options, providers=["CPUExecutionProvider"]) as session:
            outputs: list[np.ndarray] = session.run(None, wide)
    wrong = [x.dtype for x in outputs if x.dtype == np.float32]
    if wrong:
        raise SystemExit(f"{path.name}: an output of the widened model is still float32")
    return outputs


def errors(outputs: list[np.ndarray], expected: list[np.ndarray]) -> tuple[float, float]:
    """The largest and the root mean square error of all floating-point outputs, relative to their largest magnitudes."""
    largest, squares = 0.0, 0.0
    for found, wanted in zip(outputs, expected, strict=True):
        if wanted.dtype != np.float64 or not wanted.size:
            continue
        scale = float(np.abs(wanted).max()) or 1.0
        difference = (found.astype(np.float64) - wanted) / scale
        largest = max(largest, float(np.abs(difference).max()))
        squares = max(squares, float(np.mean(difference**2)))
    return largest, math.sqrt(squares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", help="names; all by default")
    parser.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="session configuration entry")
    options = parser.parse_args()
    rows, ratios = [], []
    for path in sorted(options.folder.glob("*.onnx")):
        if options.models and path.stem not in options.models:
            continue
        feeds = feeds_of(path)
        wanted = exact(path, feeds)
        ours = errors(intarsia_runner(path, feeds, 2, config=options.config).run(), wanted)
        peer = errors(peer_runner("onnxruntime", path, feeds, 2).run(), wanted)
        ratios.append(ours[1] / peer[1])
        rows.append([path.stem, *(f"{x:.1e}" for x in (*ours, *peer)), f"{ours[0] / peer[0]:.2f}", f"{ratios[-1]:.2f}"])
        print(*rows[-1], flush=True)
    columns = ["model", "largest", "rms", "onnxruntime: largest", "rms", "largest, ratio", "rms, ratio"]
    print_table("Errors against float64 (a ratio below 1: Intarsia is nearer)", columns, rows)
    print(f"\ngeometric mean of the ratios of rms: {geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
