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
HIDDEN, WIDE = np.ones((1, 3, 4), np.float32), np.ones((4, 12), np.float32)
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
    ("TfIdfVectorizer", [ONE], GRAMS | {"ngram_counts": [0, 3]}, 1, "1 elements of n-grams of length 2; expected a multiple"),
    ("TfIdfVectorizer", [ONE], GRAMS | {"pool_int64s": [2, 2, 3, 4]}, 1, r"the n-gram \[2\] is twice in the pool; expected it"),
    (
        "TfIdfVectorizer", [ONE], GRAMS | {"pool_int64s": [1, 2, 1], "ngram_counts": [0], "ngram_indexes": [0, 1]}, 1,
        r"the n-gram \[1\] is twice in the pool; expected it once",
    ),
    ("TfIdfVectorizer", [ONE], GRAMS | {"mode": "BM25"}, 1, "mode is 'BM25'; expected TF, IDF or TFIDF"),
    ("TfIdfVectorizer", [ONE], {n: v for n, v in GRAMS.items() if n != "pool_int64s"}, 1, "needs pool_strings or pool_int64s"),
    ("TfIdfVectorizer", [ONE], GRAMS | {"weights": [1.0]}, 1, "1 weights; expected one for each of 3 ngram_indexes, or none"),
    ("TfIdfVectorizer", [ONE], GRAMS | {"weights": [1.0] * 4}, 1, "4 weights; expected one for each of 3 ngram_indexes"),
    ("TfIdfVectorizer", [ONE], GRAMS | {"min_gram_length": 0}, 1, "min_gram_length is 0, max_gram_length 1099511627776; exp"),
    ("TfIdfVectorizer", [ONE], GRAMS | {"max_gram_length": 0}, 1, "min_gram_length is 1, max_gram_length 0; expected a short"),
    ("TfIdfVectorizer", [ONE], GRAMS | {"max_skip_count": -1}, 1, "max_skip_count is -1; expected at least 0"),
    ("RoiAlign", [IMAGE, np.ones((1, 4), np.float32), ONE], {"sampling_ratio": 2**62}, 1, "expected at most 16384"),
    ("RoiAlign", [IMAGE, np.ones((1, 4), np.float32), ONE], {"output_height": -1}, 1, "output_height is -1, output"),
    ("GatherND", [X, np.zeros((4, 1), np.int64)], {"batch_dims": -1}, 1, "batch_dims is -1; expected 0 to 1 for indices"),
    ("GatherND", [X, np.zeros((4, 1), np.int64)], {"batch_dims": -(2**40)}, 1, "batch_dims is -1099511627776; expected 0 to 1"),
    ("GatherND", [X, np.zeros((3, 1), np.int64)], {"batch_dims": 1}, 1, "axis 0 of indices and data, one of batch_dims"),
    ("Conv", [IMAGE, np.ones((1, 2, 3, 3), np.float32)], {"pads": [2**62, 1, 1, 1]}, 1, r"too big|needs 2\^[67]\d bytes"),
    (
        "com.microsoft::Attention", [HIDDEN, WIDE, WIDE[0]], {"num_heads": 2, "qkv_hidden_sizes": [4, 4]}, 1,
        r"qkv_hidden_sizes is \[4, 4\]; expected three sizes of at least 1",
    ),
    (
        "com.microsoft::GroupQueryAttention", [*[HIDDEN] * 3, None, None, np.zeros(1, np.int32), np.array(3, np.int32)],
        {"num_heads": 2, "kv_num_heads": 0}, 1, "attribute 'kv_num_heads' is 0; expected a number of at least 1",
    ),
    (
        "com.microsoft::BifurcationDetector", [np.arange(6), np.arange(4), np.array(0)], {"min_ngram_size": -1}, 1,
        "min_ngram_size is -1, max_ngram_size 3; expected a shortest suffix of at least 1 token",
    ),
    (
        "DeformConv", [IMAGE, np.ones((1, 2, 2, 2), np.float32), np.zeros((1, 8, 4, 4), np.float32)], {"offset_group": 0}, 1,
        "attribute 'offset_group' is 0; expected a number of at least 1",
    ),
    (
        "RoiAlign", [IMAGE, np.array([[0, 0, 1e30, 1e30]], np.float32), ONE], {}, 1,
        "bins need more than 16384 samples along an axis",
    ),
]  # fmt: skip


def run(provider: str, op: str, inputs: list[Any], attributes: dict[str, Any], outputs: int) -> list[Any]:
    kind = np.int32 if op == "ConvInteger" else np.float32
    domain, _, name = op.rpartition("::")
    model = model_of(Drawn(name, inputs, attributes, static=True, domain=domain), [kind] * outputs)
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


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool", "Conv", "ConvInteger"])
def test_one_window_with_a_stride_of_any_size(op: str, provider: str) -> None:
    weights = np.ones((1, 2, 3, 3), np.float32)
    whole, image = op == "ConvInteger", np.arange(50.0, dtype=np.float32).reshape(1, 2, 5, 5)
    inputs = [image, weights] if op.startswith("Conv") else [image]
    inputs = [x.astype(np.uint8) for x in inputs] if whole else inputs
    attributes = {"kernel_shape": [3, 3]}
    first, same = (run(provider, op, inputs, attributes | {"strides": [n, n]}, 1)[0] for n in (3, 2**62))
    np.testing.assert_array_equal(same, first)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("op", ["Conv", "ConvInteger", "ConvTranspose"])
def test_an_empty_kernel_shape_is_the_weights(op: str, provider: str) -> None:
    kind = np.uint8 if op == "ConvInteger" else np.float32
    inputs = [IMAGE.astype(kind), np.ones((2, 2, 3, 3), kind)]
    (expected,) = run(provider, op, inputs, {}, 1)
    (found,) = run(provider, op, inputs, {"kernel_shape": []}, 1)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("side", ["left_window_size", "right_window_size"])
def test_a_window_of_attention_of_any_size_hides_nothing(side: str, provider: str) -> None:
    draw = np.random.default_rng(0)
    inputs = [draw.standard_normal((1, 2, 5, 4)).astype(np.float32) for _ in range(3)]
    (expected,) = run(provider, "Attention", inputs, {}, 1)
    (found,) = run(provider, "Attention", inputs, {side: 2**63 - 1}, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("scale", [1e30, -1e30, float("inf"), float("nan")])
def test_regions_that_lie_nowhere(scale: float, provider: str) -> None:
    regions = np.array([[0, 0, 3, 3], [1, 2, 4, 4]], np.float32)
    attributes = {"spatial_scale": scale, "output_height": 2, "sampling_ratio": 2}
    (found,) = run(provider, "RoiAlign", [IMAGE, regions, np.zeros(2, np.int64)], attributes, 1)
    assert found.shape == (2, 2, 2, 1)
    np.testing.assert_array_equal(found, 0)
