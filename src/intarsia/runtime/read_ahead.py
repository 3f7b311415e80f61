"""Weights in a mapped file are fetched by a thread of its own while a session's first run begins.

A session that begins from the cache has read none of its weights: its first run would stop at every page of them that it
meets for the first time, and wait for the disk where the page is not in memory. The thread goes through the file ahead of the
run, in the order of the steps, and through nothing that a run would not read: not the rows of a table that data choose, nor
what stands behind a condition. It ends with the file, or with the last of the arrays in it.

Linux 5.14 and later has a call that maps pages as well. Elsewhere the system is told to read them from the disk, and the
thread is not needed; where it cannot be told (Windows), nothing is done. Pages of 2 MiB are requested, too: file systems
that keep such (ext4 since Linux 6.16, XFS, tmpfs) map them as one. Tables of which data choose the rows keep small
pages, since each row would bring a large one.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import sys
import threading
import weakref
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from intarsia.graph.formats.mapped_arrays import file_under
from intarsia.plan.array_address import address_of

KEY = "session.read_ahead"
_POPULATE_READ = 22  # of Linux 5.14, whatever the processor; Python does not name it
_PIECE_NBYTES = 32 << 20  # between two looks at whether anybody still has the weights
_LEAST_NBYTES = 4 << 20  # less is read in less time than a thread takes to begin
_MANY_NBYTES = 64 << 20  # less that is in memory is mapped by the run in less time than a thread takes from it
_SAMPLE_NBYTES = 2 << 20  # in each of which one page is looked for
_GAP_NBYTES = 4096  # what lies between two arrays is read with them up to this


class Spans(NamedTuple):
    """Bytes of a block as (start, end), in order: those that every run reads, and those of which data choose some."""

    whole: tuple[tuple[int, int], ...]
    scattered: tuple[tuple[int, int], ...]


def joined(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Spans in order, neighbours as one."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start - found[-1][1] <= _GAP_NBYTES:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return tuple(found)


def begin(block: np.ndarray, spans: Spans) -> threading.Thread | None:
    """Begin to fetch the `spans` of a block, uint8 [nbytes], if it lies in a mapped file; the thread, if there is one."""
    call = _madvise()
    if call is None or file_under(block) is None:
        return None
    address = address_of(block)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        _advise(call, address, (0, block.nbytes), mmap.MADV_HUGEPAGE)
        for span in spans.scattered:
            _advise(call, address, span, mmap.MADV_NOHUGEPAGE)
            _advise(call, address, span, mmap.MADV_RANDOM)
    nbytes = sum(end - start for start, end in spans.whole)
    if nbytes < _LEAST_NBYTES or (nbytes < _MANY_NBYTES and _are_in_memory(address, spans.whole)):
        return None
    thread = threading.Thread(target=_fetch, args=(call, weakref.ref(block), spans.whole), name="intarsia-read", daemon=True)
    thread.start()
    return thread


def _fetch(call: Any, weights: weakref.ref[np.ndarray], spans: tuple[tuple[int, int], ...]) -> None:
    advice = _POPULATE_READ if sys.platform == "linux" else mmap.MADV_WILLNEED
    for start, end in spans:
        for at in range(start, end, _PIECE_NBYTES):
            block = weights()  # so that it stays mapped meanwhile
            if block is None:
                return
            error = _advise(call, address_of(block), (at, min(at + _PIECE_NBYTES, end)), advice)
            if error == errno.EINVAL and advice == _POPULATE_READ:
                advice = mmap.MADV_WILLNEED
            elif error:
                return  # what is wrong with the file the run will meet
            del block


def _advise(call: Any, address: int, span: tuple[int, int], advice: int) -> int:
    """Tell the system about the pages of a span; returns the error's number, 0 for none."""
    start = (address + span[0]) // mmap.PAGESIZE * mmap.PAGESIZE
    return ctypes.get_errno() if call(start, address + span[1] - start, advice) else 0


def _are_in_memory(address: int, spans: tuple[tuple[int, int], ...]) -> bool:
    """Whether the system has the pages of spans in memory, as far as samples say."""
    found, look = ctypes.c_ubyte(), ctypes.CDLL(None).mincore
    look.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    for start, end in spans:
        for at in range(address + start, address + end, _SAMPLE_NBYTES):
            if look(at // mmap.PAGESIZE * mmap.PAGESIZE, 1, ctypes.byref(found)) or not found.value & 1:
                return False
    return True


@cache
def _madvise() -> Any:
    """The system's function, which is called without the interpreter's lock; None where there is none."""
    if not hasattr(mmap, "MADV_WILLNEED"):
        return None
    function = ctypes.CDLL(None, use_errno=True).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function
