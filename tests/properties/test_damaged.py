"""Whole models with fields or bytes changed at random: a result or an error of Intarsia's own, on both providers, no crash.

Six changes of each model, or as many as INTARSIA_PROPERTY_EXAMPLES says. A case that fails is run alone by
`echo "MODEL SEED" | python tests/properties/damaged.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("hypothesis", reason="its folder's tests need hypothesis")

from case_worker import answers
from damaged import TEXTS, case_of
from mutations import PROVIDERS

PROGRAM = Path(__file__).with_name("damaged.py")
COUNT = int(os.environ.get("INTARSIA_PROPERTY_EXAMPLES", "0")) or 6


@pytest.mark.parametrize("name", TEXTS)
def test_damaged_models(name: str) -> None:
    wrong: list[str] = []
    for _, seed, answer in answers(
        PROGRAM, ((name, seed) for seed in range(COUNT + 1)), lambda *case: case_of(*case).told, wrong
    ):
        assert seed or answer["ran"] == list(PROVIDERS), "the model itself gives no result"
    assert not wrong, "\n".join(wrong)
