"""Any assignment of any graph to providers gives parts that can run one after another."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.partition.grouping import Unit, schedule

GRAPHS = st.integers(0, 14).flatmap(
    lambda n: st.tuples(
        st.tuples(*(st.sets(st.integers(0, max(i - 1, 0))).map(lambda s, i=i: {x for x in s if x < i}) for i in range(n))),
        st.tuples(*(st.integers(0, 2) for _ in range(n))),
        st.tuples(*(st.booleans() for _ in range(n))),
    )
)


@settings(max_examples=200, deadline=None)
@given(GRAPHS)
def test_parts_cover_every_unit_once_in_a_valid_order(case) -> None:
    needs, providers, whole = case
    units = [Unit((i,), p, w) for i, (p, w) in enumerate(zip(providers, whole, strict=True))]
    parts = schedule(units, needs)
    assert parts is not None
    assert sorted(u for part in parts for u in part) == list(range(len(units)))
    done: set[int] = set()
    for part in parts:
        assert len({units[u].provider for u in part}) == 1
        assert len(part) == 1 or not any(units[u].whole for u in part)
        for u in part:
            assert needs[u] <= done | set(part)
        done |= set(part)


@settings(max_examples=50, deadline=None)
@given(GRAPHS)
def test_one_provider_makes_one_part(case) -> None:
    needs, _, _ = case
    parts = schedule([Unit((i,), 0) for i in range(len(needs))], needs)
    assert parts is not None
    assert len(parts) == bool(needs)


def test_units_that_wait_for_each_other() -> None:
    assert schedule([Unit((0, 2), 0, True), Unit((1,), 1)], [set(), {0}, {1}]) is None


def test_the_first_provider_is_chosen_for_the_fewest_parts() -> None:
    """Beginning with provider 0 would make four parts: 0, 1, 0 and 1."""
    units = [Unit((0,), 0), Unit((1,), 1), Unit((2,), 0), Unit((3,), 0)]
    parts = schedule(units, [set(), set(), {1}, {2, 0}])
    assert parts == [[1], [0, 2, 3]]
