"""How the time of making a session grows with a graph's nodes: chains and branched graphs of 500 to 20,000, beside onnxruntime.

    python benchmarks/graph_sizes.py [KIND...] [--nodes 500 5000 20000] [--ways tier tuned warm] [--repeat 3] [--before SRC]

Each session is made in a process of its own: with an empty cache on the first tier ("tier"), with an empty cache until all
kernels are compiled ("tuned"), and from the cache ("warm"); `--before` names the `src` folder of an earlier build, whose times
are taken in turn with this one's. What is printed are medians of seconds, without imports of the package itself, microseconds
a node, the ratio to onnxruntime, and last by how much the time of one more node differs between the halves of the sizes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

KINDS = ("chain", "mixed", "branches", "convolutions", "shapes", "equal")
WAYS = {"tier": "1", "tuned": "0", "warm": "0"}
ONE = """
import os, sys, time
import numpy as np
import {runtime} as ort
options = ort.SessionOptions()
options.intra_op_num_threads = int(sys.argv[2])
if len(sys.argv) > 3:
    options.add_session_config_entry("session.compile_in_background", sys.argv[3])
start = time.perf_counter()
ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
print(time.perf_counter() - start, flush=True)
os._exit(0)  # what is compiled in the background is not waited for
"""
node = helper.make_node


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32) * np.float32(0.1)


def chain(count: int) -> tuple[list[Any], dict[str, np.ndarray], list[Any]]:
    """Additions that become few kernels."""
    return [node("Add", [f"v{i - 1}" if i else "x", "x"], [f"v{i}"]) for i in range(count)], {}, [4, 4]


def mixed(count: int) -> tuple[list[Any], dict[str, np.ndarray], list[Any]]:
    """Products, transposes and softmax one after the other, no two of which are one kernel."""
    nodes = []
    for i in range(count):
        before = f"v{i - 1}" if i else "x"
        nodes.append((
            node("MatMul", [before, "w"], [f"v{i}"]), node("Transpose", [before], [f"v{i}"], perm=[1, 0]),
            node("Softmax", [before], [f"v{i}"], axis=0),
        )[i % 3])  # fmt: skip
    return nodes, {"w": _random(4, 4)}, [4, 4]


def branches(count: int) -> tuple[list[Any], dict[str, np.ndarray], list[Any]]:
    """Two ways from each sum to the next, one of them through a product."""
    nodes, last = [], "x"
    for i in range(count // 4):
        nodes += [
            node("MatMul", [last, "w"], [f"a{i}"]), node("Relu", [f"a{i}"], [f"b{i}"]), node("Sigmoid", [last], [f"c{i}"]),
            node("Add", [f"b{i}", f"c{i}"], [f"d{i}"]),
        ]  # fmt: skip
        last = f"d{i}"
    return nodes, {"w": _random(4, 4)}, [4, 4]


def convolutions(count: int) -> tuple[list[Any], dict[str, np.ndarray], list[Any]]:
    """Convolution, norm, activation and what came before, as in residual networks."""
    nodes, last = [], "x"
    for i in range(count // 4):
        nodes += [
            node("Conv", [last, "w"], [f"c{i}"], pads=[1, 1, 1, 1]),
            node("BatchNormalization", [f"c{i}", "one", "zero", "zero", "one"], [f"n{i}"]),
            node("Relu", [f"n{i}"], [f"r{i}"]), node("Add", [f"r{i}", last], [f"d{i}"]),
        ]  # fmt: skip
        last = f"d{i}"
    return nodes, {"w": _random(4, 4, 3, 3), "zero": np.zeros(4, np.float32), "one": np.ones(4, np.float32)}, [1, 4, 8, 8]


def shapes(count: int) -> tuple[list[Any], dict[str, np.ndarray], list[Any]]:
    """Reshapes to sizes that are computed from a dynamic one, as exporters write them."""
    nodes, last = [], "x"
    for i in range(count // 8):
        nodes += [
            node("Shape", [last], [f"s{i}"]), node("Gather", [f"s{i}", "index"], [f"g{i}"]),
            node("Unsqueeze", [f"g{i}", "axis"], [f"u{i}"]), node("Concat", [f"u{i}", "rest"], [f"c{i}"], axis=0),
            node("Reshape", [last, f"c{i}"], [f"r{i}"]), node("MatMul", [f"r{i}", "w"], [f"m{i}"]),
            node("Reshape", [f"m{i}", "flat"], [f"q{i}"]), node("Relu", [f"q{i}"], [f"d{i}"]),
        ]  # fmt: skip
        last = f"d{i}"
    integers = {"index": 0, "axis": [0], "rest": [2, 2], "flat": [0, 4]}
    return nodes, {**{n: np.array(v, np.int64) for n, v in integers.items()}, "w": _random(2, 2)}, ["n", 4]


def equal(count: int) -> tuple[list[Any], dict[str, np.ndarray], list[Any]]:
    """Nodes of which most compute the same, and one that reads them all."""
    nodes = [node("Relu" if i % 2 else "Sigmoid", ["x"], [f"a{i}"]) for i in range(count - 1)]
    return [*nodes, node("Concat", [f"a{i}" for i in range(count - 1)], ["y"], axis=0)], {}, [4, 4]


def write(kind: str, count: int, folder: Path) -> Path:
    """The file of a model."""
    make: Callable[[int], tuple[list[Any], dict[str, np.ndarray], list[Any]]] = globals()[kind]
    nodes, constants, shape = make(count)
    output = helper.make_empty_tensor_value_info(nodes[-1].output[0])
    output.type.tensor_type.elem_type = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, kind, [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)], [output],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    path = folder / f"{kind}-{count}.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    return path


def one(runtime: str, model: Path, threads: int, cache: Path, source: str, *extra: str) -> float:
    environment = {**os.environ, "INTARSIA_CACHE_DIR": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if source:
        environment["PYTHONPATH"] = source
    command = [sys.executable, "-c", ONE.format(runtime=runtime), str(model), str(threads), *extra]
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def measured(model: Path, options: argparse.Namespace, place: Path) -> dict[str, float]:
    """Medians in seconds by column."""
    builds = {"": "", **({"before ": options.before} if options.before else {})}
    found: dict[str, list[float]] = {}
    for _ in range(options.repeat):
        found.setdefault("onnxruntime", []).append(one("onnxruntime", model, options.threads, place, ""))
        for build, source in builds.items():
            for way in options.ways:
                cache = place / f"cache {build}"
                if way != "warm" or not cache.exists():
                    shutil.rmtree(cache, ignore_errors=True)
                    cache.mkdir()
                if way == "warm":
                    one("intarsia", model, options.threads, cache, source, "0")
                found.setdefault(build + way, []).append(
                    one("intarsia", model, options.threads, cache, source, WAYS[way])
                )  # fmt: skip
    return {column: statistics.median(times) for column, times in found.items()}


def table(kind: str, options: argparse.Namespace, place: Path) -> None:
    rows = {count: measured(write(kind, count, place), options, place) for count in options.nodes}
    columns = list(next(iter(rows.values())))
    print(f"\n{kind}: seconds (microseconds a node, times onnxruntime's)\n")
    print("| nodes | " + " | ".join(columns) + " |\n| ---: |" + " ---: |" * len(columns))
    for count, times in rows.items():
        cells = [f"{t:.3f} ({t / count * 1e6:.0f}, {t / times['onnxruntime']:.1f})" for t in times.values()]
        print(f"| {count} | " + " | ".join(cells) + " |", flush=True)
    if len(options.nodes) > 2:
        low, middle, high = options.nodes[0], options.nodes[len(options.nodes) // 2], options.nodes[-1]
        growth = []
        for column in columns:
            early = (rows[middle][column] - rows[low][column]) / (middle - low)
            late = (rows[high][column] - rows[middle][column]) / (high - middle)
            growth.append(f"{late / early:.2f}" if early > 0 else "-")
        print(f"| a node more, above {middle} to below | " + " | ".join(growth) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=[], metavar="KIND", help=f"of {', '.join(KINDS)}; default: all")
    parser.add_argument("--nodes", type=int, nargs="+", default=[500, 1000, 2000, 5000, 10000, 20000])
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=["tier"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--before", default="", help="the src folder of an earlier build")
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"no kind {min(unknown)!r}; expected some of {', '.join(KINDS)}")
    options.nodes.sort()
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.kinds or KINDS:
            table(kind, options, Path(folder))


if __name__ == "__main__":
    main()
