"""Compiled programs whose constants, intermediate tensors and scratch memory all lie at pages without access.

Inside `guarded_programs()` a program copies its constants, packed weights included, into memory of exactly their size, and the
arena has no two tensors side by side:

    tensor | no access | ...tensor | no access | ..scratch of a step | no access

so that a step that reads or writes beside one of its operands ends the process. Sizes are bound exactly then. With
`apart=False` the arena's layout and the native binding of later sizes are the product's own, and a page without access
follows the arena as a whole.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
from guarded_memory import END, guarded, guarded_copy

from intarsia.ep.arena import NOTHING, Arena, Lease, Region
from intarsia.plan import segment as segments
from intarsia.plan.bound_segment import BoundSegment
from intarsia.plan.segment import Segment
from intarsia.providers.cpu.executable import Executable
from intarsia.providers.cpu.program.cpu_program import CpuProgram

PAGE = mmap.PAGESIZE


class Apart(int):
    """The bytes of an arena in which no two buffers touch; `holes` are its pages without access: (offset, nbytes)."""

    holes: tuple[tuple[int, int], ...] = ()


def place_apart(lifetimes: Sequence[tuple[int, int, int]], threads: int = 1) -> tuple[list[int], int]:
    """As `intarsia.plan.memory_layout.place`: each buffer ends where a page without access begins."""
    offsets, holes, at = [], [], 0
    for nbytes, _, _ in lifetimes:
        at += -(-nbytes // PAGE) * PAGE
        offsets.append(at - nbytes)
        holes.append((at, PAGE))
        at += PAGE
    total = Apart(at)
    total.holes = tuple(holes)
    return offsets, total


def _lease(arena: Arena, holder: object, nbytes: int) -> Lease:
    if not nbytes:
        return NOTHING
    with guarded(END):
        raw = np.empty(int(nbytes), np.uint8)
    address = int(raw.ctypes.data)
    for offset, length in getattr(nbytes, "holes", ()):
        if _mprotect()(address + offset, length, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    return Lease(Region(raw, address, int(nbytes), []), 0, int(nbytes), deque())


@functools.cache
def _mprotect() -> Any:
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


def _guard_constants(executable: Executable) -> None:
    known: dict[int, np.ndarray] = {}

    def copied(arrays: Mapping[str, Any]) -> dict[str, Any]:
        return {n: _copied(a, known) if isinstance(a, np.ndarray) else a for n, a in arrays.items()}

    for inner in executable.nested():
        inner.constants = copied(inner.constants)
        for segment in inner.segments():
            segment.constants = copied(segment.constants)


def _copied(array: np.ndarray, known: dict[int, np.ndarray]) -> np.ndarray:
    if array.dtype.hasobject:
        return array
    if id(array) not in known:
        known[id(array)] = guarded_copy(np.ascontiguousarray(array).reshape(array.shape), END)
    return known[id(array)]


@contextmanager
def guarded_programs(apart: bool = True, seen: Callable[[CpuProgram], object] | None = None) -> Iterator[None]:
    """Programs that are compiled and bound inside are guarded. `seen` is called with each of them."""
    make = CpuProgram.__init__

    def init(program: CpuProgram, executable: Executable, *given: Any, **named: Any) -> None:
        _guard_constants(executable)
        make(program, executable, *given, **named)
        if seen is not None:
            seen(program)

    def bind(segment: Segment, env: Mapping[str, int], threads: int) -> BoundSegment:
        return segment.bind_exactly(env, threads)

    with mock.patch.multiple(CpuProgram, __init__=init), mock.patch.object(Arena, "lease", _lease):
        if not apart:
            yield
            return
        with mock.patch.object(segments, "place", place_apart), mock.patch.object(Segment, "bind", bind):
            yield
