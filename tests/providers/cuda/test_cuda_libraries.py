"""cuBLASLt and cuDNN behind the provider: sessions on an imitated driver whose libraries compute on the host's memory.

Kernels of our own do nothing there, so models are made of what the libraries compute alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cublaslt import FakeCublasLt
from fake_cuda import CUresult, FakeCuda
from fake_cudnn import FakeCudnn, FakeEngine, convolved
from fake_library import Wrong

import intarsia
from intarsia.codegen.clike.vendor_libraries import select_calls
from intarsia.device import cuda, cuda_libraries, nvidia_libraries, nvrtc
from intarsia.device.cublaslt import WANTED, CublasLt
from intarsia.device.cudnn import Cudnn

CODE = b"\x7fELF" + bytes(80) + b"main_kernel"
NAME = "CUDAExecutionProvider"
FAILURE = CUresult.CUDA_ERROR_INVALID_VALUE
DRAW = np.random.default_rng(5)
X = DRAW.standard_normal((8, 16)).astype(np.float32)
W = DRAW.standard_normal((16, 20)).astype(np.float32)
BIAS = DRAW.standard_normal(20).astype(np.float32)


@dataclass
class Gpu:
    machine: FakeCuda
    blas: FakeCublasLt
    dnn: FakeCudnn

    def session(
        self, nodes: list[Any], feeds: dict[str, np.ndarray], weights: dict[str, np.ndarray], opset: int = 18, **options: object
    ) -> Any:
        from onnx import helper, numpy_helper

        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), [None, *a.shape[1:]])
            for n, a in feeds.items()
        ]
        outputs = [helper.make_empty_tensor_value_info("y")]
        graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in weights.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
        settings = intarsia.SessionOptions()
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        return intarsia.InferenceSession(model.SerializeToString(), settings, [(NAME, dict(options))])

    def dense(self, **options: object) -> Any:
        """relu(x w + b), one call of cuBLASLt."""
        from onnx import helper

        nodes = [
            helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="dense"), helper.make_node("Relu", ["h"], ["y"], name="relu"),
        ]  # fmt: skip
        return self.session(nodes, {"x": X}, {"w": W, "b": BIAS}, **options)

    def image(self, **options: object) -> Any:
        """A convolution with a bias, one call of cuDNN."""
        from onnx import helper

        node = helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv", pads=[1, 1, 1, 1], strides=[2, 2])
        return self.session([node], {"x": IMAGE}, {"w": KERNEL, "b": SHIFT}, **options)


IMAGE = DRAW.standard_normal((2, 4, 9, 9)).astype(np.float32)
KERNEL = DRAW.standard_normal((8, 4, 3, 3)).astype(np.float32)
SHIFT = DRAW.standard_normal(8).astype(np.float32)
DENSE = np.maximum(X.astype(np.float64) @ W + BIAS, 0)
CONVOLVED = convolved(IMAGE.astype(np.float64), KERNEL.astype(np.float64), [(1, 1)] * 2, [2, 2], [1, 1]) + SHIFT[:, None, None]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Gpu]:
    """Plans are kept for this test alone: those of a library that did not start are not those of one that did."""
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    machine = FakeCuda()
    made = Gpu(machine, FakeCublasLt(machine), FakeCudnn(machine))
    monkeypatch.setattr(cuda, "driver", lambda: machine)
    monkeypatch.setattr(cuda._opened, "_devices", {})
    for name, answer in (("missing", ""), ("architectures", (80, 90)), ("version", "13.0")):
        monkeypatch.setattr(nvrtc, name, lambda answer=answer: answer)
    monkeypatch.setattr(nvrtc, "compiled", lambda source, architecture: CODE)
    monkeypatch.setattr(select_calls, "LEAST_FLOP", 0)
    monkeypatch.setattr(select_calls, "LEAST_INTENSITY", 0.0)
    blas, dnn = made.blas.exported(), made.dnn.exported()
    monkeypatch.setattr(cuda_libraries, "CublasLt", lambda most: CublasLt(most, blas))
    monkeypatch.setattr(cuda_libraries, "Cudnn", lambda most: Cudnn(most, dnn))
    cuda.missing.cache_clear()
    yield made
    cuda.missing.cache_clear()
    assert not made.blas.wrong + made.dnn.wrong


# --- runs -------------------------------------------------------------------------------------------------------------


def test_a_product_with_what_stands_behind_it_is_one_call(gpu: Gpu) -> None:
    session = gpu.dense(use_tf32=0)
    (found,) = session.run(None, {"x": X})
    np.testing.assert_allclose(found, DENSE, rtol=1e-5, atol=1e-5)
    assert gpu.blas.log == ["product 20 x 8, epilogue 6"]
    assert [w for w in gpu.machine.log if w in ("launch", "library")] == ["library"]
    (other,) = session.run(None, {"x": X[:3]})  # another plan, another call
    np.testing.assert_allclose(other, DENSE[:3], rtol=1e-5, atol=1e-5)
    asked = gpu.blas.asked
    session.run(None, {"x": X})
    assert gpu.blas.asked == asked  # algorithms are kept


def test_a_convolution_is_one_call(gpu: Gpu) -> None:
    (found,) = gpu.image(use_tf32=0).run(None, {"x": IMAGE})
    np.testing.assert_allclose(found, CONVOLVED, rtol=1e-5, atol=1e-5)
    assert gpu.dnn.log[-1] == "convolve add"


def test_causal_attention_of_grouped_heads_is_one_call(gpu: Gpu) -> None:
    """Projections stay as they are; the band is in the call."""
    from onnx import helper

    draw = np.random.default_rng(1)
    feeds = {n: draw.standard_normal((2, 5, w)).astype(np.float16) for n, w in (("q", 32), ("k", 16), ("v", 16))}
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], q_num_heads=4, kv_num_heads=2, is_causal=1, name="heads")
    session = gpu.session([node], feeds, {}, opset=23)
    (found,) = session.run(None, feeds)
    q, key, v = (a.astype(np.float64).reshape(2, 5, -1, 8).transpose(0, 2, 1, 3) for a in feeds.values())
    scores = q @ np.repeat(key, 2, 1).swapaxes(2, 3) / np.sqrt(8)
    powers = np.exp(np.where(np.tri(5, dtype=bool), scores, -np.inf))
    expected = (powers / powers.sum(-1, keepdims=True)) @ np.repeat(v, 2, 1)
    np.testing.assert_allclose(found, expected.transpose(0, 2, 1, 3).reshape(2, 5, 32), rtol=4e-3, atol=4e-3)
    assert gpu.dnn.log == ["attend(right)"] and gpu.machine.log.count("launch") == 0
    assert "cuDNN's attention" in str(session.explain())


def test_nothing_is_loaded_before_it_is_asked_for(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx import helper

    for name in ("CublasLt", "Cudnn"):
        monkeypatch.setattr(cuda_libraries, name, lambda most: pytest.fail("it is not needed"))
    gpu.session([helper.make_node("Softmax", ["x"], ["y"])], {"x": X}, {}).run(None, {"x": X})


def test_calls_are_captured_and_replayed(gpu: Gpu) -> None:
    """Nothing is allocated meanwhile: the scratch is the plan's."""
    session = gpu.dense(enable_cuda_graph=1, use_tf32=0)
    feeds = [X, X + 1, X - 1, X * 2]
    results = [session.run(None, {"x": x})[0] for x in feeds]
    assert [w for w in gpu.machine.log if "graph" in w or w == "library"] == [
        "library",
        "graph of 1",
        "graph of 1",
        "graph of 1",
    ]
    for x, found in zip(feeds, results, strict=True):
        np.testing.assert_allclose(found, np.maximum(x.astype(np.float64) @ W + BIAS, 0), rtol=1e-5, atol=1e-5)


