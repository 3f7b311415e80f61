"""ROCm: kernels are compiled for real GPUs without one, by clang and, where it is there, by hiprtc. For the driver's side see
test_streams."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import offline_hip
import pytest
from fake_hip import FakeHip

import intarsia
from intarsia.codegen.clike import Cut, Hip
from intarsia.device import hip, hiprtc, rocm_libraries
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k

NAME = "ROCMExecutionProvider"
offline = pytest.mark.skipif(bool(offline_hip.missing()), reason=f"HIP C cannot be compiled: {offline_hip.missing()}")
with_rocm = pytest.mark.skipif(
    rocm_libraries.place("amdhip64") is None, reason="no ROCm (Debian, for its compiler: libamdhip64-5, libhiprtc-builtins5)"
)


@pytest.fixture
def no_rocm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Libraries that no machine has."""
    monkeypatch.setattr(rocm_libraries, "_VERSIONS", (".of-no-machine",))
    monkeypatch.setattr(rocm_libraries, "KERNEL_DRIVER", tmp_path / "kfd")
    monkeypatch.setenv("ROCM_PATH", "/nowhere/rocm")
    for cached in (rocm_libraries.library, hip.missing, hiprtc.hiprtc):
        cached.cache_clear()
    yield
    for cached in (rocm_libraries.library, hip.missing, hiprtc.hiprtc):
        cached.cache_clear()


def printed(root: k.Tensor) -> list[str]:
    cut = Cut(Hip())
    cut.store(cut.settle(root), "y")
    return [job.kernel.source for job in cut.jobs]


def schedules() -> list[k.Tensor]:
    """One of each, and types of all kinds."""
    x, n = k.input("x", DType.FLOAT, (70, 100)), k.input("n", DType.INT64, (7,))
    exps = k.exp(x - k.reduce_max(x, [1], True))
    q, key, value = (k.input(name, DType.FLOAT, (8, 1100, 8)) for name in ("q", "k", "v"))
    scores = k.dot(q, k.transpose(key, (0, 2, 1)))  # 38 MB: they are never in memory
    powers = k.exp(scores - k.reduce_max(scores, [2], True))
    return [
        k.dot(powers / k.reduce_sum(powers, [2], True), value),
        k.erf(x) + 1.0, exps / k.reduce_sum(exps, [1], True), k.dot(k.input("a", DType.FLOAT, (5, 70)), x), k.scan(x, "sum", 1),
        k.sort(x, 1)[0], k.take(x, n, 0), k.cast(x, DType.FLOAT16), k.cast(k.input("h", DType.BFLOAT16, (9,)), DType.DOUBLE),
        k.exp(k.input("d", DType.DOUBLE, (9,))) / 3.0, k.pad(x, (1, 0), (0, 2), float("inf")), n * 3,
    ]  # fmt: skip


def architecture_in(code: bytes) -> int:
    """The number of the architecture in a code object's ELF header (e_flags, EF_AMDGPU_MACH); e_machine is EM_AMDGPU."""
    assert code[:4] == b"\x7fELF"
    (machine,) = struct.unpack_from("<H", code, 18)
    (flags,) = struct.unpack_from("<I", code, 48)
    assert machine == 224
    return int(flags & 0xFF)


@offline
@pytest.mark.parametrize(("architecture", "number"), [("gfx90a", 0x3F), ("gfx942", 0x4C), ("gfx1100", 0x41)])
def test_every_schedule_is_compiled_to_machine_code(architecture: str, number: int) -> None:
    for root in schedules():
        for source in printed(root):
            code = offline_hip.compiled(source, architecture)
            assert architecture_in(code) == number
            assert b"main_kernel.kd" in code


REAL = """
import sys
sys.path[:0] = {folders!r}
from test_rocm import architecture_in, printed, schedules
from fake_hip import FakeHip
import intarsia
from intarsia.device import hip, hiprtc
lib = hip.runtime()
for name in vars(FakeHip):
    if name.startswith("hip") and name != "hipGetDevicePropertiesR0600":  # which is ROCm 6's
        assert hasattr(lib, name), name
for root in schedules():
    for source in printed(root):
        assert architecture_in(hiprtc.compiled(source, "gfx90a")) == 0x3F
try:
    hiprtc.compiled("this is broken", "gfx90a")
except intarsia.EPFail as error:
    print(error)
"""


@with_rocm
def test_rocm_for_real() -> None:
    """In a process of its own: ROCm's LLVM and another driver's in one process end it."""
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "imitations")]
    done = subprocess.run([sys.executable, "-c", REAL.format(folders=folders)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "hiprtc refuses a kernel for gfx90a: " in done.stdout
    assert "this is broken" in done.stdout


def test_what_is_missing_is_named_with_where_was_looked(no_rocm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/some/where")
    message = (
        r"ROCMExecutionProvider cannot be used on this machine: libamdhip64.so.of-no-machine .* is found neither by the loader "
        r"\(LD_LIBRARY_PATH is '/some/where'\) nor in /nowhere/rocm/lib, /opt/rocm/lib.*: install AMD's ROCm, version 6"
    )
    with pytest.raises(intarsia.EPFail, match=message):
        intarsia.InferenceSession(b"", providers=[NAME])
    assert NAME not in intarsia.get_available_providers()
    rocm_libraries.KERNEL_DRIVER.touch()
    hip.missing.cache_clear()
    with pytest.raises(intarsia.EPFail, match=message):  # now by trying to load it
        intarsia.InferenceSession(b"", providers=[NAME])
    assert NAME in intarsia.get_all_providers()


def test_a_library_that_does_not_load_is_named(
    no_rocm: None, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("rocm")
    (folder / "lib").mkdir()
    broken = folder / "lib" / "libamdhip64.so.of-no-machine"
    broken.write_bytes(b"no library")
    monkeypatch.setenv("ROCM_PATH", str(folder))
    assert hip.missing().startswith(
        f"{broken} is there, and {rocm_libraries.KERNEL_DRIVER} is not: no AMD GPU, or amdgpu does not"
    )
    with pytest.raises(intarsia.EPFail, match=rf"{broken} does not load: .*(invalid ELF header|file too short)"):
        rocm_libraries.library("amdhip64")


def test_the_architecture_is_found_wherever_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeHip()
    monkeypatch.setattr(hip, "runtime", lambda: machine)
    assert hip.architecture_of(0) == "gfx90a:sramecc+:xnack-"
    machine.architecture = b"gfx1100"
    assert hip.architecture_of(0) == "gfx1100"
    machine.architecture = b"none"
    with pytest.raises(intarsia.EPFail, match="the properties of rocm:0 name no architecture: install ROCm 5 or later"):
        hip.architecture_of(0)


def test_a_runtime_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeHip()
    monkeypatch.setattr(hip, "runtime", lambda: machine)
    monkeypatch.setattr(rocm_libraries, "KERNEL_DRIVER", Path("/"))
    machine.failures["hipInit"] = 1
    hip.missing.cache_clear()
    try:
        assert hip.missing() == "ROCm's runtime does not start: hipErrorInvalidValue"
        hip.missing.cache_clear()
        machine.failures["hipGetDeviceCount"] = 100
        assert hip.missing().startswith("ROCm's runtime finds no GPU: check that amdgpu drives it")
    finally:
        hip.missing.cache_clear()


def test_addresses_are_no_c_ints() -> None:
    """ctypes passes a bare int as 32 bits: the imitation refuses what a real call would cut."""
    with pytest.raises(AssertionError, match="would be passed as a C int"):
        FakeHip().hipFree(1 << 40)
    assert ctypes.sizeof(ctypes.c_void_p) == 8
