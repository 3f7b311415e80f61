"""Machine code of AMD's GPUs from HIP C by hiprtc, ROCm's compiler library. Needs no GPU."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from intarsia.cache.disk_cache import cached, content_key
from intarsia.device.rocm_libraries import library
from intarsia.errors import EPFail


@functools.cache
def hiprtc() -> Any:
    """The library with hiprtc's functions; before ROCm 6 they are in HIP's runtime too."""
    try:
        return library("hiprtc")
    except EPFail:
        found = library("amdhip64")
        if not hasattr(found, "hiprtcCompileProgram"):
            raise
        return found


def missing() -> str:
    """What is missing to compile; "" where nothing is."""
    try:
        hiprtc()
    except EPFail as error:
        return str(error)
    return ""


@functools.cache
def version() -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(hiprtc().hiprtcVersion(ctypes.byref(major), ctypes.byref(minor)), "does not tell its version")
    return f"{major.value}.{minor.value}"


def compiled(source: str, architecture: str) -> bytes:
    """The code object of a text for an architecture ("gfx90a", "gfx942:sramecc+:xnack-"), from the cache where it was compiled
    before.

    Raises:
        EPFail: the compiler refuses the text or does not know the architecture; the message has its log.
    """
    return cached("hsaco-" + content_key(source, architecture, version()), lambda: _compiled(source, architecture))


def _compiled(source: str, architecture: str) -> bytes:
    lib, program = hiprtc(), ctypes.c_void_p()
    created = lib.hiprtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.hip", 0, None, None)
    _check(created, "takes no text")
    try:
        options = (ctypes.c_char_p * 2)(f"--offload-arch={architecture}".encode(), b"-O3")
        if lib.hiprtcCompileProgram(program, len(options), options):
            log = _bytes(lib.hiprtcGetProgramLogSize, lib.hiprtcGetProgramLog, program).rstrip(b"\0").decode(errors="replace")
            raise EPFail(f"hiprtc refuses a kernel for {architecture}: {log}\n{source}")
        return _bytes(lib.hiprtcGetCodeSize, lib.hiprtcGetCode, program)
    finally:
        lib.hiprtcDestroyProgram(ctypes.byref(program))


def _bytes(size: Any, content: Any, program: ctypes.c_void_p) -> bytes:
    nbytes = ctypes.c_size_t()
    _check(size(program, ctypes.byref(nbytes)), "gives no result")
    found = ctypes.create_string_buffer(nbytes.value)
    _check(content(program, found), "gives no result")
    return found.raw


def _check(error: int, what: str) -> None:
    if error:
        raise EPFail(f"hiprtc {what}: error {error}")
