"""Untrusted sessions on models that mean harm: no crash, no hang or memory beyond the limits, no foreign exception, and no
wrong answer among those that run.

2,000 cases, or as many as `--hostile-cases` says, new ones from `--hostile-seed` on; what they took is printed at the end. A
case that fails is run alone by `echo "KIND SEED" | python tests/properties/hostile.py`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("hypothesis", reason="its folder's tests need hypothesis")
pytest.importorskip("resource", reason="limits of a process are POSIX's")

from case_worker import answers
from hostile import KINDS, case_of, scheduled

PROGRAM = Path(__file__).with_name("hostile.py")
SHARDS = 8


@pytest.mark.parametrize("shard", range(SHARDS))
def test_hostile_models(shard: int, request: pytest.FixtureRequest, record_property: pytest.RecordProperty) -> None:
    count, first = (request.config.getoption(f"--hostile-{what}") for what in ("cases", "seed"))
    cases = itertools.islice(scheduled(count, first), shard, None, SHARDS)
    wrong: list[str] = []
    totals: Counter[str] = Counter()
    seconds = grown = 0.0
    for _, _, answer in answers(PROGRAM, cases, lambda *case: case_of(*case).told, wrong):
        totals["ran" if answer["ran"] else "refused"] += 1
        seconds, grown = max(seconds, answer["seconds"]), max(grown, answer["grown"])
    told = f"{sum(totals.values()):,} cases, {totals['ran']:,} ran; longest {seconds:.1f} s, most memory {grown:.0f} MiB"
    record_property("hostile models", told)
    assert not wrong, f"{told}\n" + "\n".join(wrong)
    assert totals["ran"] and totals["refused"]


def test_cases_are_the_same_every_time() -> None:
    for kind in KINDS:
        assert case_of(kind, 1).model == case_of(kind, 1).model


def test_no_case_comes_twice() -> None:
    cases = list(scheduled(2000, 5))
    assert len(set(cases)) == len(cases)
    assert {kind for kind, _ in cases} == set(KINDS)
