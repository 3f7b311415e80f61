"""CUDA: NVRTC compiles kernels for real GPUs and needs none; the rest runs on a driver that we imitate (fake_cuda)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from fake_cuda import CUresult, FakeDriver

import intarsia
from intarsia.codegen.clike import Cuda, Cut
from intarsia.device import cuda, nvrtc
from intarsia.graph.dtypes import DType
from intarsia.kernel import lang as k
from intarsia.testing.cases import cases, run_case

pytestmark = pytest.mark.skipif(bool(nvrtc.missing()), reason=f"kernels cannot be compiled: {nvrtc.missing()}")
NAME = "CUDAExecutionProvider"
ARCHITECTURES = (80, 90, 120)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """The driver, and no device that is open from before."""
    made = FakeDriver()
    monkeypatch.setattr(cuda, "driver", lambda: made)
    monkeypatch.setattr(cuda, "_opened", {})
    cuda.missing.cache_clear()
    yield made
    cuda.missing.cache_clear()


def only_here() -> intarsia.SessionOptions:
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return options


def opened(**given: object) -> intarsia.InferenceSession:
    """A softmax and a product, with these options of the provider."""
    from onnx import helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"], name="last")], "g",
        [helper.make_tensor_value_info("x", 1, ["n", 8])], [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.ones((8, 100), np.float32), "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return intarsia.InferenceSession(model.SerializeToString(), only_here(), [(NAME, dict(given))])


X = np.ones((8, 8), np.float32)


# --- the compiler -----------------------------------------------------------------------------------------------------


def printed(root: k.Tensor) -> list[str]:
    cut = Cut(Cuda())
    cut.store(cut.settle(root), "y")
    return [job.kernel.source for job in cut.jobs]


@pytest.mark.parametrize("architecture", [pytest.param(a, id=f"sm_{a}") for a in ARCHITECTURES])
def test_every_schedule_is_compiled_to_machine_code(architecture: int) -> None:
    if architecture not in nvrtc.architectures():
        pytest.skip(f"NVRTC {nvrtc.version()} does not know sm_{architecture}")
    x, n = k.input("x", DType.FLOAT, (70, 100)), k.input("n", DType.INT64, (7,))
    exps = k.exp(x - k.reduce_max(x, [1], True))
    roots = [
        k.erf(x) + 1.0, exps / k.reduce_sum(exps, [1], True), k.dot(k.input("a", DType.FLOAT, (5, 70)), x), k.scan(x, "sum", 1),
        k.sort(x, 1)[0], k.take(x, n, 0), k.cast(x, DType.FLOAT16), k.cast(k.input("h", DType.BFLOAT16, (9,)), DType.DOUBLE),
        k.input("d", DType.DOUBLE, (9,)) / 3.0, k.pad(x, (1, 0), (0, 2), float("inf")), n * 3,
    ]  # fmt: skip
    for root in roots:
        for source in printed(root):
            assert nvrtc.compiled(source, architecture)[:4] == b"\x7fELF"


def test_a_text_that_is_refused_says_why() -> None:
    with pytest.raises(intarsia.EPFail, match=r"(?s)NVRTC refuses a kernel for sm_90: .*expected.*broken"):
        nvrtc.compiled("this is broken", 90)


def compiled_names() -> list[str]:
    """A twentieth of the node cases, or all where INTARSIA_CUDA_CASES is "all" (a quarter of an hour)."""
    names = sorted(n for n, c in cases().items() if c.kind == "node")
    return names if os.environ.get("INTARSIA_CUDA_CASES") == "all" else names[7::20]


@pytest.mark.parametrize("name", compiled_names())
def test_the_kernels_of_a_case_are_compiled_and_launched(name: str, fake: FakeDriver) -> None:
    """On memory that is theirs; what they would compute is not looked at."""
    try:
        run_case(cases()[name], [NAME], only_here())
    except intarsia.NotImplemented as error:
        pytest.skip(str(error).splitlines()[-1])
    (gpu,) = cuda._opened.values()
    assert fake.log.count("launch") == gpu.counters.launches  # none where views and constants answer


# --- the device -------------------------------------------------------------------------------------------------------


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(cuda, "driver", none)
    cuda.missing.cache_clear()
    with pytest.raises(intarsia.EPFail, match=r"NVIDIA's driver is not found: libcuda.so.1: cannot .*It needs NVIDIA's driver"):
        opened()
    cuda.missing.cache_clear()


def test_no_gpu_and_no_such_gpu(fake: FakeDriver) -> None:
    with pytest.raises(intarsia.EPFail, match="device_id is 3; there are 1 devices"):
        opened(device_id=3)
    fake.devices = 0
    cuda.missing.cache_clear()
    with pytest.raises(intarsia.EPFail, match="NVIDIA's driver finds no GPU"):
        opened()


def test_a_session_copies_in_launches_and_copies_out(fake: FakeDriver) -> None:
    session = opened()
    session.run(None, {"x": X})
    fake.log.clear()
    session.run(None, {"x": X})
    assert [w for w in fake.log if w != "launch"] == ["in", "out"]
    assert fake.log.count("launch") == 2
    assert fake.contexts == []
    assert session.explain().counts == {NAME: 2}


def test_copies_in_a_stream_of_their_own_wait_and_are_waited_for(fake: FakeDriver) -> None:
    session = opened(do_copy_in_default_stream=False)
    session.run(None, {"x": X})
    fake.log.clear()
    session.run(None, {"x": X})
    assert fake.log == ["record", "wait", "in", "record", "wait", "launch", "launch", "record", "wait", "out", "record", "wait"]


def test_launches_that_come_again_are_one_graph(fake: FakeDriver) -> None:
    session = opened(enable_cuda_graph=True)
    for _ in range(3):  # the pool gives the same memory to the same sizes
        session.run(None, {"x": X})
    assert [w for w in fake.log if "launch" in w or "graph" in w] == ["launch", "launch", "graph of 2", "graph of 2"]
    session.run(None, {"x": np.ones((9, 8), np.float32)})
    assert fake.log[-2:] == ["launch", "out"]


def test_sizes_of_blocks(fake: FakeDriver) -> None:
    for strategy, expected in (("kNextPowerOfTwo", 131072), ("kSameAsRequested", 70144)):
        gpu = intarsia.providers.cuda.CUDAExecutionProvider(
            intarsia.providers.cuda.CudaOptions(arena_extend_strategy=strategy)
        ).gpu
        assert gpu.allocate(70_000).nbytes == expected


def test_memory_that_is_kept_is_given_back_before_there_is_none(fake: FakeDriver) -> None:
    gpu = cuda.open_device(cuda.Setup(doubling=False))
    fake.memory_nbytes = 300 << 10
    kept = gpu.allocate(200 << 10)
    del kept
    gpu.allocate(250 << 10)
    with pytest.raises(intarsia.OutOfMemory, match=r"cuda:0 could not allocate 409,600 bytes: CUDA_ERROR_OUT_OF_MEMORY: use a"):
        gpu.allocate(400 << 10)


def test_a_limit(fake: FakeDriver) -> None:
    session = opened(gpu_mem_limit=4096)
    with pytest.raises(intarsia.OutOfMemory, match="the limit is 4,096: raise the limit"):
        session.run(None, {"x": np.ones((100, 8), np.float32)})


def test_a_lost_device_ends_the_run_and_a_new_session_has_a_new_one(fake: FakeDriver) -> None:
    session = opened()
    session.run(None, {"x": X})
    fake.failures["cuStreamSynchronize"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(intarsia.DeviceLost, match="cuda:0 failed in a kernel or copy: CUDA_ERROR_ILLEGAL_ADDRESS; what was in"):
        session.run(None, {"x": X})
    opened().run(None, {"x": X})


def test_options_of_libraries_that_are_not_used_are_taken(fake: FakeDriver) -> None:
    session = opened(cudnn_conv_algo_search="HEURISTIC", use_tf32="0", do_copy_in_default_stream="True")
    options = session.get_provider_options()[NAME]
    assert (options["cudnn_conv_algo_search"], options["use_tf32"], options["gpu_mem_limit"]) == (
        "HEURISTIC",
        "0",
        str(2**64 - 1),
    )
    with pytest.raises(intarsia.InvalidArgument, match="cudnn_conv_algo_search"):
        opened(cudnn_conv_algo_search="FASTEST")
