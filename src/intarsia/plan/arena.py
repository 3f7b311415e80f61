"""Where buffers lie in one block of memory: those alive at the same time apart, others on top of each other."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

ALIGNMENT = 64


def align(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def place(lifetimes: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """Offsets in bytes for buffers given as (nbytes, first step, last step), and the bytes needed in all.

    Largest first, each at the lowest offset where it fits between those that live when it does.
    """
    offsets = [0] * len(lifetimes)
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last; in order of offset
    total = 0
    for i in sorted(range(len(lifetimes)), key=lambda n: -lifetimes[n][0]):
        nbytes, first, last = lifetimes[i]
        size = max(align(nbytes), ALIGNMENT)
        at = 0
        for start, end, begin, finish in placed:
            if begin <= last and first <= finish:
                if start - at >= size:
                    break
                at = max(at, end)
        offsets[i] = at
        insort(placed, (at, at + size, first, last))
        total = max(total, at + size)
    return offsets, total
