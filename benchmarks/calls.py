"""What a call costs in each way to run a model, in Intarsia and onnxruntime: python benchmarks/calls.py [--seconds 1]

`run` with NumPy arrays and with OrtValues, `run_with_ort_values`, and IO binding: to arrays that are bound once, with the input
bound anew before each run, and with results that the runtime allocates and that are copied out. One small model, one thread,
both runtimes in one process and in turn; the table has microseconds of one call, at best and in the median.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from types import ModuleType

import numpy as np

BURST_SECONDS = 0.02
PAUSE_SECONDS = 0.004
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


def calls_of(runtime: ModuleType, model: bytes) -> dict[str, Call]:
    """The ways to run the model, by name."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    x, y = np.ones((4, 16), np.float32), np.zeros((4, 8), np.float32)
    value, result = (runtime.OrtValue.ortvalue_from_numpy(array) for array in (x, y))
    feed, values, names = {"x": x}, {"x": value}, ["y"]

    def bound() -> object:
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", value)
        binding.bind_ortvalue_output("y", result)
        return binding

    fixed, rebound, free = bound(), bound(), session.io_binding()
    free.bind_cpu_input("x", x)
    free.bind_output("y")

    def run_rebound() -> None:
        rebound.bind_cpu_input("x", x)
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
            time.sleep(PAUSE_SECONDS)
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

    model = small_model()
    ours, theirs = calls_of(intarsia, model), calls_of(onnxruntime, model)
    print(
        f"{'microseconds of one call':42} {'intarsia':>17} {'onnxruntime':>17} {'ratio':>6}   (best, median; ratio of medians)"
    )
    for name, call in ours.items():
        times = timed([call, theirs[name]], seconds)
        best = [min(t) * 1e6 for t in times]
        median = [statistics.median(t) * 1e6 for t in times]
        cells = " ".join(f"{b:8.2f} {m:8.2f}" for b, m in zip(best, median, strict=True))
        print(f"{name:42} {cells} {median[1] / median[0]:6.2f}", flush=True)


if __name__ == "__main__":
    main()
