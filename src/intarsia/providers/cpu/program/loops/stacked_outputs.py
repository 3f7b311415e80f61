"""Stacked outputs of a loop: rows that trips write where they belong, in memory for all or, where nobody knows how many there
will be, for those of a batch of trips at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intarsia.errors import Fail
from intarsia.plan.array_address import address_of
from intarsia.plan.result_pool import memory
from intarsia.plan.size_constraints import too_large


class Rows:
    """A stacked output as it comes to be; `total`: how many rows there will be, where that is known."""

    def __init__(self, name: str, dtype: np.dtype[Any], total: int | None, backward: bool) -> None:
        self.name, self.dtype, self.total, self.backward = name, dtype, total, backward
        self.shape: tuple[int, ...] | None = None
        self.done = 0
        self._blocks: list[np.ndarray] = []

    def room(self, shape: tuple[int, ...], count: int) -> int:
        """The address of the next row, of `count` that are written from there on.

        Raises:
            Fail: the row has another shape than those before.
            OutOfMemory: there is no memory for the rows.
        """
        if self.shape is not None and self.shape != shape:
            raise Fail(
                f"rows of shapes {list(self.shape)} and {list(shape)} cannot be stacked into {self.name!r}: "
                "what a body gives in each iteration must have one shape"
            )
        if self.shape is None or self.total is None:
            self.shape = shape
            count = count if self.total is None else self.total
            nbytes = count * math.prod(shape) * self.dtype.itemsize
            try:
                self._blocks.append(memory.empty((count, *shape), self.dtype))
            except (MemoryError, ValueError):
                raise too_large(self.name, (count, *shape), nbytes) from None
        start = 0 if self.total is None else self.total - 1 - self.done if self.backward else self.done
        return address_of(self._blocks[-1]) + start * math.prod(shape) * self.dtype.itemsize

    def step(self, shape: tuple[int, ...]) -> int:
        """Bytes from one row to the next one that is written."""
        return math.prod(shape) * self.dtype.itemsize * (-1 if self.backward else 1)

    def written(self, count: int) -> None:
        self.done += count
        if self.total is None:
            self._blocks[-1] = self._blocks[-1][:count]

    def put(self, row: np.ndarray) -> None:
        """A row that was computed elsewhere."""
        self.room(row.shape, 1)
        at = 0 if self.total is None else self.total - 1 - self.done if self.backward else self.done
        self._blocks[-1][at] = row
        self.written(1)

    def stacked(self, empty: tuple[int, ...]) -> np.ndarray:
        """All rows; `empty`: the shape of one where there is none."""
        if not self._blocks:
            return np.empty((0, *empty), self.dtype)
        return self._blocks[0] if len(self._blocks) == 1 else np.concatenate(self._blocks)
