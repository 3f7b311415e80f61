"""Arenas: how they grow, who shares them, and what they say of it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from intarsia.ep.arena import NEXT_POWER_OF_TWO, NOTHING, RETAINED_NBYTES, SAME_AS_REQUESTED, Arena, Lease
from intarsia.errors import OutOfMemory

MIB = 1 << 20


class Holder:
    def __init__(self, nbytes: int = MIB, purpose: str = "x [1]") -> None:
        self.block_nbytes, self.purpose, self.idle = nbytes, purpose, list[Lease]()
        self.busy: list[Lease] = []

    @property
    def blocks(self) -> int:
        return len(self.idle) + len(self.busy)

    def strip(self) -> int:
        freed = sum(lease.nbytes for lease in self.idle)
        self.idle.clear()
        return freed


def test_leases_are_aligned_and_apart() -> None:
    arena, holder = Arena(), Holder()
    leases = [arena.lease(holder, n) for n in (1, 64, 100, 3 * MIB, 5)]
    spans = sorted((lease.address, lease.address + lease.nbytes) for lease in leases)
    assert all(start % 64 == 0 for start, _ in spans)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert arena.lease(holder, 0) is NOTHING


def test_growing_by_powers_of_two() -> None:
    arena, holder = Arena(strategy=NEXT_POWER_OF_TWO), Holder()
    kept = [arena.lease(holder, 700_000)]
    assert arena.held() == MIB
    kept.append(arena.lease(holder, 300_000))
    assert arena.held() == MIB
    kept.append(arena.lease(holder, 300_000))
    assert arena.held() == 3 * MIB
    kept.append(arena.lease(holder, 5 * MIB))
    assert arena.held() == 11 * MIB
    found = arena.statistics()
    assert (found.extensions, found.leases, found.largest_nbytes) == (3, 4, 5 * MIB)
    assert (found.peak_in_use_nbytes, found.peak_reserved_nbytes) == (found.in_use_nbytes, 11 * MIB)


def test_growing_by_what_is_asked_for() -> None:
    arena, holder = Arena(strategy=SAME_AS_REQUESTED), Holder()
    kept = [arena.lease(holder, n * 64) for n in (10, 20, 30)]
    assert arena.held() == 60 * 64
    del kept[1]
    kept.append(arena.lease(holder, 5 * 64))
    kept.append(arena.lease(holder, 15 * 64))
    assert arena.held() == 60 * 64


def test_spans_join_again() -> None:
    arena, holder = Arena(strategy=NEXT_POWER_OF_TWO), Holder()
    leases = [arena.lease(holder, MIB // 8) for _ in range(8)]
    rng = np.random.default_rng(0)
    for i in rng.permutation(8):
        leases[i] = NOTHING
    assert arena.lease(holder, MIB).nbytes == MIB
    assert arena.statistics().extensions == 1
    assert arena.trim() == MIB
    assert (arena.held(), arena.statistics().shrinkages) == (0, 1)


def test_a_limit_with_a_strategy_is_kept_and_used_up() -> None:
    arena, holder = Arena(3 * MIB, "the limit", NEXT_POWER_OF_TWO), Holder()
    kept = [arena.lease(holder, 2 * MIB - 64)]
    kept.append(arena.lease(holder, MIB))
    assert arena.held() <= 3 * MIB
    with pytest.raises(OutOfMemory, match=r"for x \[1\] need 1.00 MiB, and the limit allows 3.00 MiB in all"):
        arena.lease(holder, MIB)
    kept.clear()
    assert arena.lease(holder, 3 * MIB).nbytes == 3 * MIB


def test_the_limit_says_who_holds_what() -> None:
    arena = Arena(10 * MIB, "the limit")
    busy, small, new = Holder(4 * MIB, "x [1]"), Holder(MIB, "x [2]"), Holder(3 * MIB, "x [3]")
    busy.busy = [arena.lease(busy, 4 * MIB) for _ in range(2)]
    small.busy = [arena.lease(small, MIB)]
    message = r"for x \[3\] need 3.00 MiB.*9.00 MiB are held by runs that are going on: 2 x 4.00 MiB for x \[1\]; 1 x 1.00 MiB"
    with pytest.raises(OutOfMemory, match=message):
        arena.lease(new, 3 * MIB)
    busy.idle.append(busy.busy.pop())
    assert arena.lease(new, 3 * MIB).nbytes == 3 * MIB
    assert arena.held() == 8 * MIB


def test_idle_memory_is_used_again_before_the_arena_grows_far() -> None:
    arena = Arena()
    one, two = Holder(), Holder()
    one.idle.append(arena.lease(one, RETAINED_NBYTES // 2))
    two.idle.append(arena.lease(two, RETAINED_NBYTES // 4))
    assert (len(one.idle), len(two.idle)) == (1, 1)
    lease = arena.lease(two, RETAINED_NBYTES)
    assert (one.idle, two.idle, lease.nbytes) == ([], [], RETAINED_NBYTES)
    assert arena.statistics().extensions == 2, "there was room where the idle ones were"


def test_what_the_system_does_not_give() -> None:
    with pytest.raises(OutOfMemory, match=r"which the system does not give: it has [\d,]+ MiB; use a smaller batch"):
        Arena().lease(Holder(), 1 << 60)


def test_nothing_is_kept_where_that_is_asked_for() -> None:
    arena, holder = Arena(keep=False), Holder()
    lease: Lease | None = arena.lease(holder, MIB)
    assert lease is not None
    assert arena.held() == MIB
    lease = None
    assert arena.held() == 0
