"""Placement of buffers: nothing that lives at the same time overlaps."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intarsia.plan.arena import ALIGNMENT, align, place

LIFETIME = st.tuples(st.integers(0, 3000), st.integers(0, 12), st.integers(0, 6)).map(lambda t: (t[0], t[1], t[1] + t[2]))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(LIFETIME, max_size=24))
def test_live_buffers_do_not_overlap(lifetimes: list[tuple[int, int, int]]) -> None:
    offsets, total = place(lifetimes)
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


@pytest.mark.parametrize(("nbytes", "aligned"), [(0, 0), (1, 64), (64, 64), (65, 128)])
def test_alignment(nbytes: int, aligned: int) -> None:
    assert align(nbytes) == aligned
