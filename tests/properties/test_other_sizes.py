"""Operands that do not fit each other, in models that leave sizes and ranks open: the reference's result, or an error.

Every operator that has an example of some size. A case that fails is run alone by
`echo "OPERATOR NUMBER" | python tests/properties/other_sizes.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("hypothesis", reason="its folder's tests need hypothesis")

from case_worker import answers
from open_graphs import GRAPHS
from other_sizes import operators, variants

PROGRAM, OF_GRAPHS = (Path(__file__).with_name(name) for name in ("other_sizes.py", "open_graphs.py"))
SHARDS = 6
LEAST_RUN = 110  # variants in each shard whose example is run, and then with other sizes


guarded = pytest.mark.skipif(
    not sys.platform.startswith(("linux", "darwin")), reason="operands end at pages of mmap and mprotect"
)


@guarded
@pytest.mark.parametrize("shard", range(SHARDS))
def test_operands_of_other_sizes(shard: int) -> None:
    wrong: list[str] = []
    cases = [(name, number) for name in operators() for number in range(len(variants(name)))][shard::SHARDS]
    found = list(answers(PROGRAM, cases, lambda name, number: str(variants(name)[number]), wrong))
    assert not wrong, "\n".join(wrong)
    assert sum(answer["ran"] for _, _, answer in found) >= LEAST_RUN


@guarded
def test_graphs_of_operands_of_other_sizes() -> None:
    wrong: list[str] = []
    found = list(answers(OF_GRAPHS, [(name, 0) for name in GRAPHS], lambda name, _: name, wrong))
    assert not wrong, "\n".join(wrong)
    assert len(found) == len(GRAPHS)
