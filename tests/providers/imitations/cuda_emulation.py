"""Kernels in CUDA C, run on the processor: the text that NVRTC gets, compiled as C++ behind cuda_emulation.cpp."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.codegen.clike import Cut, Dialect, Kernel
from intarsia.codegen.clike.dialects.cuda import FUNCTIONS
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k

_SOURCE = Path(__file__).with_suffix(".cpp")
_START = "void start(void** given) { call_all(main_kernel, given); }\n"
_FLAGS = ("-std=c++17", "-O1", "-fPIC", "-w")


def missing() -> str:
    return "" if shutil.which("g++") else "no C++ compiler (g++)"


def _run(*command: object) -> None:
    subprocess.run(["g++", *_FLAGS, *map(str, command)], check=True, timeout=600)


@functools.cache
def _machine() -> tuple[tempfile.TemporaryDirectory[str], Path]:
    """The threads' part, compiled once; and the folder in which it is."""
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "machine.o"
    _run("-c", _SOURCE, "-o", path)
    return folder, path


@functools.cache
def _compiled(source: str) -> Any:
    _, machine = _machine()
    for function in FUNCTIONS:
        source = source.replace(function, "")
    source = source.replace("extern __shared__ float4 dynamic_memory[];", "")
    text = f'#include "{_SOURCE.with_suffix(".h")}"\n{source}{_START}'
    path = machine.with_name(hashlib.sha256(text.encode()).hexdigest()[:16])
    path.with_suffix(".cpp").write_text(text, encoding="utf-8")
    _run("-shared", f"{path}.cpp", machine, "-o", f"{path}.so")
    return ctypes.CDLL(f"{path}.so").run_kernel


def run(source: str, arguments: Sequence[Any], groups: tuple[int, int, int], threads: int) -> None:
    """A launch as a driver gets it: addresses and sizes."""
    pointers = (ctypes.c_void_p * len(arguments))(
        *(a if isinstance(a, int) else ctypes.addressof(a) for a in arguments)
    )  # fmt: skip
    _compiled(source)(pointers, (ctypes.c_int * 3)(*groups), threads, 0, 0)


def launch(kernel: Kernel, arrays: Sequence[np.ndarray], backwards: bool = False, eager: bool = False) -> None:
    """Run a kernel on its operands and outputs (C-contiguous).

    `backwards`: threads take their turns from the last one on. `eager`: asynchronous copies take place at once, not when they
    are waited for.
    """
    given = [*arrays]
    given += [np.array([n], np.int32) for n in kernel.sizes]
    if kernel.checked:
        given.append(np.zeros(1, np.uint32))
    pointers = (ctypes.c_void_p * len(given))(*(a.ctypes.data for a in given))
    _compiled(kernel.source)(pointers, (ctypes.c_int * 3)(*kernel.groups), kernel.threads, int(backwards), int(eager))


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy at a multiple of 256 bytes, as devices give memory."""
    room = np.empty(array.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 256
    made = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def computed(
    dialect: Dialect, root: k.Tensor, operands: Mapping[str, np.ndarray], backwards: bool = False, eager: bool = False
) -> tuple[np.ndarray, list[str]]:
    """The value of a graph over `input(name)`, and the schedules of its kernels."""
    cut = Cut(dialect)
    for name, array in operands.items():
        cut.stored[name] = (DType.of(array.dtype), array.shape)
    cut.store(cut.settle(root), "y")
    values = {n: aligned(a) for n, a in {**operands, **cut.tables}.items()}
    for name, (dtype, shape) in cut.stored.items():
        if name not in values:
            values[name] = aligned(
                np.frombuffer(b"\xff" * int(np.prod(shape)) * dtype.numpy.itemsize, dtype.numpy).reshape(shape)
            )
    for job in cut.jobs:
        launch(job.kernel, [values[n] for n in (*job.reads, *job.writes)], backwards, eager)
    return values["y"], [job.schedule for job in cut.jobs]
