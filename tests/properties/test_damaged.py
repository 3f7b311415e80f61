"""Whole models with fields or bytes changed at random: a result or an error of Intarsia's own, on both providers, no crash.

Six changes of each model, or as many as INTARSIA_PROPERTY_EXAMPLES says. A case that fails is run alone by
`echo "MODEL SEED" | python tests/properties/damaged.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("hypothesis", reason="its folder's tests need hypothesis")

from case_worker import Worker
from damaged import TEXTS, case_of
from mutations import PROVIDERS

PROGRAM = Path(__file__).with_name("damaged.py")
COUNT = int(os.environ.get("INTARSIA_PROPERTY_EXAMPLES", "0")) or 6


@pytest.mark.parametrize("name", TEXTS)
def test_damaged_models(name: str) -> None:
    wrong, worker = [], Worker(PROGRAM)
    try:
        for seed in range(COUNT + 1):
            answer = worker.ask(name, seed)
            if isinstance(answer, str):
                wrong.append(f"{name} {seed} ({case_of(name, seed).told}): {answer}")
                worker.close()
                worker = Worker(PROGRAM)
                continue
            wrong += [f"{name} {seed} ({answer['told']}): {what}" for what in answer["found"]]
            assert seed or answer["ran"] == list(PROVIDERS), "the model itself gives no result"
    finally:
        worker.close()
    assert not wrong, "\n".join(wrong)
