"""Memory of results: large arrays that callers have dropped serve the next runs.

A large block that the C library gives back to the system is made of new pages when it is requested again, each of which the
system fills with zeros: for results of some megabytes that takes longer than many kernels. Blocks of `LEAST` bytes and more
are retained instead, `MOST_RETAINED` bytes at most, and go to the next result of about their size; those that came back first
go first, and so do those that no result took while 512 others came back: what a cache that grows has outgrown.

Blocks of up to `MOST_ROOMY` bytes are powers of two, so that a result which grows from run to run, as a decoder's cache does,
goes on in the same ones. The system gives pages when they are written, so the rest of a block is no memory. Larger blocks are
of eight sizes from one power of two to the next, so that at most an eighth is not used.

Native code does this (`intarsia.runtime.spmd_leases`): a result's base is a capsule, at whose end its block comes back. Where
that does not know the interpreter, results are new memory each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from intarsia.machine.resources import ACCOUNT, fits, in_mib, memory_nbytes

LEAST = 1 << 18
MOST_RETAINED = 1 << 27
MOST_ROOMY = 1 << 25
MANY = 1 << 22  # bytes of results together; NumPy requests large pages for arrays of so much

Lend = Callable[["tuple[tuple[int, ...], np.dtype, int] | None"], "np.ndarray | int | None"]


class ResultMemory:
    """Blocks by size; any number of threads may use it.

    Attributes:
        lender: makes the native function that gives memory, for so many bytes that are retained at most, and the words in which
            it says what is retained; None where it cannot. The runtime sets it.
    """

    lender: Callable[[int], tuple[Lend, np.ndarray] | None] | None = None

    def __init__(self, most_retained: int = MOST_RETAINED) -> None:
        self.most_retained = most_retained
        self._lent: tuple[Lend, np.ndarray] | None = None

    @property
    def words(self) -> np.ndarray | None:
        """What native code knows of it; None where there is none."""
        if self._lent is None and self.lender is not None:
            self._lent = self.lender(self.most_retained)
        return None if self._lent is None else self._lent[1]

    @property
    def retained_nbytes(self) -> int:
        """Bytes that were written, of blocks that nobody has."""
        return 0 if self._lent is None else int(self._lent[1][0])

    def wants_lender(self, results: Sequence[tuple[tuple[int, ...], np.dtype]]) -> bool:
        """Whether new pages for such results in the next run take longer than to import what sets the lender. Arrays that NumPy
        has large pages for do not count."""
        sizes = (math.prod(shape) * dtype.itemsize for shape, dtype in results)
        return self.lender is None and sum(n for n in sizes if LEAST <= n < MANY) >= MANY

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """As `numpy.empty`, but always a view: programs look at `base` to see that a result was not copied. Raises MemoryError
        where there is none, or not so much in the machine."""
        nbytes = math.prod(shape) * dtype.itemsize
        if not fits(nbytes):
            raise MemoryError(f"{in_mib(nbytes)} are more than the {in_mib(memory_nbytes())} of this machine")
        if nbytes >= LEAST and not dtype.hasobject and ACCOUNT.get() is None and self.words is not None:
            assert self._lent is not None
            made = self._lent[0]((shape, dtype, nbytes))
            if isinstance(made, np.ndarray):
                return made
        return np.empty(shape, dtype)[...]

    def clear(self) -> int:
        """Free what is retained; returns its bytes."""
        freed = 0 if self._lent is None else self._lent[0](None)
        assert isinstance(freed, int)
        return freed


memory = ResultMemory()


def copied(value: np.ndarray) -> np.ndarray:
    """A row-major copy; a large one lies in memory that is used again."""
    if value.nbytes < LEAST or value.dtype.hasobject:
        return value.copy()
    copy = memory.empty(value.shape, value.dtype)
    np.copyto(copy, value)
    return copy
