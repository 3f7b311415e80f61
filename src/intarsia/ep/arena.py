"""The memory of intermediate tensors: regions that are taken from the system, and spans of them that runs lease.

A session has one arena, or shares one of the process (`create_and_register_allocator`). It grows by a strategy, never above
its limit, and before it grows beyond `RETAINED_NBYTES` it uses again what idle holders lease.
"""

from __future__ import annotations

import weakref
from bisect import insort
from collections import deque
from contextlib import nullcontext
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from intarsia.errors import OutOfMemory
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.machine.resources import fits, in_mib, refused

if TYPE_CHECKING:
    from intarsia.machine.resources import Account

ALIGNMENT = 64
LARGE_PAGE = 2 << 20  # NumPy requests such pages from 4 MiB on, and what lies before the first one is touched in small ones
RETAINED_NBYTES = 64 << 20  # below this, holders keep what they lease while they are idle
NEXT_POWER_OF_TWO, SAME_AS_REQUESTED = "kNextPowerOfTwo", "kSameAsRequested"
STRATEGIES = (NEXT_POWER_OF_TWO, SAME_AS_REQUESTED)
FIRST_NBYTES = 1 << 20
MOST_EXTENSION_NBYTES = 1 << 30

_MIB = 1 << 20
_SHOWN = 8


class Holder(Protocol):
    """Something that leases spans of one size: those in use, and idle ones."""

    @property
    def block_nbytes(self) -> int: ...

    @property
    def blocks(self) -> int:
        """How many it leases."""

    @property
    def purpose(self) -> str:
        """What they are for, for people."""

    def strip(self) -> int:
        """Give back the spans that are idle; returns bytes."""


@dataclass
class Region:
    """Memory of the system in one piece; `free` are spans (offset, nbytes) that nobody leases, in order and never adjacent."""

    raw: np.ndarray
    base: int
    nbytes: int
    free: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, nbytes: int) -> Region:
        alignment = LARGE_PAGE if nbytes >= 2 * LARGE_PAGE else ALIGNMENT
        raw = np.empty(nbytes + alignment, np.uint8)
        address = int(raw.ctypes.data)
        return cls(raw, address + -address % alignment, nbytes, [(0, nbytes)])

    @property
    def unused(self) -> bool:
        return len(self.free) == 1 and self.free[0][1] == self.nbytes

    def take(self, index: int, nbytes: int) -> int:
        """The offset of `nbytes` out of free span number `index`."""
        offset, have = self.free[index]
        if have == nbytes:
            del self.free[index]
        else:
            self.free[index] = (offset + nbytes, have - nbytes)
        return offset

    def put_back(self, offset: int, nbytes: int) -> None:
        insort(self.free, (offset, nbytes))
        joined: list[tuple[int, int]] = []
        for start, length in self.free:
            if joined and sum(joined[-1]) == start:
                joined[-1] = (joined[-1][0], joined[-1][1] + length)
            else:
                joined.append((start, length))
        self.free = joined


class Lease:
    """A span of memory; it goes back to its arena when the last reference to it is gone."""

    __slots__ = ("_region", "_returned", "_start", "address", "nbytes")

    def __init__(self, region: Region | None, start: int, nbytes: int, returned: deque[tuple[Region, int, int]]) -> None:
        self._region, self._start, self.nbytes, self._returned = region, start, nbytes, returned
        self.address = region.base + start if region is not None else 0

    def __del__(self) -> None:
        if self._region is not None:
            self._returned.append((self._region, self._start, self.nbytes))  # no lock: a collector may be at work in one


NOTHING = Lease(None, 0, 0, deque())


@dataclass(frozen=True)
class ArenaStatistics:
    """Of one arena, in bytes: what is leased and reserved now and at most, and how often what was done."""

    limit_nbytes: int
    strategy: str
    in_use_nbytes: int
    reserved_nbytes: int
    peak_in_use_nbytes: int
    peak_reserved_nbytes: int
    largest_nbytes: int
    leases: int
    extensions: int
    shrinkages: int


