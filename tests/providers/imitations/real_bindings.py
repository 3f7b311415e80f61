"""The provider over cuda-bindings itself, whose libcuda.so.1 is native_cuda.c: python real_bindings.py LIBRARY, prints JSON.

Arguments go through the package's own conversions to functions with the driver's signatures; kernels are run by cuda_emulation.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from dataclasses import replace
from typing import Any

import cuda_emulation
import numpy as np
from onnx import helper, numpy_helper

import intarsia
from intarsia.codegen.clike import Cut
from intarsia.device import cuda, nvrtc
from intarsia.device.gpu import Launch
from intarsia.device.graphs import Recording
from intarsia.device.libraries import LibraryProgram
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.testing.cases import cases, run_case

LOADED, RUN, RECORDED, REPLAYED = range(4)
CASES = ("test_softmax_axis_1", "test_matmul_2d", "test_gather_0", "test_maxpool_2d_pads", "test_reduce_sum_keepdims_random",
         "test_conv_with_strides_padding", "test_nonzero_example", "test_cumsum_1d")  # fmt: skip
Hook = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_void_p)
)


class Kernels:
    """What the stand-in asks: texts by number, and launches that wait in graphs."""

    def __init__(self) -> None:
        self.texts: list[str] = [""]
        self.recorded: list[Any] = [None]
        self.counts = [0, 0, 0, 0]
        self.errors: list[str] = []

    def __call__(self, what: int, thing: int | None, grid: Any, arguments: Any) -> int:
        try:
            self.counts[what] += 1
            if what == LOADED:
                self.texts.append(ctypes.string_at(thing).decode()[4:])
                return len(self.texts) - 1
            if what == REPLAYED:
                cuda_emulation.run(*self.recorded[thing or 0])
                return 0
            text = self.texts[thing or 0]
            signature = re.search(r"main_kernel\((.*?)\) \{", text)
            assert signature is not None
            given = [self._argument(arguments[i], "*" in a) for i, a in enumerate(signature[1].split(", "))]
            launch = (text, given, tuple(grid[:3]), grid[3])
            if what == RECORDED:
                self.recorded.append(launch)
                return len(self.recorded) - 1
            cuda_emulation.run(*launch)
        except Exception as error:  # noqa: BLE001 - nothing may leave a callback
            self.errors.append(f"{type(error).__name__}: {error}")
        return 0

    @staticmethod
    def _argument(place: int, address: bool) -> Any:
        if address:
            return ctypes.c_uint64.from_address(place).value
        return ctypes.c_int32(ctypes.c_int32.from_address(place).value)


def session(**given: object) -> intarsia.InferenceSession:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["y"])]
    inputs, outputs = [helper.make_tensor_value_info("x", 1, ["n", 8])], [helper.make_empty_tensor_value_info("y")]
    weights = np.arange(40, dtype=np.float32).reshape(8, 5) / 40
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return intarsia.InferenceSession(model.SerializeToString(), providers=[("CUDAExecutionProvider", dict(given))])


def error_of(made: intarsia.InferenceSession, x: np.ndarray) -> float:
    weights = np.arange(40).reshape(8, 5) / 40
    powers = np.exp(x.astype(np.float64) @ weights)
    (found,) = made.run(None, {"x": x})
    return float(np.abs(found - powers / powers.sum(1, keepdims=True)).max())


class Started(LibraryProgram):
    """Launches, as a library would start them."""

    title = "a library's kernels"

    def __init__(self, device: Any, calls: list[Any]) -> None:
        self.device, self.calls = device, calls

    def start(self, stream: Any, addresses: np.ndarray) -> str:
        for call in self.calls:
            (error,) = self.device._driver.launch(call.function, call.groups, call.threads, stream, call.address)
            if int(error):
                return str(error)
        return ""


def inner_graph(x: np.ndarray) -> float:
    """A sum by a graph inside a graph, which is captured, then captured anew for other memory."""
    device = cuda.open_device()
    cut = Cut(device.dialect)
    cut.store(cut.settle(k.input("x", DType.FLOAT, x.shape) + 1.0), "y")
    (job,) = cut.jobs
    wrong = 0.0
    recording: Any = None
    for i in range(3):
        given, made = device.write(x + i), device.write(np.zeros_like(x))
        call = device.bind(Launch(job.kernel, device.program(job.kernel), (given, made)))
        library = Started(device, [call, call])
        outer = [call, replace(call, function=library, key=(id(library), call.key[1], call.groups))]
        with device.lock, device._current():
            if recording is None:
                recording = Recording(device, outer, [0, 1])
            recording.start(outer)
        found = np.frombuffer(device.read(made, x.nbytes), np.float32).reshape(x.shape)
        wrong = max(wrong, float(np.abs(found - (x + i + 1)).max()))
    recording.drop()
    return wrong


def main() -> None:
    library, kernels = ctypes.CDLL(sys.argv[1]), Kernels()
    hook = Hook(kernels)
    library.native_hook(hook)
    library.native_wrong.restype = ctypes.c_char_p
    nvrtc.compiled = lambda source, architecture: b"\x7fELF" + source.encode() + b"\0"
    nvrtc.missing = lambda: ""  # type: ignore[assignment]
    nvrtc.architectures = lambda: (80, 90)  # type: ignore[assignment]
    nvrtc.version = lambda: "13.0"  # type: ignore[assignment]
    answers: dict[str, Any] = {}
    found = {name: run_case(cases()[name], ["CUDAExecutionProvider"])[1] for name in CASES}
    answers["cases"] = [f"{name}: {wrong}" for name, wrong in found.items() if wrong]
    x = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    ways: dict[str, dict[str, object]] = {
        "plain": {"enable_cuda_graph": False},
        "copies apart": {"do_copy_in_default_stream": False}, "graph": {"enable_cuda_graph": True},
        "default stream": {"user_compute_stream": "0"}, "limit": {"gpu_mem_limit": 1 << 22},
    }  # fmt: skip
    for name, given in ways.items():
        made = session(**given)
        answers[name] = max(error_of(made, x + i) for i in range(3))
    answers["counts"] = kernels.counts
    value = intarsia.OrtValue.ortvalue_from_numpy(x, "cuda", 0)
    made = session(enable_cuda_graph=True)
    binding = made.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y", "cuda", 0)
    made.run_with_iobinding(binding)
    answers["bound"] = float(np.abs(binding.copy_outputs_to_cpu()[0].sum(1) - 1).max())
    answers["child"] = inner_graph(x)
    answers["wrong"] = library.native_wrong().decode()
    answers["errors"] = kernels.errors
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
