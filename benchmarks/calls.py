"""What a call costs in each way to run a model, in Intarsia and onnxruntime: python benchmarks/calls.py [--seconds 1]

`run` with NumPy arrays and with OrtValues, `run_with_ort_values`, and IO binding: to arrays that are bound once, with the input
bound anew before each run, and with results that the runtime allocates and that are copied out. A small model of one input, and
one of 20 inputs and outputs; one thread, both runtimes in one process and in turn. The tables have microseconds of one call, at
best and in the median.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from intarsia.cli.timing import settle

os.environ.setdefault("INTARSIA_COMPILE_IN_BACKGROUND", "0")  # what is timed are kernels compiled for the model

BURST_SECONDS = 0.02
CALLS = 20  # timed together: the clock costs as much as some calls
Call = Callable[[], object]


def small_model() -> bytes:
    """Two layers on 4 rows: enough to be a model, little enough that the call is what one sees."""
    import onnx
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    arrays = {"w1": (16, 16), "b1": (16,), "w2": (16, 8)}
    weights = [numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name) for name, shape in arrays.items()]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Add", ["h", "b1"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 16])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 8])
    graph = helper.make_graph(nodes, "small", [x], [y], weights)
    data: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return data


def wide_model(count: int = 20) -> bytes:
    """As many additions as inputs, one for each."""
    import onnx.parser

    inputs = ", ".join(f"float[n, 16] x{i}" for i in range(count))
    outputs = ", ".join(f"float[n, 16] y{i}" for i in range(count))
    nodes = " ".join(f"y{i} = Add(x{i}, x{(i + 1) % count})" for i in range(count))
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({outputs}) {{ {nodes} }}'
    data: bytes = onnx.parser.parse_model(text).SerializeToString()
    return data


def calls_of(runtime: ModuleType, model: bytes) -> dict[str, Call]:
    """The ways to run the model, by name."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feed = {a.name: np.ones((4, 16), np.float32) for a in session.get_inputs()}
    names = [a.name for a in session.get_outputs()]
    values = {name: runtime.OrtValue.ortvalue_from_numpy(array) for name, array in feed.items()}
    results = [runtime.OrtValue.ortvalue_from_numpy(np.zeros_like(array)) for array in session.run(None, feed)]

    def bound() -> Any:
        binding = session.io_binding()
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name, result in zip(names, results, strict=True):
            binding.bind_ortvalue_output(name, result)
        return binding

    fixed, rebound, free = bound(), bound(), session.io_binding()
    for name, array in feed.items():
        free.bind_cpu_input(name, array)
    for name in names:
        free.bind_output(name)

    def run_rebound() -> None:
        for name, array in feed.items():
            rebound.bind_cpu_input(name, array)
        session.run_with_iobinding(rebound)

    def run_free() -> list[np.ndarray]:
        session.run_with_iobinding(free)
        found: list[np.ndarray] = free.copy_outputs_to_cpu()
        return found

    return {
        "run": lambda: session.run(None, feed),
        "run, outputs named": lambda: session.run(names, feed),
        "run on an OrtValue": lambda: session.run(names, values),
        "run_with_ort_values": lambda: session.run_with_ort_values(names, values),
        "run_with_iobinding": lambda: session.run_with_iobinding(fixed),
        "bind_cpu_input, run_with_iobinding": run_rebound,
        "run_with_iobinding, copy_outputs_to_cpu": run_free,
    }


def timed(calls: list[Call], seconds: float) -> list[list[float]]:
    """Seconds of calls, by bursts in turn until `seconds` have passed for each."""
    found: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end:
        for call, times in zip(calls, found, strict=True):
            settle()
            call()
            stop = time.perf_counter() + BURST_SECONDS
            while (start := time.perf_counter()) < stop:
                for _ in range(CALLS):
                    call()
                times.append((time.perf_counter() - start) / CALLS)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each way and runtime")
    seconds = parser.parse_args().seconds
    import onnxruntime

    import intarsia

    for title, model in (("two layers on 4 rows", small_model()), ("20 inputs, 20 outputs", wide_model())):
        ours, theirs = calls_of(intarsia, model), calls_of(onnxruntime, model)
        head = f"{title + ': microseconds of a call':50} {'intarsia':>17} {'onnxruntime':>17} {'ratio':>6}"
        print(f"{head}   (best, median; ratio of medians)")
        for name, call in ours.items():
            times = timed([call, theirs[name]], seconds)
            best = [min(t) * 1e6 for t in times]
            median = [statistics.median(t) * 1e6 for t in times]
            cells = " ".join(f"{b:8.2f} {m:8.2f}" for b, m in zip(best, median, strict=True))
            print(f"{name:50} {cells} {median[1] / median[0]:6.2f}", flush=True)


if __name__ == "__main__":
    main()
