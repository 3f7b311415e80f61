"""Does TensorRT run on this machine's GPU, is it right, and how fast beside CUDA? python benchmarks/tensorrt_on_gpu.py

First a small network whose result is known: engine built, loaded, run, compared; where the library does not know the GPU, its
words, and nothing else. Then ONNX's node cases with CUDA and the CPU behind (wrong ones are listed), for half of the time;
then products, convolutions and a block of a transformer, in TensorRT and in CUDAExecutionProvider, in turn.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

NAME, CUDA, CPU = "TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"


def model(text: str, **weights: tuple[int, ...]) -> bytes:
    """A model in ONNX's text form; `weights`: shapes of constants, which are drawn."""
    import onnx.parser

    proto = onnx.parser.parse_model(text)
    draw = np.random.default_rng(0)
    for name, shape in weights.items():
        array = (draw.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return bytes(proto.SerializeToString())


HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
KNOWN = model(
    HEAD + """(float[4, 3, 16, 16] x) => (float[4, 10] y) {
        c = Conv<pads = [1, 1, 1, 1]>(x, w)  r = Relu(c)  p = GlobalAveragePool(r)  f = Flatten(p)
        m = MatMul(f, v)  y = Softmax<axis = 1>(m) }""",
    w=(8, 3, 3, 3), v=(8, 10),
)  # fmt: skip


def works() -> list[tuple[str, bytes, dict[str, np.ndarray]]]:
    """Name, model and inputs of what is timed."""
    draw = np.random.default_rng(1)

    def x(*shape: int) -> dict[str, np.ndarray]:
        return {"x": draw.standard_normal(shape).astype(np.float32)}

    square = HEAD + "(float[2048, 2048] x) => (float[2048, 2048] y) { y = MatMul(x, w) }"
    conv = HEAD + "(float[8, 64, 56, 56] x) => (float[8, 64, 56, 56] y) { c = Conv<pads = [1, 1, 1, 1]>(x, w)  y = Relu(c) }"
    block = HEAD + """(float[8, 128, 768] x) => (float[8, 128, 768] y) {
        n = LayerNormalization<axis = -1>(x, one, zero)  h = MatMul(n, up)  a = Tanh(h)  d = MatMul(a, down)  y = Add(d, x) }"""
    return [
        ("a product of 2048 x 2048 x 2048", model(square, w=(2048, 2048)), x(2048, 2048)),
        ("a convolution of 3 x 3, 64 channels, 56 x 56, batch 8", model(conv, w=(64, 64, 3, 3)), x(8, 64, 56, 56)),
        ("a block of 768, 3072, 8 x 128 rows", model(block, one=(768,), zero=(768,), up=(768, 3072), down=(3072, 768)),
         x(8, 128, 768)),
    ]  # fmt: skip


def session(source: bytes, *providers: Any) -> Any:
    import intarsia

    options = intarsia.SessionOptions()
    options.add_session_config_entry("partition.keep_islands", "1")
    return intarsia.InferenceSession(source, options, providers=list(providers))


def known_answer() -> bool:
    """Whether the small network runs and is right; prints what came of it."""
    x = np.random.default_rng(2).standard_normal((4, 3, 16, 16)).astype(np.float32)
    begin = time.perf_counter()
    try:
        made = session(KNOWN, NAME)
        found = made.run(None, {"x": x})[0]
    except Exception as error:  # noqa: BLE001 - whatever it says is what is to be known
        print(f"it does not run here: {type(error).__name__}: {error}")
        return False
    wanted = session(KNOWN, "ReferenceExecutionProvider").run(None, {"x": x})[0]
    off = float(np.abs(found - wanted).max())
    print(f"built, loaded and run in {time.perf_counter() - begin:.1f} s, off by {off:.1e}; {made.explain().nodes[0].kernel}")
    return off < 2e-3  # TF32 is its choice


def conformance(seconds: float) -> bool:
    """Node cases, in an order that mixes operators; whether none was wrong."""
    import intarsia
    from intarsia.testing.cases import run_case, suite

    options = intarsia.SessionOptions()
    options.add_session_config_entry("partition.keep_islands", "1")
    counts: Counter[str] = Counter()
    end = time.monotonic() + seconds
    for name in _mixed(sorted(suite("node"))):
        if time.monotonic() > end:
            break
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # nodes left to others are counted, and results compared
                made, wrong = run_case(suite("node")[name], [NAME, CUDA, CPU], options)
            kind = "wrong" if wrong else "right there" if NAME in made.explain().counts else "left to others"
        except intarsia.IntarsiaError as error:
            kind, wrong = ("refused" if isinstance(error, intarsia.NotImplemented) else "wrong"), str(error)
        counts[kind] += 1
        if kind == "wrong":
            print(f"{name}: {str(wrong).splitlines()[0][:200]}")
    print(f"{sum(counts.values())} node cases: {dict(counts)}")
    return not counts["wrong"]


def _mixed(names: list[str]) -> Iterator[str]:
    """Every 37th from each beginning, so that a part of them has all operators."""
    for start in range(37):
        yield from names[start::37]


def timed(seconds: float) -> None:
    """A table: milliseconds of a run with inputs and outputs on the device."""
    import intarsia

    print("| what | precision | TensorRT, ms | CUDA, ms |\n|---|---|---:|---:|")
    for what, source, feeds in works():
        for half in (False, True):
            rows: dict[str, list[float]] = {}
            calls = {}
            for name, given in (("TensorRT", (NAME, {"trt_fp16_enable": half})), ("CUDA", (CUDA, {}))):
                try:
                    made = session(source, given)
                    binding = made.io_binding()
                    binding.bind_ortvalue_input("x", intarsia.OrtValue.ortvalue_from_numpy(feeds["x"], "cuda", 0))
                    binding.bind_output("y", "cuda", 0)
                    made.run_with_iobinding(binding)
                    calls[name] = made, binding
                except intarsia.IntarsiaError as error:
                    print(f"{what}: {name}: {str(error).splitlines()[0][:160]}", file=sys.stderr)
            end = time.monotonic() + seconds / 6
            while time.monotonic() < end:
                for name, (made, binding) in calls.items():
                    begin = time.perf_counter()
                    made.run_with_iobinding(binding)
                    binding.synchronize_outputs()
                    rows.setdefault(name, []).append(1e3 * (time.perf_counter() - begin))
            cells = [f"{statistics.median(rows[name]):.3f}" if name in rows else "-" for name in ("TensorRT", "CUDA")]
            print(f"| {what} | {'float16' if half else 'float32'} | {' | '.join(cells)} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=90, help="for everything together")
    seconds = parser.parse_args().seconds
    from intarsia.device import cuda
    from intarsia.providers.tensorrt import TensorrtExecutionProvider

    warnings.simplefilter("ignore")
    print(f"{TensorrtExecutionProvider.library_version() or 'no library'}; GPUs: {cuda.missing() or cuda.devices()}")
    if TensorrtExecutionProvider.unavailable() or not known_answer():
        return 1
    right = conformance(seconds / 2)
    timed(seconds / 3)
    return int(not right)


if __name__ == "__main__":
    sys.exit(main())
