"""Machine code from CUDA C by NVRTC. Needs neither a driver nor a GPU.

Code for one architecture (a cubin), not PTX: a driver that is older than the compiler refuses the compiler's PTX.
"""

from __future__ import annotations

import functools
from typing import Any

from intarsia.cache.disk_cache import cached, content_key
from intarsia.errors import EPFail

INSTALL = "pip install 'intarsia[cuda]'"


@functools.cache
def missing() -> str:
    """What is missing to compile; "" where nothing is."""
    try:
        from cuda.bindings import nvrtc
    except ImportError:
        return f"the package cuda-bindings is not installed: {INSTALL}"
    try:
        nvrtc.nvrtcVersion()
    except Exception as error:  # noqa: BLE001 - the package raises errors of its own where the library is not found
        return f"NVRTC is not found ({error}): {INSTALL}"
    return ""


@functools.cache
def architectures() -> tuple[int, ...]:
    """Compute capabilities that this NVRTC compiles for, as 10 * major + minor, in order."""
    from cuda.bindings import nvrtc

    return tuple(sorted(_checked(nvrtc.nvrtcGetSupportedArchs())))


@functools.cache
def version() -> str:
    from cuda.bindings import nvrtc

    major, minor = _checked(nvrtc.nvrtcVersion())
    return f"{major}.{minor}"


def compiled(source: str, architecture: int) -> bytes:
    """The cubin of a text, from the cache where it was compiled before.

    Raises:
        EPFail: the compiler refuses the text; the message has its log.
    """
    return cached("cubin-" + content_key(source, str(architecture), version()), lambda: _compiled(source, architecture)[0])


def reported(source: str, architecture: int) -> tuple[bytes, str]:
    """The cubin with the lines of the text in it, and what the assembler says of registers, spills and shared memory.

    Raises:
        EPFail: as `compiled`.
    """
    return _compiled(source, architecture, (b"--ptxas-options=-v", b"-lineinfo"))


def _compiled(source: str, architecture: int, besides: tuple[bytes, ...] = ()) -> tuple[bytes, str]:
    """Machine code and log."""
    from cuda.bindings import nvrtc

    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
    try:
        options = [f"--gpu-architecture=sm_{architecture}".encode(), *besides]
        error, *_ = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
        nvrtc.nvrtcGetProgramLog(program, log)
        text = log.decode(errors="replace")
        if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise EPFail(f"NVRTC refuses a kernel for sm_{architecture}: {text}\n{source}")
        code = bytearray(_checked(nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc.nvrtcGetCUBIN(program, code))
        return bytes(code), text
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _checked(result: tuple[Any, ...]) -> Any:
    error, *values = result
    if int(error):
        raise EPFail(f"NVRTC: {error}")
    return values[0] if len(values) == 1 else tuple(values)
