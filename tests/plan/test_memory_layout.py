"""Placement of buffers: nothing that lives at the same time overlaps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intarsia.plan.memory_layout import ALIGNMENT, _Lives, _Placed, align, place


def opcodes(call: Callable[[], object]) -> int:
    """How many instructions of Python a call takes: its work, whatever else the machine does."""
    count = 0

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("nbytes", [4096, 1 << 20])
def test_a_chain_is_placed_in_time_by_its_length(threads: int, nbytes: int) -> None:
    def work(count: int) -> int:
        chain = [(nbytes, i, i + 1) for i in range(count)]
        return opcodes(lambda: place(chain, threads))

    few, many = work(500), work(2000)
    assert many < 5.5 * few  # by the length, and a logarithm


def alive_one_by_one(placed: list[_Placed], first: int, last: int) -> list[_Placed]:
    return sorted(p for p in placed if p.first <= last and first <= p.last)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40), st.integers(0, 20)), max_size=60))
def test_those_alive_are_found(drawn: list[tuple[int, int, int]]) -> None:
    lifetimes = [(n, first, first + more) for n, first, more in drawn]
    lives, placed = _Lives(lifetimes), list[_Placed]()
    for n, first, last in lifetimes:
        assert lives.alive(first, last) == alive_one_by_one(placed, first, last)
        one = _Placed(n, n + 64, first, last)
        lives.add(one)
        placed.append(one)


LIFETIME = st.tuples(st.integers(0, 3000), st.integers(0, 12), st.integers(0, 6)).map(lambda t: (t[0], t[1], t[1] + t[2]))
THREADS = st.sampled_from([1, 2, 3, 8, 64])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(LIFETIME, max_size=24), st.sampled_from([1, 40]), THREADS)
def test_live_buffers_do_not_overlap(lifetimes: list[tuple[int, int, int]], scale: int, threads: int) -> None:
    lifetimes = [(n * scale, *life) for n, *life in lifetimes]
    offsets, total = place(lifetimes, threads)
    spans = [(at, at + max(align(n), ALIGNMENT), first, last) for at, (n, first, last) in zip(offsets, lifetimes, strict=True)]
    assert all(at % ALIGNMENT == 0 for at in offsets)
    assert total == max((end for _, end, _, _ in spans), default=0)
    for i, (a, a_end, a_first, a_last) in enumerate(spans):
        for b, b_end, b_first, b_last in spans[:i]:
            apart = a_last < b_first or b_last < a_first
            assert apart or a_end <= b or b_end <= a


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=12))
def test_a_chain_needs_two_neighbours_at_a_time(sizes: list[int]) -> None:
    """Each buffer lives for its own step and the next: at least the largest pair, at most twice that."""
    _, total = place([(n, i, i + 1) for i, n in enumerate(sizes)])
    least = max(align(a) + align(b) for a, b in zip([*sizes, 0], [0, *sizes], strict=True))
    assert least <= total <= 2 * least


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(LIFETIME, max_size=24), THREADS)
def test_several_threads_take_an_eighth_more_memory_at_most(lifetimes: list[tuple[int, int, int]], threads: int) -> None:
    lifetimes = [(40 * n, *life) for n, *life in lifetimes]
    _, least = place(lifetimes)
    _, total = place(lifetimes, threads)
    assert total <= least + align(least >> 3)


def foreign(lifetimes: Sequence[tuple[int, int, int]], offsets: Sequence[int], threads: int) -> int:
    """Bytes that a thread writes where another thread wrote last, each computing its share of a buffer."""
    owners = np.full(max(at + n for at, (n, _, _) in zip(offsets, lifetimes, strict=True)), -1, np.int8)
    found = 0
    for i in sorted(range(len(lifetimes)), key=lambda i: lifetimes[i][1]):
        nbytes = lifetimes[i][0]
        place_of = slice(offsets[i], offsets[i] + nbytes)
        writers = np.arange(nbytes) * threads // nbytes
        found += int(((owners[place_of] >= 0) & (owners[place_of] != writers)).sum())
        owners[place_of] = writers
    return found


def test_halves_lie_on_halves() -> None:
    sizes = [400_000, 1_200_000, 1_200_000, 300_032, 600_000, 600_000, 150_016, 320_000]
    chain = [(n, i, i + 1) for i, n in enumerate(sizes)]
    plain, least = place(chain)
    offsets, total = place(chain, 2)
    assert foreign(chain, plain, 2) > 500_000
    assert foreign(chain, offsets, 2) < 1000  # sizes are cut to whole cache lines
    assert total <= least + align(least >> 3)


def test_more_shares_fall_on_each_other_mostly() -> None:
    chain = [(n, i, i + 1) for i, n in enumerate([800_000, 1_200_000, 1_000_000, 600_000] * 3)]
    plain, _ = place(chain)
    offsets, _ = place(chain, 4)
    assert foreign(chain, offsets, 4) < 0.6 * foreign(chain, plain, 4)


def test_small_buffers_lie_as_with_one_thread() -> None:
    chain = [(n, i, i + 1) for i, n in enumerate([4000, 12_000, 7000, 16_000])]
    assert place(chain, 2) == place(chain)


@pytest.mark.parametrize(("nbytes", "aligned"), [(0, 0), (1, 64), (64, 64), (65, 128)])
def test_alignment(nbytes: int, aligned: int) -> None:
    assert align(nbytes) == aligned
