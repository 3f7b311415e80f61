"""The listings of the two documents that describe the product, each with the providers that this machine has.

Where a listing names a provider that is absent, what the documents say happens: the next of the list, with a warning; where the
list has no other, a clear error, and with "session.provider_fallback" = "warn" the CPU, as onnxruntime does.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import intarsia as ort
from intarsia.errors import EPFail

CPU = "CPUExecutionProvider"
CUDA_OPTIONS = {
    "device_id": 0,
    "arena_extend_strategy": "kNextPowerOfTwo",
    "gpu_mem_limit": 2 * 1024 * 1024 * 1024,
    "cudnn_conv_algo_search": "EXHAUSTIVE",
    "do_copy_in_default_stream": True,
}
TRT_OPTIONS = {
    "device_id": 0,
    "trt_max_workspace_size": 2 * 1024 * 1024 * 1024,
    "trt_fp16_enable": True,
    "trt_int8_enable": False,
    "trt_engine_cache_enable": True,
    "trt_engine_cache_path": "./trt_cache",
}


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The documents' "model.onnx" in the current folder: a picture in, scores out."""
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[1,3,224,224] input) => (float[1,4] output) {
            pooled = GlobalAveragePool(input)  flat = Flatten(pooled)  scores = MatMul(flat, w)  output = Softmax(scores)
        }""")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((3, 4), np.float32), "w"))
    onnx.save(proto, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)


def picture() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)


def works(session: ort.InferenceSession) -> bool:
    return np.allclose(session.run(None, {"input": picture()})[0], 0.25)


def as_the_documents_say(make: Callable[[], ort.InferenceSession], *absent: str) -> ort.InferenceSession:
    """The session; those of `absent` that this machine lacks are each warned of by name, and nothing else is."""
    lacking = [name for name in absent if name not in ort.get_available_providers()]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session = make()
    said = [str(w.message) for w in caught]
    assert all(issubclass(w.category, ort.ProviderWarning) for w in caught)
    assert len(said) == len(lacking)
    for name, message in zip(lacking, said, strict=True):
        assert message.startswith(name)
        assert "On this machine: " in message and "It needs " in message
        assert "The session goes on with " in message
    assert not set(lacking) & set(session.get_providers())
    assert works(session)
    return session


def only(provider: str, *rest: Any) -> ort.InferenceSession | None:
    """A list of one provider: its session where it is there, else the error, and the CPU where that is allowed."""
    listed = [(provider, *rest) if rest else provider]
    if provider in ort.get_available_providers():
        return ort.InferenceSession("model.onnx", providers=listed)
    with pytest.raises(EPFail, match=f"none of the requested execution providers can be used:\n  {provider} .*It needs "):
        ort.InferenceSession("model.onnx", providers=listed)
    options = ort.SessionOptions()
    options.add_session_config_entry("session.provider_fallback", "warn")
    with pytest.warns(ort.ProviderWarning, match=f"{provider} .*The session goes on with {CPU}"):
        session = ort.InferenceSession("model.onnx", options, providers=listed)
    assert works(session)
    return None


class TestAvailableProviders:
    def test_cpu(self) -> None:
        session = ort.InferenceSession("model.onnx")
        assert session.get_providers() == [CPU]
        sess_options = ort.SessionOptions()
        sess_options.intra_op_num_threads = 4
        session = ort.InferenceSession("model.onnx", sess_options, providers=["CPUExecutionProvider"])
        assert session.get_session_options().intra_op_num_threads == 4
        assert works(session)

    def test_cuda(self) -> None:
        session = as_the_documents_say(
            lambda: ort.InferenceSession("model.onnx", providers=["CUDAExecutionProvider", "CPUExecutionProvider"]),
            "CUDAExecutionProvider",
        )
        assert CPU in session.get_providers()
        as_the_documents_say(
            lambda: ort.InferenceSession(
                "model.onnx", providers=[("CUDAExecutionProvider", CUDA_OPTIONS), "CPUExecutionProvider"]
            ),
            "CUDAExecutionProvider",
        )

    def test_tensorrt(self) -> None:
        as_the_documents_say(
            lambda: ort.InferenceSession(
                "model.onnx",
                providers=[("TensorrtExecutionProvider", TRT_OPTIONS), "CUDAExecutionProvider", "CPUExecutionProvider"],
            ),
            "TensorrtExecutionProvider", "CUDAExecutionProvider",
        )  # fmt: skip

    def test_directml(self) -> None:
        as_the_documents_say(
            lambda: ort.InferenceSession("model.onnx", providers=["DmlExecutionProvider", "CPUExecutionProvider"]),
            "DmlExecutionProvider",
        )

    def test_coreml(self) -> None:
        coreml_options = {"MLComputeUnits": "ALL"}
        as_the_documents_say(
            lambda: ort.InferenceSession(
                "model.onnx", providers=[("CoreMLExecutionProvider", coreml_options), "CPUExecutionProvider"]
            ),
            "CoreMLExecutionProvider",
        )

    def test_openvino(self) -> None:
        pytest.importorskip("openvino", reason="needs openvino (extra: openvino)")
        openvino_options = {"device_type": "CPU_FP32", "num_of_threads": 8}
        session = ort.InferenceSession("model.onnx", providers=[("OpenVINOExecutionProvider", openvino_options)])
        assert session.explain().counts == {"OpenVINOExecutionProvider": 4}
        assert session.get_provider_options()["OpenVINOExecutionProvider"]["num_of_threads"] == "8"
        assert works(session)

    def test_nnapi(self) -> None:
        as_the_documents_say(
            lambda: ort.InferenceSession("model.onnx", providers=["NnapiExecutionProvider", "CPUExecutionProvider"]),
            "NnapiExecutionProvider",
        )

    def test_acl(self) -> None:
        """The documents' spelling, AclExecutionProvider, means what onnxruntime calls ACLExecutionProvider."""
        as_the_documents_say(
            lambda: ort.InferenceSession("model.onnx", providers=["AclExecutionProvider", "CPUExecutionProvider"]),
            "ACLExecutionProvider",
        )

    def test_rocm(self) -> None:
        only("ROCMExecutionProvider", {"device_id": 0, "gpu_mem_limit": 2 * 1024 * 1024 * 1024})


