"""CUDA: NVRTC compiles kernels for real GPUs and needs none; the rest runs on a driver that we imitate (fake_cuda)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from fake_cuda import FakeCuda

import intarsia
from intarsia.codegen.clike import Cuda, Cut
from intarsia.device import cuda, nvrtc
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.providers.cuda import CUDAExecutionProvider
from intarsia.providers.options import option_texts, parse_options

pytestmark = pytest.mark.skipif(bool(nvrtc.missing()), reason=f"kernels cannot be compiled: {nvrtc.missing()}")
NAME = "CUDAExecutionProvider"
ARCHITECTURES = (80, 90, 120)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """The driver, and no device that is open from before."""
    made = FakeCuda()
    monkeypatch.setattr(cuda, "driver", lambda: made)
    monkeypatch.setattr(cuda._opened, "_devices", {})
    cuda.missing.cache_clear()
    yield made
    cuda.missing.cache_clear()


def only_here() -> intarsia.SessionOptions:
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return options


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
    q, key, value = (k.input(name, DType.FLOAT, (8, 1100, 8)) for name in ("q", "k", "v"))
    scores = k.dot(q, k.transpose(key, (0, 2, 1)))  # 38 MB: they are never in memory
    powers = k.exp(scores - k.reduce_max(scores, [2], True))
    roots = [
        k.dot(powers / k.reduce_sum(powers, [2], True), value),
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


# --- the device -------------------------------------------------------------------------------------------------------


def test_the_driver_has_the_functions_that_are_imitated() -> None:
    """With the numbers and names that the imitation gives them."""
    import fake_cuda
    from cuda.bindings import driver

    for name in vars(FakeCuda):
        if name.startswith("cu"):
            assert hasattr(driver, name), name
    for kind in (fake_cuda.CUresult, fake_cuda.CUstream_flags, fake_cuda.CUevent_flags, fake_cuda.CUdevice_attribute):
        for member in kind:
            assert int(getattr(getattr(driver, kind.__name__), member.name)) == member
    for name in vars(fake_cuda.KernelNode()):
        assert hasattr(driver.CUDA_KERNEL_NODE_PARAMS, name), name


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(cuda, "driver", none)
    cuda.missing.cache_clear()
    with pytest.raises(intarsia.EPFail, match=r"NVIDIA's driver is not found: libcuda.so.1: cannot .*It needs NVIDIA's driver"):
        intarsia.InferenceSession(b"", only_here(), [NAME])
    cuda.missing.cache_clear()


def test_a_driver_that_refuses_what_a_newer_compiler_made(fake: FakeCuda) -> None:
    """Whether an older driver takes it is known when it has tried."""
    from fake_cuda import CUresult

    fake.version = 12080
    fake.failures["cuModuleLoadData"] = CUresult.CUDA_ERROR_INVALID_IMAGE
    assert not cuda.missing()
    told = (
        r"could not load a kernel: CUDA_ERROR_INVALID_IMAGE: the driver is one of CUDA 12\.8, and the kernel was "
        r"compiled by NVRTC (\S+); install a driver of CUDA \1 or later, or an NVRTC of CUDA 12\.8 or earlier"
    )
    cut = Cut(Cuda())
    cut.store(k.input("x", DType.FLOAT, (3,)) + 1.0, "y")
    with pytest.raises(intarsia.EPFail, match=told):
        cuda.open_device().program(cut.jobs[0].kernel)


def test_errors_that_end_a_device_have_the_drivers_names() -> None:
    from cuda.bindings import driver

    for name in cuda.CudaDriver.lost | cuda.CudaDriver.final | {cuda.CudaDriver.out_of_memory}:
        assert hasattr(driver.CUresult, name), name


@pytest.mark.parametrize(
    ("error", "advice"),
    [("MISALIGNED_ADDRESS", "start the process again, since its driver runs nothing more"),
     ("ILLEGAL_ADDRESS", "start the process again"), ("ECC_UNCORRECTABLE", "make the session again")],
)  # fmt: skip
def test_what_to_do_about_a_lost_device(fake: FakeCuda, error: str, advice: str) -> None:
    """After most of what a kernel can do wrong, the driver answers everything in the process with the same error."""
    from fake_cuda import CUresult

    device = cuda.open_device()
    fake.failures["cuStreamSynchronize"] = CUresult[f"CUDA_ERROR_{error}"]
    with pytest.raises(intarsia.DeviceLost, match=f"CUDA_ERROR_{error}; what was in its memory is gone: {advice}"):
        device.finish()
    assert device.lost


def test_tf32_is_no_matter_of_the_device(fake: FakeCuda) -> None:
    """Sessions with it and without work on the same memory, with kernels of their own."""
    with_it, without = (CUDAExecutionProvider(parse_options(CUDAExecutionProvider, {"use_tf32": t})) for t in (1, 0))
    assert with_it.gpu is without.gpu
    assert with_it.dialect.matrix_units - without.dialect.matrix_units == {DType.FLOAT}


def test_kernels_of_a_plan_are_compiled_at_the_same_time(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both wait for each other."""
    both = threading.Barrier(2, timeout=300)

    def compiled(source: str, architecture: int) -> bytes:
        both.wait()
        return b"\x7fELF" + bytes(80) + b"main_kernel"

    monkeypatch.setattr(nvrtc, "compiled", compiled)
    device = cuda.open_device()
    monkeypatch.setattr(device, "compilers", 2)
    x = k.input("x", DType.FLOAT, (40, 100))
    cut = Cut(device.dialect)
    for name, root in (("y", x + 1.0), ("z", k.reduce_sum(x, [1]))):
        cut.store(cut.settle(root), name)
    device.prepare([job.kernel for job in cut.jobs])
    assert device.counters.compiled == 2
    assert [device.program(job.kernel) for job in cut.jobs] and device.counters.compiled == 2


def test_options_that_are_taken_and_said_to_have_no_effect(fake: FakeCuda, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "intarsia")
    given = {"cudnn_conv_algo_search": "HEURISTIC", "use_tf32": "0", "do_copy_in_default_stream": "True", "sdpa_kernel": "1"}
    options = parse_options(CUDAExecutionProvider, given)
    CUDAExecutionProvider(options)
    texts = option_texts(options)
    assert (texts["cudnn_conv_algo_search"], texts["use_tf32"], texts["gpu_mem_limit"]) == ("HEURISTIC", "0", str(2**64 - 1))
    assert "no effect, since kernels are its own: sdpa_kernel" in caplog.text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cudnn_conv_algo_search": "FASTEST"}, "'cudnn_conv_algo_search' of CUDAExecutionProvider: 'FASTEST' is not a valid"),
        ({"cudnn_conv_use_max_workspace": "maybe"}, "'cudnn_conv_use_max_workspace' of .*: expected a boolean"),
        ({"use_tf32": 2}, "'use_tf32' of .*: expected a boolean"),
        ({"sdpa_kernel": "flash"}, "'sdpa_kernel' of .*: expected an integer"),
        ({"arena_extend_strategy": "kDouble"}, "'arena_extend_strategy' of .*'kDouble' is not a valid value"),
        ({"enable_hip_graph": 1}, "CUDAExecutionProvider has no option 'enable_hip_graph'.*enable_cuda_graph"),
    ],
)
def test_options_that_cannot_be(given: dict[str, object], message: str) -> None:
    with pytest.raises(intarsia.InvalidArgument, match=message):
        parse_options(CUDAExecutionProvider, given)