class Arena:
    """Regions of host memory, and who leases spans of them.

    Args:
        limit: bytes that regions may have in all; 0: as much as the system gives.
        setting: what the user set the limit with, for messages.
        strategy: how it grows: "kNextPowerOfTwo": by a power of two, at least twice as much each time; "kSameAsRequested": by
            what is requested. None: the first, or the second where there is a limit.
        first_nbytes, most_nbytes: what it grows by at first, and at most unless more is requested, by powers of two.
        keep: False: regions go back to the system as soon as nobody leases a span of them.

    With a limit and no strategy a region serves leases of its own size only, so that all of the limit can be used.
    """

    account: Account | None = None  # what else the limit is for

    def __init__(
        self, limit: int = 0, setting: str = "", strategy: str | None = None, first_nbytes: int = FIRST_NBYTES,
        most_nbytes: int = MOST_EXTENSION_NBYTES, *, keep: bool = True,
    ) -> None:  # fmt: skip
        self.limit, self.setting, self.keep = limit, setting, keep
        self.strategy = strategy or (SAME_AS_REQUESTED if limit or not keep else NEXT_POWER_OF_TWO)
        self._exact = strategy is None and bool(limit)
        self._next, self._most = max(ALIGNMENT, first_nbytes), most_nbytes
        self._regions: list[Region] = []
        self._returned: deque[tuple[Region, int, int]] = deque()
        self._holders: weakref.WeakSet[Holder] = weakref.WeakSet()
        self._lock = fork_safety.recursive_lock()
        self._in_use = self._peak_in_use = self._peak_reserved = self._largest = 0
        self._leases = self._extensions = self._shrinkages = 0

    def lease(self, holder: Holder, nbytes: int) -> Lease:
        """`nbytes` of memory, aligned to 64 bytes, its contents undefined.

        Raises:
            OutOfMemory: the limit does not allow it, or the system has no more; says who holds what.
        """
        if not nbytes:
            return NOTHING
        nbytes = -(-nbytes // ALIGNMENT) * ALIGNMENT
        with self._lock:
            self._holders.add(holder)
            self._settle()
            found = self._fitting(nbytes)
            if found is None:
                found = self._made_room(holder, nbytes)
            region, index = found
            start = region.take(index, nbytes)
            self._in_use += nbytes
            self._leases += 1
            self._peak_in_use = max(self._peak_in_use, self._in_use)
            self._largest = max(self._largest, nbytes)
            return Lease(region, start, nbytes, self._returned)

    def trim(self) -> int:
        """Give the system back what nobody leases; returns bytes."""
        with self._lock:
            self._settle()
            return self._drop_unused()

    def held(self) -> int:
        """Bytes of all regions."""
        with self._lock:
            self._settle()
            return self._reserved()

    def statistics(self) -> ArenaStatistics:
        with self._lock:
            self._settle()
            return ArenaStatistics(
                self.limit, self.strategy, self._in_use, self._reserved(), self._peak_in_use, self._peak_reserved,
                self._largest, self._leases, self._extensions, self._shrinkages,
            )  # fmt: skip

    def _settle(self) -> None:
        """Take back what leases have returned."""
        came = bool(self._returned)
        while self._returned:
            region, start, nbytes = self._returned.popleft()
            region.put_back(start, nbytes)
            self._in_use -= nbytes
        if came and not self.keep:
            self._drop_unused()

    def _fitting(self, nbytes: int) -> tuple[Region, int] | None:
        """The smallest free span that is large enough."""
        spans = (
            (have, number, i)
            for number, region in enumerate(self._regions)
            if not self._exact or region.nbytes == nbytes
            for i, (_, have) in enumerate(region.free)
            if have >= nbytes
        )
        best = min(spans, default=None)
        return None if best is None else (self._regions[best[1]], best[2])

    def _made_room(self, holder: Holder, nbytes: int) -> tuple[Region, int]:
        """A new region's span, or one that idle holders gave back where growing is not wanted."""
        reserved, others = self._reserved(), self.account.held if self.account is not None else 0
        if reserved + nbytes > RETAINED_NBYTES or (self.limit and reserved + others + nbytes > self.limit):
            for other in list(self._holders):
                other.strip()
            self._settle()
            found = self._fitting(nbytes)
            if found is not None:
                return found
            self._drop_unused()
        if self.limit and self._reserved() + others + nbytes > self.limit:
            raise OutOfMemory(self._message(holder, nbytes, others))
        return self._extend(nbytes, others), 0

    def _extend(self, nbytes: int, others: int) -> Region:
        """A new region; `others`: bytes that the limit counts beside the arena."""
        size = nbytes
        if self.strategy == NEXT_POWER_OF_TWO:
            size = max(1 << (nbytes - 1).bit_length() if nbytes <= self._most else nbytes, min(self._next, self._most))
            if (self.limit and self._reserved() + others + size > self.limit) or not fits(self._reserved() + size):
                size = nbytes
        try:
            if not fits(self._reserved() + size):
                raise MemoryError
            with self.account.uncounted() if self.account is not None else nullcontext():
                region = Region.of(size)
        except (MemoryError, ValueError):
            raise OutOfMemory(
                f"the intermediate tensors of a run need {in_mib(nbytes)}, {refused(self._reserved() + nbytes)}"
            ) from None
        self._next = min(2 * max(size, self._next), self._most)
        self._regions.append(region)
        self._tell_account()
        self._extensions += 1
        self._peak_reserved = max(self._peak_reserved, self._reserved())
        return region

    def _drop_unused(self) -> int:
        freed = sum(region.nbytes for region in self._regions if region.unused)
        self._shrinkages += sum(region.unused for region in self._regions)
        self._regions = [region for region in self._regions if not region.unused]
        self._tell_account()
        return freed

    def _tell_account(self) -> None:
        if self.account is not None:
            self.account.set_arena(self._reserved())

    def give_back(self) -> int:
        """Give the system back what holders do not use; returns bytes."""
        with self._lock:
            for holder in list(self._holders):
                holder.strip()
            self._settle()
            return self._drop_unused()

    def _reserved(self) -> int:
        return sum(region.nbytes for region in self._regions)

    def _message(self, holder: Holder, nbytes: int, others: int) -> str:
        owners = sorted((h for h in self._holders if h.blocks and h.block_nbytes), key=lambda h: -h.block_nbytes * h.blocks)
        lines = [f"{h.blocks} x {_mib(h.block_nbytes)} for {h.purpose}" for h in owners[:_SHOWN]]
        more = [f"{len(owners) - _SHOWN} others"] if len(owners) > _SHOWN else []
        held = (
            f"{_mib(self._reserved())} are held by runs that are going on: {'; '.join([*lines, *more])}"
            if lines
            else "none is held"
        )
        held += f", and {_mib(others)} by other values" if others else ""
        return (
            f"the intermediate tensors of a run for {holder.purpose} need {_mib(nbytes)}, and {self.setting} "
            f"allows {_mib(self.limit)} in all, of which {held}. Use a smaller batch or a shorter input, fewer runs at "
            "the same time, or a higher limit; session.memory_report(shapes) says what a run needs"
        )


def _mib(nbytes: int) -> str:
    return f"{nbytes / _MIB:,.2f} MiB"
