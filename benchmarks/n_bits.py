"""MatMulNBits beside onnxruntime and OpenVINO: python benchmarks/n_bits.py [--bits 4,8] [--blocks 32,128] [--levels 0,4]

A product [rows, K] by [K, N] of random weights of 4 or 8 bits, without and with zero points, by accuracy level; all runtimes
in one process in turn, in bursts. OpenVINO reads no accuracy level: beside level 4 it rounds rows to bytes in groups of a
block, as it does by default, beside the others it is told not to. One thread is timed by the processor time of the process,
several by the clock.

Prints Intarsia's time, the peers' times, and the better peer's / Intarsia's: above 1 means that Intarsia is ahead. Last: how
far the result is from float64's, relative to its largest element.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Callable, Iterator

import numpy as np
from onnx import TensorProto, helper, numpy_helper

os.environ.setdefault("INTARSIA_COMPILE_IN_BACKGROUND", "0")  # what is timed are kernels compiled for the model

Run = Callable[[], np.ndarray]
_BURST_SECONDS = 0.01


def weights_of(bits: int, block: int, zeros: bool, k: int, n: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The operator's constants, and what they stand for as float64 [K, N]."""
    rng = np.random.default_rng(0)
    blocks = -(-k // block)
    numbers = rng.integers(0, 1 << bits, (n, blocks, block), dtype=np.uint8)
    scales = (rng.random((n, blocks)) * 0.01 + 0.005).astype(np.float32)
    middle = np.full((n, blocks), 1 << bits - 1, np.uint8)
    if zeros:
        middle = rng.integers(0, 1 << bits, (n, blocks), dtype=np.uint8)
    constants = {"b": _packed(numbers, bits), "s": scales}
    if zeros:
        constants["z"] = _packed(middle, bits)
    exact = (numbers - middle[..., None].astype(np.float64)) * scales[..., None]
    return constants, exact.reshape(n, -1)[:, :k].T


def _packed(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Two numbers of 4 bits in a byte, the first in the lower half."""
    if bits == 8:
        return numbers
    if numbers.shape[-1] % 2:
        numbers = np.concatenate([numbers, np.zeros((*numbers.shape[:-1], 1), np.uint8)], -1)
    return numbers[..., ::2] | numbers[..., 1::2] << 4


def model_of(constants: dict[str, np.ndarray], bits: int, block: int, level: int, k: int, n: int) -> bytes:
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": level}
    node = helper.make_node("MatMulNBits", ["x", *constants], ["y"], domain="com.microsoft", **attributes)
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size])] for name, size in (("x", k), ("y", n))
    )
    graph = helper.make_graph(
        [node], "product", inputs, outputs, [numpy_helper.from_array(array, name) for name, array in constants.items()]
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def runners(model: bytes, x: np.ndarray, level: int, block: int, threads: int) -> Iterator[tuple[str, Run]]:
    """Intarsia, and the peers that are installed and take the model."""
    import intarsia

    feeds = {"x": x}
    options = intarsia.SessionOptions()
    options.intra_op_num_threads = threads
    own = intarsia.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    yield "intarsia", lambda: own.run(None, feeds)[0]
    try:
        import onnxruntime
    except ImportError:
        print("onnxruntime is not installed")
    else:
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        peer = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
        yield "onnxruntime", lambda: peer.run(None, feeds)[0]
    try:
        import openvino
    except ImportError:
        print("openvino is not installed")
        return
    config = {
        "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": block if level == 4 else 0,
    }  # fmt: skip
    core = openvino.Core()
    try:
        request = core.compile_model(core.read_model(model), "CPU", config).create_infer_request()
    except RuntimeError as refusal:
        print(f"openvino: {str(refusal).splitlines()[0]}")
        return
    yield "openvino", lambda: np.array(request.infer(feeds, share_inputs=True, share_outputs=True)[0])


def timed(found: dict[str, Run], seconds: float, threads: int) -> dict[str, list[float]]:
    """Microseconds of each runtime's runs, means of bursts in turn."""
    clock = time.process_time if threads == 1 else time.perf_counter
    runs = {}
    for name, run in found.items():
        run()
        start = clock()
        run()
        runs[name] = max(1, int(_BURST_SECONDS / max(1e-6, clock() - start)))
    times: dict[str, list[float]] = {name: [] for name in found}
    end = time.monotonic() + seconds
    while time.monotonic() < end or not all(times.values()):
        for name, run in found.items():
            run()
            start = clock()
            for _ in range(runs[name]):
                run()
            times[name].append((clock() - start) / runs[name] * 1e6)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", default="4,8")
    parser.add_argument("--blocks", default="32,128")
    parser.add_argument("--levels", default="0,4")
    parser.add_argument("--rows", default="1,8,64,128")
    parser.add_argument("--zeros", default="0,1", help="without, and with zero points")
    parser.add_argument("--size", default="2048,2048", help="K and N")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.4, help="for each case, all runtimes together")
    given = parser.parse_args()
    lists = [[int(v) for v in getattr(given, name).split(",")] for name in ("bits", "blocks", "zeros", "levels", "rows")]
    k, n = (int(v) for v in given.size.split(","))
    print("| bits | block | zero points | level | rows | intarsia us | onnxruntime us | openvino us | best peer's | error |")
    print("| --- | --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for bits, block, zeros in itertools.product(*lists[:3]):
        constants, exact = weights_of(bits, block, bool(zeros), k, n)
        for level, rows in itertools.product(*lists[3:]):
            x = np.random.default_rng(1).standard_normal((rows, k)).astype(np.float32)
            found = dict(runners(model_of(constants, bits, block, level, k, n), x, level, block, given.threads))
            least = {name: min(samples) for name, samples in timed(found, given.seconds, given.threads).items()}
            wanted = x.astype(np.float64) @ exact
            error = np.abs(found["intarsia"]() - wanted).max() / np.abs(wanted).max()
            own, peers = least["intarsia"], [least.get(name) for name in ("onnxruntime", "openvino")]
            ratio = min((p for p in peers if p is not None), default=float("nan")) / own
            shown = " | ".join("" if p is None else f"{p:.0f}" for p in (own, *peers))
            with_zeros = "yes" if zeros else "no"
            print(f"| {bits} | {block} | {with_zeros} | {level} | {rows} | {shown} | {ratio:.2f} | {error:.1e} |", flush=True)


if __name__ == "__main__":
    main()