def test_a_captured_call_is_given_other_memory(gpu: Gpu) -> None:
    """Its part of the graph is captured anew, the graph is the same."""
    session = gpu.dense(enable_cuda_graph=1, use_tf32=0)
    values = [intarsia.OrtValue.ortvalue_from_numpy(X + i, "cuda", 0) for i in range(5)]
    found = [session.run_with_ort_values(None, {"x": value})[0].numpy() for value in values]
    for i, y in enumerate(found):
        np.testing.assert_allclose(y, np.maximum((X + i).astype(np.float64) @ W + BIAS, 0), rtol=1e-5, atol=1e-5)
    assert gpu.machine.log.count("change") == 3 and gpu.machine.log.count("graph of 1") == 4
    assert len(gpu.machine.executables) == 1 and gpu.machine.captured is None


@pytest.mark.parametrize("when", ["capture", "later", "begin", "end"])
def test_a_call_that_cannot_be_captured_is_named(
    gpu: Gpu, when: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A library that waits for the device while it is captured, at the first time or when memory changes."""
    session = gpu.dense(enable_cuda_graph=1, use_tf32=0)
    values = [intarsia.OrtValue.ortvalue_from_numpy(X + i, "cuda", 0) for i in range(4)]
    for i, value in enumerate(values):
        if i == (2 if when == "later" else 1):
            if when in ("begin", "end"):
                gpu.machine.failures["cuStreamBeginCapture" if when == "begin" else "cuStreamEndCapture"] = FAILURE
            else:
                started = gpu.blas.start

                def start(stream: int, work: Any, started: Any = started) -> None:
                    if gpu.machine.captures(stream):
                        raise Wrong(13, "it waits for the device")
                    started(stream, work)

                monkeypatch.setattr(gpu.blas, "start", start)
        (y,) = session.run_with_ort_values(None, {"x": value})
        np.testing.assert_allclose(y.numpy(), np.maximum((X + i).astype(np.float64) @ W + BIAS, 0), rtol=1e-5, atol=1e-5)
    assert gpu.machine.log.count("graph of 1") == (when == "later")
    assert "node 'relu' (Relu): " in caplog.text or "node 'dense' (Gemm): " in caplog.text
    wanted = {"begin": "capture cannot begin: CUDA_ERROR_INVALID_VALUE",
              "end": "cuBLASLt's product with relu, bias cannot be captured: CUDA_ERROR_INVALID_VALUE"}  # fmt: skip
    reason = wanted.get(when, "cuBLASLt's product with relu, bias cannot be captured: CUBLAS_STATUS_EXECUTION_FAILED")
    assert reason in caplog.text
    assert gpu.machine.captured is None and not gpu.machine.executables
    gpu.blas.wrong.clear()


def test_the_scratch_is_lent_by_the_plan(gpu: Gpu) -> None:
    gpu.blas.workspace_nbytes = 1 << 20
    session = gpu.dense()
    session.run(None, {"x": X})
    held = next(iter(cuda._opened.values())).holders()
    assert held["intermediate values"] >= 1 << 20
    with pytest.raises(intarsia.OutOfMemory, match=r"more bytes were requested for intermediate values"):
        gpu.dense(gpu_mem_limit=1 << 19).run(None, {"x": X})


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "exact"), [({}, False), ({"use_tf32": 0}, True), ({"use_tf32": "1"}, False)])
def test_tf32(gpu: Gpu, given: dict[str, object], exact: bool) -> None:
    for session, feed, expected in ((gpu.dense(**given), X, DENSE), (gpu.image(**given), IMAGE, CONVOLVED)):
        error = np.abs(session.run(None, {"x": feed})[0] - expected).max()
        assert (error < 1e-5) == exact
        assert error < 0.1


def test_a_search_takes_the_fastest_or_the_first(gpu: Gpu) -> None:
    gpu.dnn.engines = [FakeEngine(workspace_nbytes=256, nanoseconds=9000), FakeEngine(workspace_nbytes=512, nanoseconds=2000),
                       FakeEngine(workspace_nbytes=1024, nanoseconds=4000, modes=frozenset({0}))]  # fmt: skip
    for search, nbytes in (("EXHAUSTIVE", 512), ("HEURISTIC", 256), ("DEFAULT", 256)):
        session = gpu.image(cudnn_conv_algo_search=search)
        session.run(None, {"x": IMAGE})
        (program,) = prepared(search=search)
        assert program.workspace_nbytes == nbytes
    gpu.dnn.engines = [FakeEngine(workspace_nbytes=2048, modes=frozenset({0})), FakeEngine(modes=frozenset({3}))]
    gpu.image(cudnn_conv_algo_search="DEFAULT", cudnn_conv_use_max_workspace=0).run(None, {"x": IMAGE})
    (program,) = prepared(max_workspace=False)
    assert program.workspace_nbytes == 2048  # the instant heuristics' own


def test_the_workspace_of_convolutions(gpu: Gpu) -> None:
    gpu.dnn.engines = [FakeEngine(workspace_nbytes=64 << 20), FakeEngine(workspace_nbytes=1 << 20)]
    for maximum, nbytes in ((1, 64 << 20), (0, 1 << 20)):
        gpu.image(cudnn_conv_use_max_workspace=maximum, cudnn_conv_algo_search="HEURISTIC").run(None, {"x": IMAGE})
        (program,) = prepared(max_workspace=bool(maximum))
        assert program.workspace_nbytes == nbytes


def test_libraries_that_are_switched_off(gpu: Gpu) -> None:
    session = gpu.image(enable_cudnn=0)
    session.run(None, {"x": IMAGE})
    (node,) = [n for n in session.explain().nodes if n.op == "Conv"]
    refusal = node.refusals["cuDNN"]
    assert (refusal.code, refusal.suggestion) == ("library-missing", "set 'enable_cudnn' to 1")
    session = gpu.dense(use_libraries=0)
    session.run(None, {"x": X})
    assert not gpu.blas.log + gpu.dnn.log
    assert "switched off by the option 'use_libraries'" in str(session.explain())


def prepared(**wanted: object) -> list[Any]:
    """Programs of sessions with such options of libraries."""
    return [
        program
        for device in cuda._opened.values()
        for options, libraries in device._libraries.items()
        if all(getattr(options, name) == value for name, value in wanted.items())
        for program in libraries._prepared.values()
    ]


def planned(session: Any) -> str:
    return "\n".join(program.describe("plan") for program in session._engine.whole_model().programs)


# --- what explains ----------------------------------------------------------------------------------------------------


def test_the_plan_and_the_explanation_say_who_computes_and_why(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    session = gpu.dense()
    session.run(None, {"x": X})
    assert "product cuBLASLt x, =w, =b -> y" in (text := planned(session))
    assert "[library: 5,120 operations, bound by multiplications]" in text
    assert "(scratch 4,096 bytes)" in text
    assert "cuBLASLt's product" in str(session.explain())
    monkeypatch.setattr(select_calls, "LEAST_FLOP", 1 << 23)
    other = gpu.dense(do_copy_in_default_stream=0)
    other.run(None, {"x": X})
    assert "[library-cost: 5,120 operations are less than a call's start is worth (8,388,608)]" in planned(other)
    (node,) = [n for n in other.explain().nodes if n.op == "Gemm"]
    assert node.refusals["cuBLASLt"].code == "library-cost"


def test_a_library_that_is_missing_is_named(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "intarsia")
    monkeypatch.setattr(nvidia_libraries, "folders", lambda: ["/nowhere/lib"])
    monkeypatch.setattr(nvidia_libraries.ctypes, "CDLL", lambda path: (_ for _ in ()).throw(OSError("no")))
    monkeypatch.setattr(cuda_libraries, "CublasLt", CublasLt)
    session = gpu.dense()
    session.run(None, {"x": X})
    (node,) = [n for n in session.explain().nodes if n.op == "Gemm"]
    refusal = node.refusals["cuBLASLt"]
    assert refusal.code == "library-missing"
    assert refusal.reason.startswith("cuBLASLt: libcublasLt.so.13 or libcublasLt.so.12 is found neither by the loader")
    assert "/nowhere/lib" in refusal.reason
    assert refusal.suggestion == "pip install nvidia-cublas"
    assert "kernels of its own instead of cuBLASLt's" in caplog.text


def test_a_library_that_does_not_start(gpu: Gpu) -> None:
    gpu.blas.start_error, gpu.dnn.of_cuda = 1, 14000
    for session, feed, name, reason in (
        (gpu.dense(), X, "cuBLASLt", "cuBLASLt 13.1.0 does not start: CUBLAS_STATUS_NOT_INITIALIZED"),
        (gpu.image(), IMAGE, "cuDNN", "cuDNN 9.28.0 is for CUDA 14, and the driver has 13"),
    ):
        session.run(None, {"x": feed})
        refusals = [n.refusals[name] for n in session.explain().nodes if name in n.refusals]
        assert reason in [r.reason for r in refusals]
        assert "install the one for CUDA 13" in refusals[0].suggestion


def test_a_call_that_fails_names_its_node(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(stream: int, work: object) -> None:
        raise Wrong(13, "the GPU is tired")

    session = gpu.dense()
    session.run(None, {"x": X})
    monkeypatch.setattr(gpu.blas, "start", refuse)
    with pytest.raises(
        intarsia.EPFail, match=r"could not start cuBLASLt's product with relu, bias of node 'dense' .*EXECUTION_F"
    ):
        session.run(None, {"x": X})
    gpu.blas.wrong.clear()


def test_versions_of_a_library_by_the_drivers() -> None:
    assert WANTED.names(13) == ["libcublasLt.so.13", "libcublasLt.so.12"]
    assert WANTED.names(12) == WANTED.names(11) == ["libcublasLt.so.12"]
    assert (WANTED.package(13), WANTED.package(12), WANTED.package(11)) == (
        "nvidia-cublas",
        "nvidia-cublas-cu12",
        "nvidia-cublas-cu12",
    )
