"""CUDA and ROCm on imitated drivers, as one fixture: `fake_cuda` and `fake_hip` over one `fake_driver.Machine`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import CUresult, FakeCuda
from fake_driver import Machine
from fake_hip import ILLEGAL_ADDRESS, OUT_OF_MEMORY, FakeHip

import intarsia
from intarsia.device import cuda, hip, hiprtc, nvrtc, rocm_libraries
from intarsia.device.streams import StreamDevice

CODE = b"\x7fELF" + bytes(80) + b"main_kernel"
X = np.ones((8, 8), np.float32)


@dataclass
class Kind:
    """One of the two: names that differ."""

    kind: str
    provider: str
    title: str
    graphs: str
    machine: Any
    open: Callable[..., StreamDevice]
    module: Any
    lost: tuple[str, Any, str]
    full: tuple[str, Any, str]
    launch: str
    failure: Any

    def session(self, **given: object) -> intarsia.InferenceSession:
        """A softmax and a product, with these options of the provider."""
        from onnx import helper, numpy_helper

        nodes = [
            helper.make_node("Softmax", ["x"], ["h"], name="first"),
            helper.make_node("MatMul", ["h", "w"], ["y"], name="last"),
        ]
        inputs, outputs = [helper.make_tensor_value_info("x", 1, ["n", 8])], [helper.make_empty_tensor_value_info("y")]
        graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(np.ones((8, 100), np.float32), "w")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        options = intarsia.SessionOptions()
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        return intarsia.InferenceSession(model.SerializeToString(), options, [(self.provider, dict(given))])

    def forget(self) -> None:
        self.module.missing.cache_clear()


@pytest.fixture(name="gpu", params=["cuda", "rocm"])
def stream_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kind]:
    machine: Machine
    if request.param == "cuda":
        machine = FakeCuda()
        monkeypatch.setattr(cuda, "driver", lambda: machine)
        monkeypatch.setattr(nvrtc, "missing", lambda: "")
        monkeypatch.setattr(nvrtc, "architectures", lambda: (80, 90))
        monkeypatch.setattr(nvrtc, "version", lambda: "13.0")
        monkeypatch.setattr(nvrtc, "compiled", lambda source, architecture: CODE)
        made = Kind(
            "cuda", "CUDAExecutionProvider", "CUDA", "enable_cuda_graph", machine, cuda.open_device, cuda,
            ("cuEventSynchronize", CUresult.CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"),
            ("cuMemAlloc", CUresult.CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"), "cuLaunchKernel",
            CUresult.CUDA_ERROR_INVALID_VALUE,
        )  # fmt: skip
    else:
        machine = FakeHip()
        monkeypatch.setattr(hip, "runtime", lambda: machine)
        monkeypatch.setattr(rocm_libraries, "KERNEL_DRIVER", Path("/"))
        monkeypatch.setattr(hiprtc, "missing", lambda: "")
        monkeypatch.setattr(hiprtc, "version", lambda: "6.3")
        monkeypatch.setattr(hiprtc, "compiled", lambda source, architecture: CODE)
        made = Kind(
            "rocm", "ROCMExecutionProvider", "ROCm", "enable_hip_graph", machine, hip.open_device, hip,
            ("hipEventSynchronize", ILLEGAL_ADDRESS, "hipErrorIllegalAddress"),
            ("hipMalloc", OUT_OF_MEMORY, "hipErrorOutOfMemory"), "hipModuleLaunchKernel", 1,
        )  # fmt: skip
    monkeypatch.setattr(made.module._opened, "_devices", {})
    made.forget()
    yield made
    made.forget()
