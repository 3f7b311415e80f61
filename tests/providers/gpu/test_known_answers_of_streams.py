"""The known-answer test on imitated drivers of CUDA and ROCm, whose kernels compute on the processor, or wrongly, or not."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cuda_emulation
import pytest
from stream_kinds import CODE, Kind, stream_gpu  # noqa: F401 - a fixture

import intarsia
from intarsia.device import hiprtc, known_answers, nvrtc


@pytest.fixture(autouse=True)
def _asks(gpu: Kind, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The device has to answer; what is compiled for it holds its text."""
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv(known_answers.VARIABLE, "always")
    monkeypatch.setattr(known_answers, "_answered", {})
    compiler = nvrtc if gpu.kind == "cuda" else hiprtc
    monkeypatch.setattr(compiler, "compiled", lambda source, architecture: CODE + b"\0" + source.encode())


Compute = Callable[[str, list[Any], tuple[int, int, int], int], None]


@pytest.fixture
def _computes(gpu: Kind) -> None:
    if gpu.kind == "rocm":
        pytest.skip("kernels in HIP C are computed nowhere here")
    if why := cuda_emulation.missing():
        pytest.skip(why)


computes = pytest.mark.usefixtures("_computes")


def refusal(gpu: Kind) -> str:
    with pytest.raises(intarsia.EPFail) as caught:
        gpu.session()
    return str(caught.value)


@computes
def test_kernels_that_compute_pass(gpu: Kind) -> None:
    gpu.machine.compute = cuda_emulation.run
    assert gpu.open().counters.launches == 0  # as if nothing had been asked
    gpu.session()


def test_kernels_that_write_nothing(gpu: Kind) -> None:
    unwritten = "1,000 of 1,000 elements are wrong, which the device has not written"
    wrong = f"arithmetic of float32: {unwritten}; arithmetic of int32: {unwritten}"
    assert f"is refused, since it failed its known-answer test: {wrong}." in refusal(gpu)


def changes(wrong: Callable[[int], None]) -> Compute:
    """Computes, and then does this with the address of the result, which is the last pointer."""

    def compute(source: str, given: list[Any], groups: tuple[int, int, int], threads: int) -> None:
        cuda_emulation.run(source, given, groups, threads)
        wrong([a for a in given if isinstance(a, int)][-1])

    return compute


@computes
def test_one_wrong_element(gpu: Kind) -> None:
    def spoilt(address: int) -> None:
        ctypes.c_uint32.from_address(address).value ^= 1 << 22

    gpu.machine.compute = changes(spoilt)
    assert "arithmetic of float32: 1 of 1,000 elements are wrong; element 0 is " in refusal(gpu)


@computes
def test_kernels_that_fail_late(gpu: Kind) -> None:
    """The driver takes all launches and then says that one of them has ended the context."""
    launches = 0

    def compute(source: str, given: list[Any], groups: tuple[int, int, int], threads: int) -> None:
        nonlocal launches
        launches += 1
        cuda_emulation.run(source, given, groups, threads)
        if launches == 3:
            gpu.machine.failures[gpu.lost[0]] = gpu.lost[1]

    gpu.machine.compute = compute
    message = refusal(gpu)
    assert f"it did not come through its known-answer test: {gpu.kind}:0 failed in a kernel or copy: {gpu.lost[2]}" in message


def test_a_launch_that_is_not_taken(gpu: Kind) -> None:
    gpu.machine.failures[gpu.launch] = gpu.failure
    why = f"{gpu.kind}:0 could not start a kernel of the known-answer test"
    assert f"it did not come through its known-answer test: {why}" in refusal(gpu)


def test_no_memory_is_no_wrong_answer(gpu: Kind) -> None:
    gpu.machine.memory_nbytes = 0
    with pytest.raises(intarsia.OutOfMemory, match="a buffer of 8,192 bytes for values was requested"):
        gpu.open()
