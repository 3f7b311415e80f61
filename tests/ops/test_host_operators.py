"""Operators that run on the host: random tensors, selections of unknown size, conversion of strings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intarsia.graph.model import Node
from intarsia.ops import registry
from intarsia.ops.evaluate import evaluate_node
from intarsia.ops.random import set_seed


def run(op: str, version: int, inputs: list[Any], outputs: int = 1, **attributes: Any) -> list[Any]:
    names = [f"x{i}" for i in range(len(inputs))]
    return evaluate_node(Node(op, names, [f"y{i}" for i in range(outputs)], attributes, version=version), inputs, registry())


RANDOM: list[tuple[str, list[Any], dict[str, Any], float, float]] = [  # expected mean and standard deviation
    ("RandomNormal", [], {"shape": [100, 100], "mean": 2.0, "scale": 3.0}, 2.0, 3.0),
    ("RandomUniform", [], {"shape": [100, 100], "low": 1.0, "high": 3.0}, 2.0, 2 / 12**0.5),
    ("RandomNormalLike", [np.zeros((100, 100))], {"dtype": 1}, 0.0, 1.0),
    ("RandomUniformLike", [np.zeros((100, 100), np.float32)], {}, 0.5, 1 / 12**0.5),
    ("Bernoulli", [np.full((100, 100), 0.2, np.float32)], {}, 0.2, 0.4),
]


@pytest.mark.parametrize(("op", "inputs", "attributes", "mean", "deviation"), RANDOM, ids=[r[0] for r in RANDOM])
def test_random(op: str, inputs: list[Any], attributes: dict[str, Any], mean: float, deviation: float) -> None:
    x = run(op, 22, inputs, seed=1.5, **attributes)[0]
    assert x.dtype == np.float32
    assert x.shape == (100, 100)
    assert abs(x.mean() - mean) < 0.06 * max(deviation, 1)
    assert abs(x.std() - deviation) < 0.06 * deviation
    np.testing.assert_array_equal(x, run(op, 22, inputs, seed=1.5, **attributes)[0])
    assert (x != run(op, 22, inputs, seed=2.5, **attributes)[0]).any()


def test_nodes_without_seed_share_a_generator_that_set_seed_starts_anew() -> None:
    set_seed(7)
    first = run("RandomUniform", 22, [], shape=[4])[0]
    second = run("RandomUniform", 22, [], shape=[4])[0]
    assert (first != second).any()
    set_seed(7)
    np.testing.assert_array_equal(run("RandomUniform", 22, [], shape=[4])[0], first)


def test_multinomial_draws_by_log_probability() -> None:
    logits = np.log(np.array([[0.1, 0.0, 0.9], [0.5, 0.5, 1e-9]], np.float32) + 1e-30)
    drawn = run("Multinomial", 22, [logits], sample_size=4000, seed=0.5)[0]
    assert drawn.dtype == np.int32
    counts = np.stack([np.bincount(row, minlength=3) for row in drawn]) / 4000
    np.testing.assert_allclose(counts, [[0.1, 0, 0.9], [0.5, 0.5, 0]], atol=0.04)


def test_nonzero_and_compress() -> None:
    x = np.array([[1, 0], [0, 2], [3, 4]], np.float16)
    np.testing.assert_array_equal(run("NonZero", 13, [x])[0], np.array(np.nonzero(x)))
    assert run("NonZero", 13, [np.array(5)])[0].tolist() == [[0]]
    np.testing.assert_array_equal(run("Compress", 11, [x, np.array([True, False, True])], axis=0)[0], x[[0, 2]])
    assert run("Compress", 11, [x, np.array([False, True, False, True])])[0].tolist() == [0, 2]


def test_unique_of_strings_and_slices() -> None:
    texts = np.array(["b", "a", "b", ""], object)
    values, first, inverse, counts = run("Unique", 11, [texts], outputs=4)
    assert values.tolist() == ["", "a", "b"]
    assert (first.tolist(), inverse.tolist(), counts.tolist()) == ([3, 1, 0], [2, 1, 2, 0], [1, 1, 2])
    unsorted = run("Unique", 11, [texts], outputs=4, sorted=0)
    assert [u.tolist() for u in unsorted] == [["b", "a", ""], [0, 1, 3], [0, 1, 0, 2], [2, 1, 1]]
    x = np.array([[1, 2], [0, 5], [1, 2]], np.int8)
    values, _, inverse, _ = run("Unique", 11, [x], outputs=4, axis=0)
    assert values.tolist() == [[0, 5], [1, 2]]
    assert inverse.tolist() == [1, 0, 1]


def test_cast_to_strings_prints_as_onnxruntime_does() -> None:
    x = np.array([0.1, 1, 1e10, np.nan, np.inf, -np.inf, 123456789], np.float32)
    assert run("Cast", 13, [x], to=8)[0].tolist() == ["0.1", "1", "1e+10", "NaN", "INF", "-INF", "1.2345679e+08"]
    assert run("Cast", 13, [np.array([True, False])], to=8)[0].tolist() == ["1", "0"]
    assert run("Cast", 13, [np.array([[-5]], np.int8)], to=8)[0].tolist() == [["-5"]]


def test_cast_from_strings() -> None:
    x = np.array(["1.5", "+INF", "inf", "-Inf", "NaN", "1e-5", " 7"], object)
    expected = np.array([1.5, np.inf, np.inf, -np.inf, np.nan, 1e-5, 7], np.float32)
    np.testing.assert_array_equal(run("Cast", 13, [x], to=1)[0], expected)
    big = np.array(["9007199254740993", "-3", "100.5"], object)
    assert run("Cast", 13, [big], to=7)[0].tolist() == [9007199254740993, -3, 100]
    assert run("CastLike", 19, [np.array(["0", "2"], object), np.array(True)])[0].tolist() == [False, True]


def test_strings_move_through_views_and_comparisons() -> None:
    x = np.array(["a", "b", "c", "a"], object)
    assert run("Gather", 13, [x, np.array([[-1, 1]])])[0].tolist() == [["a", "b"]]
    assert run("Equal", 19, [x, np.array(["a"], object)])[0].tolist() == [True, False, False, True]
    assert run("Concat", 13, [x[:1], x[2:]], axis=0)[0].tolist() == ["a", "c", "a"]
    assert run("Where", 16, [np.array([True, False, True, False]), x, np.array("z", object)])[0].tolist() == [
        "a",
        "z",
        "c",
        "z",
    ]
    assert run("Constant", 13, [], value_strings=["p", "q"])[0].tolist() == ["p", "q"]
    assert run("Pad", 21, [x, np.array([1, 0])])[0].tolist() == ["", "a", "b", "c", "a"]