class TestSelectionAndFallback:
    def test_priority(self) -> None:
        as_the_documents_say(
            lambda: ort.InferenceSession(
                "model.onnx", providers=["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
            ),
            "TensorrtExecutionProvider", "CUDAExecutionProvider",
        )  # fmt: skip

    def test_a_node_that_a_provider_cannot_execute_goes_to_the_next(self) -> None:
        from intarsia.testing.faults import FaultInjectingExecutionProvider

        session = ort.InferenceSession("model.onnx", providers=[(FaultInjectingExecutionProvider, {"takes": "Flatten"}), CPU])
        assert session.explain().counts == {FaultInjectingExecutionProvider.name: 1, CPU: 3}
        assert works(session)

    def test_active_providers(self, capsys: pytest.CaptureFixture[str]) -> None:
        print("Available providers:", ort.get_available_providers())
        session = ort.InferenceSession("model.onnx")
        print("Session providers:", session.get_providers())
        shown = capsys.readouterr().out
        assert "CPUExecutionProvider" in shown.splitlines()[0]
        assert shown.splitlines()[1] == "Session providers: ['CPUExecutionProvider']"


def test_verbose_logging_shows_how_nodes_are_partitioned(caplog: pytest.LogCaptureFixture) -> None:
    sess_options = ort.SessionOptions()
    sess_options.log_severity_level = 0
    with caplog.at_level(logging.DEBUG, "intarsia"):
        ort.InferenceSession("model.onnx", sess_options)
    assert "nodes by provider: CPUExecutionProvider: 4" in caplog.text


def test_io_binding() -> None:
    """With the CPU instead of CUDA where there is none: binding there has its own error."""
    here = "CUDAExecutionProvider" in ort.get_available_providers()
    session = ort.InferenceSession("model.onnx", providers=["CUDAExecutionProvider" if here else CPU])
    io_binding = session.io_binding()
    input_data = np.random.randn(1, 3, 224, 224).astype(np.float32)  # noqa: NPY002 # as in the document
    io_binding.bind_cpu_input("input", input_data)
    if here:
        io_binding.bind_output("output", "cuda")
    else:
        with pytest.raises((ort.IntarsiaError, ValueError), match="cuda"):
            io_binding.bind_output("output", "cuda")
        io_binding.bind_output("output", "cpu")
    session.run_with_iobinding(io_binding)
    output = io_binding.copy_outputs_to_cpu()[0]
    assert np.allclose(output, 0.25)


class TestOptions:
    def test_memory(self) -> None:
        cuda_options = {"gpu_mem_limit": 4 * 1024 * 1024 * 1024, "arena_extend_strategy": "kSameAsRequested"}
        only("CUDAExecutionProvider", cuda_options)
        only("CUDAExecutionProvider", {**cuda_options, "gpu_mem_limit": 1 * 1024 * 1024 * 1024})

    def test_mixed_precision(self) -> None:
        only("TensorrtExecutionProvider", {"trt_fp16_enable": True, "trt_strict_type_constraints": False})

    def test_engine_cache(self) -> None:
        only("TensorrtExecutionProvider", {"trt_engine_cache_enable": True})

    def test_cuda_alone(self) -> None:
        only("CUDAExecutionProvider")


def test_warmup() -> None:
    session = ort.InferenceSession("model.onnx")
    dummy_input = picture()
    for _ in range(10):
        session.run(None, {"input": dummy_input})
    assert works(session)


def test_provider_not_available(capsys: pytest.CaptureFixture[str]) -> None:
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        print("CUDA provider not available")
        print("Available:", ort.get_available_providers())
        assert "CPUExecutionProvider" in capsys.readouterr().out


def test_the_second_document() -> None:
    """Its garbled lines as meant: detections = sess.run(...), image.save(...), sess.set_providers(...)."""
    import intarsia as rt

    names = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    sess = as_the_documents_say(lambda: rt.InferenceSession("model.onnx", providers=names), "CUDAExecutionProvider")
    output_name = sess.get_outputs()[0].name
    input_name = sess.get_inputs()[0].name
    image_data = picture()
    detections = sess.run([output_name], {input_name: image_data})[0]
    assert detections.shape == (1, 4)
    sess.set_providers(["CPUExecutionProvider"])
    assert sess.get_providers() == ["CPUExecutionProvider"]
    assert sess.get_provider_options() == {"CPUExecutionProvider": {}}
    cpu_detection = sess.run([output_name], {input_name: image_data})[0]
    np.testing.assert_allclose(cpu_detection, detections, rtol=1e-5)


class TestInterfaceOfProviders:
    """The C++ listings, by their names in Python (docs/custom-providers.md runs them)."""

    def test_names(self) -> None:
        names = "IExecutionProvider GraphViewer IKernelLookup ComputeCapability KernelRegistry IDataTransfer"
        for name in names.split():
            assert hasattr(ort, name)
        for method in ("GetCapability", "GetKernelRegistry", "GetDataTransfer"):
            assert callable(getattr(ort.IExecutionProvider, method))
