"""Where buffers lie in one block of memory: those alive at the same time disjoint, others on top of each other.

Threads compute tensors by shares: of two threads one writes the first half, the other the second. Where a thread writes what
another one wrote before, as another tensor, each cache line has to be fetched from the other's core. Between
cores that share no cache this takes as long as from memory (mobilenet_v2 with two such cores: a fifth of its time). So larger
buffers lie with their middles on each other, where that costs little memory: then halves fall on halves, and of more
shares most.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

ALIGNMENT = 64
_WORTH = 16 << 10  # bytes of a buffer from which on it matters who wrote there before
_BOUNDARIES = 7  # between shares, that are looked at: of more than eight threads as of eight


def align(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class _Placed(NamedTuple):
    start: int
    end: int
    first: int
    last: int


class _Lives:
    """Buffers that were placed, found by when they live: in time by how many are found, not by how many there are."""

    def __init__(self, lifetimes: Sequence[tuple[int, int, int]]) -> None:
        self._firsts = sorted({first for _, first, _ in lifetimes})
        self._begun: list[list[_Placed]] = [[] for _ in self._firsts]  # by when they begin
        # A tree over these times, root 1, leaves behind `_leaves`: a buffer is at the few nodes that cover its life together.
        self._leaves = 1 << max(0, len(self._firsts) - 1).bit_length()
        self._covering: list[list[_Placed]] = [[] for _ in range(2 * self._leaves)]

    def add(self, placed: _Placed) -> None:
        begin, end = self._between(placed.first, placed.last)
        self._begun[begin].append(placed)
        low, high = begin + self._leaves, end + self._leaves
        while low < high:
            if low & 1:
                self._covering[low].append(placed)
                low += 1
            if high & 1:
                high -= 1
                self._covering[high].append(placed)
            low, high = low >> 1, high >> 1

    def alive(self, first: int, last: int) -> list[_Placed]:
        """Those that live at some time from `first`, at which one of `lifetimes` begins, to `last`; in order of offset."""
        begin, end = self._between(first, last)
        found, node = [], begin + self._leaves
        while node:
            found += self._covering[node]
            node >>= 1
        for begun in self._begun[begin + 1 : end]:
            found += begun
        return sorted(found)

    def _between(self, first: int, last: int) -> tuple[int, int]:
        begin = bisect_left(self._firsts, first)
        return begin, max(begin + 1, bisect_right(self._firsts, last))


def place(lifetimes: Sequence[tuple[int, int, int]], threads: int = 1) -> tuple[list[int], int]:
    """Offsets in bytes for buffers given as (nbytes, first step, last step), and the bytes needed in all.

    Largest first, each at the lowest offset where it fits between those that live when it does; with several threads at the
    offset where shares fall on shares best, as long as an eighth more memory is enough.
    """
    offsets, total = _placed(lifetimes, 1, 0)
    if threads > 1 and any(nbytes >= _WORTH for nbytes, _, _ in lifetimes):
        limit = total + align(total >> 3)
        found, more = _placed(lifetimes, threads, limit)
        if more <= limit:
            return found, more
    return offsets, total


def _placed(lifetimes: Sequence[tuple[int, int, int]], threads: int, limit: int) -> tuple[list[int], int]:
    offsets = [0] * len(lifetimes)
    placed = _Lives(lifetimes)
    spans: Counter[tuple[int, int]] = Counter()  # where buffers lie: many in the same place
    used: dict[int, list[int]] = {}  # by size, where a buffer lies among no shares of other threads: so do others of its size
    total = 0
    for i in sorted(range(len(lifetimes)), key=lambda n: -lifetimes[n][0]):
        nbytes, first, last = lifetimes[i]
        size = max(align(nbytes), ALIGNMENT)
        alive = placed.alive(first, last)
        if threads == 1 or size < _WORTH:
            at = next(_gaps(size, alive, limit))[0]
        else:
            known = used.setdefault(size, [])
            free = (at for at in known if all(p.end <= at or at + size <= p.start for p in alive))
            at = next(free, -1)
            if at < 0:
                of_alive = Counter((p.start, p.end) for p in alive)
                others = {span for span, count in spans.items() if count > of_alive[span]}
                price, at = _on_shares(size, list(_gaps(size, alive, limit)), others, threads, total, limit)
                if not price and at not in known:
                    known.append(at)
        offsets[i] = at
        placed.add(_Placed(at, at + size, first, last))
        spans[at, at + size] += 1
        total = max(total, at + size)
    return offsets, total


def _gaps(size: int, alive: Iterable[_Placed], limit: int) -> Iterator[tuple[int, int]]:
    """The lowest and the highest offset of each room for `size` bytes, up to `limit` behind the last buffer."""
    at = 0
    for start, end, _, _ in alive:
        if start - at >= size:
            yield at, start - size
        at = max(at, end)
    yield at, max(at, limit - size)


def _on_shares(
    size: int, gaps: Sequence[tuple[int, int]], used: Iterable[tuple[int, int]], threads: int, total: int, limit: int
) -> tuple[float, int]:
    """The offset for a buffer, and its price: bytes written where other threads wrote, and a quarter of what memory grows by.

    Args:
        gaps: where there is room, as `_gaps` gives it.
        used: first and last offset of all that lay or will lie there at other times.
        total, limit: bytes that are needed so far, and that may be needed in the end.
    """
    others = np.array(sorted(used), np.int64).reshape(-1, 2)
    low, high = np.array(gaps, np.int64).T
    middles = (others.sum(1, keepdims=True) - size) // (2 * ALIGNMENT) * ALIGNMENT
    at = np.unique(np.concatenate([low, np.clip(middles, low, high).ravel()]))
    more = np.maximum(at + size - total, 0) / 4 + np.maximum(at + size - limit, 0) * float(size)
    price = _of_others(at, size, others, threads) + more
    best = int(np.argmin(price))
    return float(price[best]), int(at[best])


def _of_others(at: np.ndarray, size: int, others: np.ndarray, threads: int) -> np.ndarray:
    """Bytes that threads write in the shares of other threads, for a buffer at each of some offsets: about, and at most."""
    starts, ends = others.T
    both = np.maximum(np.minimum(at[:, None] + size, ends) - np.maximum(at[:, None], starts), 0)
    shares = min(threads, _BOUNDARIES + 1)
    least = np.minimum(ends - starts, size) // shares
    distances = (at[:, None] - starts)[..., None] + (size - (ends - starts))[:, None] * (np.arange(1, shares) / shares)
    found: np.ndarray = np.minimum(np.minimum(np.abs(distances), least[:, None]).sum(2), both).sum(1)
    return found
