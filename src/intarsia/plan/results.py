"""Memory of results: large arrays that callers have dropped serve the next runs.

A large block that the C library gives back to the system is made of new pages when it is asked for again, each of which the
system fills with zeros: for results of some megabytes that takes longer than many kernels. Blocks of `LEAST` bytes and more are
kept here instead, `MOST_KEPT` bytes at most, and go to the next result of about their size.

Blocks of up to `MOST_ROOMY` bytes are powers of two, so that a result which grows from run to run, as a decoder's cache does,
goes on in the same ones. The system gives pages when they are written, so the rest of a block is no memory.
"""

from __future__ import annotations

import math
import threading
from itertools import count

import numpy as np

from intarsia.plan.address import address_of

LEAST = 1 << 18
MOST_KEPT = 1 << 27
MOST_ROOMY = 1 << 25
_LINE = 64
_STEPS = 8  # sizes of larger blocks from one power of two to the next: at most an eighth of a block is not used


class _Block(np.ndarray):
    """Memory that is used again and again. A type of its own: NumPy lets a view refer to the array behind its own where
    that has the view's type, and a result must refer to its lease."""

    written_nbytes = 0  # at most, by the results that it held
    number: int  # of all blocks that came back, which it was
    free: list[_Block]  # blocks of its size that nobody has


class _Lease(np.ndarray):
    """The memory of one result while an array of it lives; gives it back at its end."""

    def __del__(self) -> None:
        block = self.base
        if type(block) is _Block and _give_back is not None:  # not so where the interpreter ends
            _give_back(block)


class ResultMemory:
    """Blocks by size; any number of threads may use it."""

    def __init__(self, most_kept: int = MOST_KEPT) -> None:
        self.most_kept = most_kept
        self.kept_nbytes = 0
        self._free: dict[int, list[_Block]] = {}  # by size; those that came first are first
        self._numbers = count()
        self._lock = threading.RLock()  # a block may come back while the lock is held: the collector runs anywhere

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """As `numpy.empty`, but always a view: programs look at `base` to see that a result was not copied. Raises MemoryError
        where there is none."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < LEAST or dtype.hasobject:
            return np.empty(shape, dtype)[...]
        size = block_nbytes(nbytes)
        block = None
        with self._lock:
            free = self._free.get(size)
            if free is None:
                free = self._free[size] = []
            elif free:
                block = free.pop()
                self.kept_nbytes -= block.written_nbytes
        if block is None:
            block = self._made(size)
            block.free = free
        block.written_nbytes = max(block.written_nbytes, nbytes)
        result: np.ndarray = np.ndarray(shape, dtype, block.view(_Lease))
        return result

    def clear(self) -> int:
        """Free what is kept; returns its bytes."""
        with self._lock:
            freed, self.kept_nbytes = self.kept_nbytes, 0
            for free in self._free.values():
                free.clear()
        return freed

    def give_back(self, block: _Block) -> None:
        """Keep a block for later, instead of those that came first where they are too many."""
        nbytes = block.written_nbytes
        if nbytes > self.most_kept:
            return
        with self._lock:
            block.number = next(self._numbers)
            block.free.append(block)
            self.kept_nbytes += nbytes
            while self.kept_nbytes > self.most_kept:
                oldest = min((free for free in self._free.values() if free), key=lambda free: free[0].number)
                self.kept_nbytes -= oldest.pop(0).written_nbytes

    def _made(self, size: int) -> _Block:
        try:
            return _new_block(size)
        except MemoryError:
            if not self.clear():
                raise
            return _new_block(size)


def _new_block(nbytes: int) -> _Block:
    """New memory that begins with a line of the cache, so that no vector lies in two: blocks of the C library begin 16 bytes
    behind one."""
    raw = np.empty(nbytes + _LINE, np.uint8)
    start = -address_of(raw) % _LINE
    return raw[start : start + nbytes].view(_Block)


def block_nbytes(nbytes: int) -> int:
    """The size of the block for so many bytes: a power of two, where it is large some eighths of one more."""
    whole = 1 << (nbytes - 1).bit_length()
    if whole <= MOST_ROOMY:
        return whole
    step = whole // (2 * _STEPS)
    return -(-nbytes // step) * step


memory = ResultMemory()
_give_back = memory.give_back


def copied(value: np.ndarray) -> np.ndarray:
    """A row-major copy; a large one lies in memory that is used again."""
    if value.nbytes < LEAST or value.dtype.hasobject:
        return value.copy()
    copy = memory.empty(value.shape, value.dtype)
    np.copyto(copy, value)
    return copy
