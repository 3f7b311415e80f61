"""Run template kernels on NumPy arrays in the tests of `intarsia.codegen`."""

from __future__ import annotations

import ctypes
import functools
import mmap
import re
import sys
import threading
from collections.abc import Sequence

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

from intarsia.codegen.llvm.jit import KernelText, emit_assembly, get_engine, with_parts
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.plan.argument_tables import Table
from intarsia.primitives import lang as k
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.microkernel import micro_text
from intarsia.providers.cpu.kernels.common.tiles import Tile, tile_of

THREADS = (1, 2, 3, 5)
ZERO_TAP = np.zeros(1, np.int64)
_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


@functools.cache
def host() -> Target:
    return Target.host()


def tile(dtype: DType = DType.FLOAT) -> Tile:
    return tile_of(dtype, host())


def micro(dtype: DType = DType.FLOAT) -> int:
    return address(micro_text(dtype, host()))


def address(text: KernelText) -> int:
    return get_engine(host()).load([text])[text.symbol]


def assembly(text: KernelText, target: Target) -> str:
    """A kernel's and its parts' machine code for any target; parts for R rows and V vectors are called tile_RxV."""
    code = [emit_assembly(each.ir, target) for each in with_parts((text,)).values()]
    return re.sub(r"\w+_(\d+x\d+)_[0-9a-f]{32}", r"tile_\1", "\n".join(code))


def run(text: KernelText, args: Sequence[int | Table], nthreads: int = 1) -> None:
    """Call the kernel for every thread in turn: their shares must not depend on each other."""
    call = _SIGNATURE(get_engine(host()).load([text])[text.symbol])
    block = np.array([a.array.ctypes.data if isinstance(a, Table) else a for a in args], np.int64)
    for tid in reversed(range(nthreads)):
        call(block.ctypes.data, tid, nthreads)


def run_in_pieces(text: KernelText, args: Sequence[int], nthreads: int, pieces: int, scratch: int) -> None:
    """Call the kernel for every piece of every thread, in order, as `executor.sliced_step` does: the pieces of a thread share
    its scratch memory, whose address is argument `scratch` and the bytes of a thread's part the next one."""
    for tid in reversed(range(nthreads)):
        _run_pieces(text, args, tid, nthreads, pieces, scratch)


def run_together(text: KernelText, args: Sequence[int], nthreads: int, pieces: int, scratch: int) -> None:
    """As `run_in_pieces`, each thread's pieces in a thread of their own."""
    workers = [
        threading.Thread(target=_run_pieces, args=(text, args, tid, nthreads, pieces, scratch)) for tid in range(nthreads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _run_pieces(text: KernelText, args: Sequence[int], tid: int, nthreads: int, pieces: int, scratch: int) -> None:
    call = _SIGNATURE(get_engine(host()).load([text])[text.symbol])
    for player in range(tid * pieces, (tid + 1) * pieces):
        block = np.array(args, np.int64)
        block[scratch] -= (player - tid) * block[scratch + 1]
        call(block.ctypes.data, player, nthreads * pieces)


def random(rng: np.random.Generator, *shape: int, dtype: type = np.float32) -> np.ndarray:
    """Normal numbers at the very end of a page: on Linux reading behind them ends the process."""
    return at_page_end(rng.standard_normal(shape).astype(dtype))


def at_page_end(array: np.ndarray) -> np.ndarray:
    """A copy whose last byte is followed by a page that must not be touched."""
    if sys.platform != "linux" or not array.nbytes:
        return array
    pages = -(-array.nbytes // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    whole = np.frombuffer(memory, np.uint8)
    behind = ctypes.c_void_p(whole.ctypes.data + pages * mmap.PAGESIZE)
    if ctypes.CDLL(None).mprotect(behind, ctypes.c_size_t(mmap.PAGESIZE), 0):
        return array
    end = pages * mmap.PAGESIZE
    copy: np.ndarray = whole[end - array.nbytes : end].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def guarded(shape: tuple[int, ...], dtype: type = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """An array to be written, filled with a marker, inside a larger one whose margin must keep the marker."""
    size = int(np.prod(shape))
    whole = np.full(size + 128, 77, dtype)
    return whole[64 : 64 + size].reshape(shape), whole


def check_margin(whole: np.ndarray) -> None:
    assert (whole[:64] == 77).all(), "written before the output"
    assert (whole[-64:] == 77).all(), "written behind the output"


def relu_bias(dtype: DType = DType.FLOAT) -> Epilogue:
    accumulator, bias = k.input(0, dtype, ()), k.input(1, dtype, ())
    return Epilogue(k.maximum(accumulator + bias, 0.0), ("column",), (dtype,))


def every_kind() -> Epilogue:
    """float16 of (x + column) * row + full * scalar, then an exponential: all kinds of operand, another output type."""
    x, column, row, full, scalar = (k.input(i, DType.FLOAT, ()) for i in range(5))
    value = (x + column) * row + full * scalar
    return Epilogue(
        k.cast(value / (k.exp(-value) + 1.0), DType.FLOAT16), ("column", "row", "full", "scalar"), (DType.FLOAT,) * 4
    )


def every_kind_numpy(x: np.ndarray, column: np.ndarray, row: np.ndarray, full: np.ndarray, scalar: float) -> np.ndarray:
    value = (x + column) * row + full.astype(np.float64) * scalar
    return value / (np.exp(-value) + 1)
