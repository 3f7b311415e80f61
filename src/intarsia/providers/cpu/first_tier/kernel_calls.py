"""Calls of the first tier's kernels, on arrays: sizes are checked by who calls, and memory is counted here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.plan.argument_tables import Table
from intarsia.plan.array_address import address_of
from intarsia.plan.step import Argument
from intarsia.primitives.interpreter import most_nbytes, require_memory
from intarsia.runtime.executor import Pool

ALIGNMENT = 64
HOLES = tuple(-(1 << 62) - i for i in range(4))  # words that no argument is: addresses that are not known yet

# A node's function by kernels: its operands to its results, or None where the reference's definition has to compute them.
Fast = Callable[[Sequence[Any]], list[np.ndarray] | None]


class KernelCalls:
    """The kernels at their addresses, and the threads that run them.

    Attributes:
        target: the CPU that they were made for.
        threads: how many run a call.
        packed: constants that functions made so far have packed, and read no more.
        looked_up: constants of which functions read some rows in their file.
        may_look_up: whether there may be such: not where the session stays with the first tier, whose model's file may change.
        spare: values that nobody reads but the node whose function is being made, and nobody else holds: its result may take
            their place.
        alone: values that nobody reads but that node.
    """

    def __init__(self, addresses: dict[str, int], pool: Pool, target: Target) -> None:
        self.addresses, self.target = addresses, target
        self.use_pool(pool)
        self.packed: set[str] = set()
        self.looked_up: set[str] = set()
        self.may_look_up = False
        self.spare: set[str] = set()
        self.alone: set[str] = set()

    def use_pool(self, pool: Pool) -> None:
        """Run calls on these threads from now on: at most as many as when functions were made."""
        self.pool, self.threads = pool, pool.num_threads

    def __contains__(self, name: str) -> bool:
        return name in self.addresses

    def __call__(self, name: str, arguments: Sequence[Argument], *, serial: bool = False) -> None:
        """Run a kernel on addresses, numbers and tables, which become arrays that live as long as the call."""
        block, _ = self._block(name, arguments, serial)
        self._run(block)

    def prepared(self, name: str, arguments: Sequence[Argument]) -> Callable[..., None]:
        """A kernel's call whose addresses come later: `arguments` has `HOLES[i]` once for the i-th of them."""
        template, tables = self._block(name, arguments, False)
        words = template.tolist()
        places = [words.index(hole) for hole in HOLES if hole in words]

        def call(*addresses: int, tables: object = tables) -> None:  # which live as long as this function
            block = template.copy()
            for place, address in zip(places, addresses, strict=True):
                block[place] = address
            self._run(block)

        return call

    def _block(self, name: str, arguments: Sequence[Argument], serial: bool) -> tuple[np.ndarray, list[np.ndarray]]:
        """A table of one step with its arguments behind it, and the arrays whose addresses are among these."""
        tables = [argument.array for argument in arguments if isinstance(argument, Table)]
        places = iter(tables)
        words = [address_of(next(places)) if isinstance(a, Table) else a for a in arguments]
        return np.array([self.addresses[name], 0, int(serial), 0, *words], np.int64), tables

    def _run(self, block: np.ndarray) -> None:
        start = address_of(block)
        block[1] = start + 32
        self.pool.run(start, 1)


def new(shape: Sequence[int], dtype: np.dtype | type = np.float32) -> np.ndarray:
    """An array for a result. Raises MemoryError where it is larger than a session may have."""
    require_memory(shape, np.dtype(dtype).itemsize, most_nbytes())
    return np.empty(shape, dtype)


def lies_channels_last(x: np.ndarray) -> bool:
    """Whether [N, C, *spatial] lies in memory as [N, *spatial, C], and not as it says."""
    return x.ndim > 2 and not x.flags.c_contiguous and bool(np.moveaxis(x, 1, -1).flags.c_contiguous)


def like(x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """An array of another shape of as many axes that lies in memory as `x` does. Raises MemoryError as `new`."""
    if lies_channels_last(x):
        return np.moveaxis(new((shape[0], *shape[2:], shape[1]), x.dtype), -1, 1)
    return new(shape, x.dtype)


def aligned(nbytes: int) -> np.ndarray:
    """Bytes that begin at a multiple of a cache line: packed weights."""
    room = new((nbytes + ALIGNMENT,), np.uint8)
    start = -address_of(room) % ALIGNMENT
    return room[start : start + nbytes]


def claims() -> np.ndarray:
    """What the threads of one call of a product share."""
    return np.zeros(1, np.int64)


def is_float32(*arrays: object) -> bool:
    """Whether all are arrays of float32 with elements."""
    return all(isinstance(a, np.ndarray) and a.dtype == np.float32 and a.size > 0 for a in arrays)
