"""What is said of nodes that changed examples found to fail otherwise (see mutations.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drawn_nodes import Drawn, model_of

import intarsia as ort
from intarsia.errors import IntarsiaError

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
X, WORDS = np.ones((4, 6), np.float32), np.array(["a b", "c"], object)
IMAGE, ONE = np.ones((1, 2, 5, 5), np.float32), np.zeros(1, np.int64)
GRAMS: dict[str, Any] = {
    "max_gram_length": 2**40, "max_skip_count": 2**40, "min_gram_length": 1, "mode": "TF", "ngram_counts": [0, 2],
    "ngram_indexes": [0, 1, 2], "pool_int64s": [1, 2, 3, 4],
}  # fmt: skip
CASES: list[tuple[str, list[Any], dict[str, Any], int, str]] = [
    ("And", [X > 0, X > 0, X > 0], {}, 1, "takes at most 2 inputs, got 3"),
    ("Mean", [None, X], {}, 1, "input 0 is left out; expected a value"),
    ("Split", [X, np.array([1, 1, 2])], {"axis": 0}, 2, "3 parts for 2 outputs: split must have a size for each output"),
    ("Split", [X], {"num_outputs": 2**40}, 2, "num_outputs is 1099511627776; the node has 2 outputs"),
    ("StringSplit", [X], {}, 2, "is float; expected string"),
    ("StringConcat", [WORDS, X], {}, 1, "is float; expected string"),
    ("RegexFullMatch", [X], {"pattern": "a"}, 1, "is float; expected string"),
    ("TfIdfVectorizer", [ONE], GRAMS | {"ngram_indexes": [0, -1, 2]}, 1, "3 ngram_indexes from -1 on; expected one"),
    ("TfIdfVectorizer", [ONE], GRAMS | {"ngram_counts": [0, 9]}, 1, r"ngram_counts is \[0, 9\]; expected ascending starts"),
    ("RoiAlign", [IMAGE, np.ones((1, 4), np.float32), ONE], {"sampling_ratio": 2**62}, 1, "expected at most 16384"),
    (
        "RoiAlign", [IMAGE, np.array([[0, 0, 1e30, 1e30]], np.float32), ONE], {}, 1,
        "bins need more than 16384 samples along an axis",
    ),
]  # fmt: skip


def run(provider: str, op: str, inputs: list[Any], attributes: dict[str, Any], outputs: int) -> list[Any]:
    model = model_of(Drawn(op, inputs, attributes, static=True), [np.float32] * outputs)
    session = ort.InferenceSession(model.SerializeToString(), providers=[provider])
    return session.run(None, {f"x{i}": x for i, x in enumerate(inputs) if x is not None})


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("case", range(len(CASES)), ids=[c[0] for c in CASES])
def test_what_is_said(case: int, provider: str) -> None:
    op, inputs, attributes, outputs, message = CASES[case]
    with pytest.raises(IntarsiaError, match=message):
        run(provider, op, inputs, attributes, outputs)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_neighbourhoods_larger_than_the_tensor(provider: str) -> None:
    """LRN over more channels than there are, and n-grams longer than the row: nothing beyond the edge counts."""
    (found,) = run(provider, "LRN", [IMAGE], {"size": 2**40 + 1, "alpha": 2.0**40, "beta": 1.0}, 1)
    np.testing.assert_allclose(found, IMAGE / 3, rtol=1e-5)
    (counts,) = run(provider, "TfIdfVectorizer", [np.array([1, 2, 3, 4])], GRAMS, 1)
    assert counts.tolist() == [1.0, 1.0, 1.0]
