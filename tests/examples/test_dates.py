"""The grammar and the model of the date example."""

from __future__ import annotations

import datetime as dt
import importlib.util
import random
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import intarsia

FOLDER = Path(__file__).parents[2] / "examples" / "text"


@pytest.fixture(scope="module")
def dates() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dates", FOLDER / "dates.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_words(dates: ModuleType) -> None:
    assert [dates.number(n) for n in (0, 13, 40, 99)] == ["zero", "thirteen", "forty", "ninety-nine"]
    assert [dates.ordinal(n) for n in (1, 12, 20, 31)] == ["first", "twelfth", "twentieth", "thirty-first"]
    assert [dates.suffixed(n) for n in (1, 2, 3, 11, 13, 22, 30)] == ["1st", "2nd", "3rd", "11th", "13th", "22nd", "30th"]


def test_tokens(dates: ModuleType) -> None:
    ids = dates.encode(["1 May", "ab"])
    assert ids.shape == (2, 5)
    assert ids[1].tolist() == [2, 3, 0, 0, 0]


@pytest.mark.parametrize(("provider", "count"), [("CPUExecutionProvider", 400), ("ReferenceExecutionProvider", 20)])
def test_the_model_reads_dates_it_never_saw(dates: ModuleType, provider: str, count: int) -> None:
    session = intarsia.InferenceSession(FOLDER / "dates.onnx", providers=[provider])
    rng = random.Random(3)
    truth = [dates.random_date(rng, held_out=True) for _ in range(count)]
    (scores,) = session.run(["digits"], {"characters": dates.encode([dates.write(date, rng) for date in truth])})
    assert scores.shape == (count, 8, 10)
    right = sum(answer == date.isoformat() for (answer, _), date in zip(dates.decode(scores), truth, strict=True))
    assert right >= 0.95 * count
    (scores,) = session.run(None, {"characters": dates.encode(["the third of march, nineteen eighty-four"])})
    assert dates.decode(scores)[0][0] == dt.date(1984, 3, 3).isoformat()
    assert np.isfinite(scores).all()
