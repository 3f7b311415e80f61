"""Every operator given what it cannot take: a result or an error of Intarsia's own, on both providers; never a crash.

Three changes of each operator's example, or as many as INTARSIA_PROPERTY_EXAMPLES says. A case that fails is run alone by
`echo "OPERATOR SEED" | python tests/properties/mutations.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("hypothesis", reason="its folder's tests need hypothesis")

from case_worker import answers
from mutations import PROVIDERS, case_of, examples, operators

PROGRAM = Path(__file__).with_name("mutations.py")
COUNT = int(os.environ.get("INTARSIA_PROPERTY_EXAMPLES", "0")) or 3
SHARDS = 4
# Gradient is of a graph around it; the others' examples say how they run, with decoders that are none.
SEARCHES = ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch")
NO_RESULT = ("ai.onnx.preview.training::Gradient", *(f"com.microsoft::{n}" for n in SEARCHES))
WRITTEN = {line.partition("|")[0].strip() for line in examples().values() if "float[2,3]; float[2,3]" not in line}


@pytest.mark.parametrize("shard", range(SHARDS))
def test_changed_examples(shard: int) -> None:
    wrong: list[str] = []
    cases = ((operator, seed) for operator in operators()[shard::SHARDS] for seed in range(COUNT + 1))
    for operator, seed, answer in answers(PROGRAM, cases, lambda *case: case_of(*case).told, wrong):
        if not seed and operator in WRITTEN and operator not in NO_RESULT and set(answer["ran"]) != set(PROVIDERS):
            wrong.append(f"{operator}: its example gives results only on {answer['ran']}")
    assert not wrong, "\n".join(wrong)


def test_cases_are_the_same_every_time() -> None:
    first, again = (case_of("Gather", 3) for _ in range(2))
    assert (first.model, first.told) == (again.model, again.told)
    assert case_of("Gather", 4).model != first.model
