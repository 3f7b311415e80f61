"""Versions that ONNX's node cases no longer have, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intarsia.graph.model import Node
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node

RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
V3 = RNG.standard_normal(3).astype(np.float32)
IMAGE = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
INT64 = np.int64


def run(op: str, version: int, inputs: list[Any], outputs: int = 1, **attributes: Any) -> list[Any]:
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    node = Node(op, names, [f"y{i}" for i in range(outputs)], attributes, version=version)
    return evaluate_node(node, inputs, registry())


def softmax(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    powers = np.exp(x.astype(np.float64) - x.max(axes, keepdims=True))
    return powers / powers.sum(axes, keepdims=True)


def hardmax(x: np.ndarray) -> np.ndarray:
    flat = x.reshape(x.shape[0], -1)
    return np.eye(flat.shape[1])[flat.argmax(1)].reshape(x.shape)


COLUMN = V3[:, None]
CASES: list[tuple[str, int, list[Any], dict[str, Any], Any]] = [
    ("Add", 6, [X, V3], {"broadcast": 1, "axis": 1}, X + COLUMN),
    ("Sub", 6, [X, X[0, 0]], {"broadcast": 1}, X - X[0, 0]),
    ("Mul", 1, [X, X[0]], {"broadcast": 1, "axis": -2, "consumed_inputs": [0, 0]}, X * X[0]),
    ("Div", 6, [X, np.float32(2)], {"broadcast": 1}, X / 2),
    ("Pow", 1, [abs(X), V3], {"broadcast": 1, "axis": 1}, abs(X) ** COLUMN),
    ("Less", 1, [X, V3], {"broadcast": 1, "axis": 1}, X < COLUMN),
    ("Equal", 7, [X, X], {}, X == X),  # noqa: PLR0124
    ("And", 1, [X > 0, V3 > 0], {"broadcast": 1, "axis": 1}, (X > 0) & (COLUMN > 0)),
    ("Xor", 1, [X > 0, X > 1], {}, (X > 0) ^ (X > 1)),
    ("Sum", 6, [X, X, X], {}, X * 3),
    ("Max", 1, [X, -X], {}, abs(X)),
    ("Mean", 6, [X, X + 2], {}, X + 1),
    ("Clip", 6, [X], {"min": -0.5, "max": 0.25}, np.clip(X, -0.5, 0.25)),
    ("Clip", 1, [X], {}, X),
    ("PRelu", 6, [X, V3], {}, np.where(X < 0, X * COLUMN, X)),
    ("Selu", 1, [X], {}, 1.0507 * np.where(X > 0, X, 1.6732 * np.exp(X) - 1.6732)),
    ("HardSigmoid", 1, [X], {}, np.clip(0.2 * X + 0.5, 0, 1)),
    ("Cast", 1, [X], {"to": "INT32"}, X.astype(np.int32)),
    ("Cast", 6, [X], {"to": 11}, X.astype(np.float64)),
    ("Softmax", 11, [X], {}, softmax(X, (1, 2))),
    ("Softmax", 1, [X], {"axis": 2}, softmax(X, (2,))),
    ("Softmax", 11, [X], {"axis": 0}, softmax(X, (0, 1, 2))),
    ("LogSoftmax", 11, [X], {"axis": -2}, np.log(softmax(X, (1, 2)))),
    ("Hardmax", 11, [X], {}, hardmax(X)),
    ("ReduceSum", 11, [X], {"axes": [-1, 0], "keepdims": 0}, X.sum((0, 2))),
    ("ReduceMean", 13, [X], {"axes": [1]}, X.mean(1, keepdims=True)),
    ("ReduceL2", 1, [X], {"keepdims": 0}, np.sqrt((X**2).sum())),
    ("ReduceLogSumExp", 11, [X + 200], {"axes": [2]}, np.log(np.exp(X.astype(float)).sum(2, keepdims=True)) + 200),
    ("ReduceMax", 12, [(X * 9).astype(np.int8)], {"axes": [0], "keepdims": 0}, (X * 9).astype(np.int8).max(0)),
    ("ArgMin", 11, [X], {"axis": 1, "keepdims": 0}, X.argmin(1)),
    ("TopK", 1, [X], {"k": 2, "axis": 1}, -np.sort(-X, axis=1)[:, :2]),
    ("TopK", 10, [X, np.array([3], INT64)], {}, -np.sort(-X, axis=2)[..., :3]),
    ("Reshape", 1, [X], {"shape": [0, -1]}, X.reshape(2, 12)),
    ("Squeeze", 11, [X[:, None]], {"axes": [1]}, X),
    ("Squeeze", 1, [X[None, :, None]], {}, X),
    ("Unsqueeze", 11, [X], {"axes": [-1, 0]}, X[None, ..., None]),
    ("Unsqueeze", 1, [X], {"axes": [1]}, X[:, None]),
    ("Slice", 1, [X], {"starts": [-2, 1], "ends": [1000, -1], "axes": [1, 2]}, X[:, -2:, 1:-1]),
    ("Slice", 10, [X, np.array([3]), np.array([-(2**63)]), np.array([2]), np.array([-2])], {}, X[..., 3::-2]),
    ("Pad", 1, [X], {"paddings": [0, 1, 0, 0, 0, 2], "value": 1.5}, np.pad(X, ((0, 0), (1, 0), (0, 2)), constant_values=1.5)),
    ("Pad", 2, [X], {"pads": [0, -1, 1, 0, 0, 1], "mode": "edge"}, np.pad(X[:, 1:], ((0, 0), (0, 0), (1, 1)), mode="edge")),
    ("Pad", 2, [X], {"pads": [0, 0, 3, 0, 2, 3], "mode": "reflect"}, np.pad(X, ((0, 0), (0, 2), (3, 3)), mode="reflect")),
    ("Tile", 1, [X, np.array([3]), np.array([1])], {}, np.tile(X, (1, 3, 1))),
    ("Tile", 6, [X, np.array([2, 1, 2])], {}, np.tile(X, (2, 1, 2))),
    ("Concat", 1, [X, X], {}, np.concatenate([X, X], 1)),
    ("DepthToSpace", 1, [IMAGE[:, [0, 1, 2, 0]]], {"blocksize": 2}, None),
    ("Gemm", 6, [X[0], X[1].T, V3], {"broadcast": 1, "alpha": 0.5, "beta": 2.0}, 0.5 * X[0] @ X[1].T + 2 * V3),
    ("Gemm", 7, [X[0], X[1], V3], {"transB": 1}, X[0] @ X[1].T + V3),
    ("Scatter", 9, [X[0], np.array([[0, 1, 2, 0]]), np.ones((1, 4), np.float32)], {}, None),
    ("GatherND", 11, [X, np.array([[0, -1], [1, 1]])], {}, X[[0, 1], [-1, 1]]),
    ("OneHot", 9, [np.array([0, -1, 7]), np.array(3), np.array([2, 5])], {}, [[5, 2, 2], [2, 2, 5], [2, 2, 2]]),
    ("MeanVarianceNormalization", 9, [IMAGE], {}, None),
    ("CumSum", 11, [X, np.array(1, np.int32)], {"reverse": 1}, np.flip(np.flip(X, 1).cumsum(1), 1)),
    ("BitShift", 11, [np.array([255, 1], np.uint8), np.array([7, 9], np.uint8)], {"direction": "RIGHT"}, [1, 0]),
    ("Constant", 12, [], {"value_floats": [1.0, 2.5]}, [1.0, 2.5]),
    ("Range", 11, [np.float32(1), np.float32(2), np.float32(0.3)], {}, np.arange(1, 2, 0.3)),
    ("Range", 11, [np.int16(5), np.int16(-5), np.int16(-3)], {}, np.arange(5, -5, -3)),
    ("Dropout", 6, [X], {"is_test": 1}, X),
    ("Dropout", 7, [X], {"ratio": 0.9}, X),
    ("Reciprocal", 6, [X], {"consumed_inputs": [0]}, 1 / X),
]  # fmt: skip


def expected_by_hand(op: str, inputs: list[np.ndarray]) -> np.ndarray:
    x = inputs[0]
    if op == "DepthToSpace":
        n, c, h, w = x.shape
        return x.reshape(n, 2, 2, c // 4, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c // 4, h * 2, w * 2)
    if op == "Scatter":
        out = x.copy()
        for column, row in enumerate(inputs[1][0]):
            out[row, column] = 1
        return out
    mean, deviation = x.mean((0, 2, 3), keepdims=True), x.std((0, 2, 3), keepdims=True)
    return np.asarray((x - mean) / (deviation + 1e-9))


@pytest.mark.parametrize(
    ("op", "version", "inputs", "attributes", "expected"), CASES, ids=[f"{c[0]}-{c[1]}-{i}" for i, c in enumerate(CASES)]
)
def test_version(op: str, version: int, inputs: list[Any], attributes: dict[str, Any], expected: Any) -> None:
    expected = expected_by_hand(op, inputs) if expected is None else np.asarray(expected)
    found = run(op, version, inputs, **attributes)[0]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_top_k_gives_indices_of_the_first_of_equal_elements() -> None:
    values, indices = run("TopK", 10, [np.array([1, 3, 3, 2], np.float32), np.array([3])], outputs=2)
    assert values.tolist() == [3, 3, 2]
    assert indices.tolist() == [1, 2, 3]


@pytest.mark.parametrize(("version", "attributes"), [(2, {}), (2, {"split": [1, 3]}), (11, {"split": [2, 2]}), (1, {})])
def test_split_by_attribute(version: int, attributes: dict[str, Any]) -> None:
    found = run("Split", version, [X], outputs=2, axis=2, **attributes)
    expected = np.split(X, [attributes.get("split", [2])[0]], axis=2)
    for a, e in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, e)


@pytest.mark.parametrize(("extent", "count"), [(7, 3), (5, 4), (6, 3), (2, 3)])
def test_split_18_makes_the_last_chunk_smaller(extent: int, count: int) -> None:
    x = np.arange(extent)
    chunk = -(-extent // count)
    found = run("Split", 18, [x], outputs=count, num_outputs=count)
    assert [f.tolist() for f in found] == [x[i * chunk : (i + 1) * chunk].tolist() for i in range(count)]


@pytest.mark.parametrize(("version", "attributes"), [(7, {"spatial": 1}), (6, {"is_test": 1}), (9, {}), (14, {})])
def test_batch_normalization(version: int, attributes: dict[str, Any]) -> None:
    scale, bias, mean, var = V3, V3 + 1, V3 - 1, abs(V3) + 0.5
    found = run("BatchNormalization", version, [IMAGE, scale, bias, mean, var], epsilon=1e-3, **attributes)[0]
    s, b, m, v = (p[:, None, None] for p in (scale, bias, mean, var))
    np.testing.assert_allclose(found, (IMAGE - m) / np.sqrt(v + 1e-3) * s + b, rtol=1e-4, atol=1e-5)


def test_batch_normalization_per_position() -> None:
    scale, bias, mean, var = X[0], X[1], X[0] + 1, abs(X[1]) + 0.5
    found = run("BatchNormalization", 7, [X, scale, bias, mean, var], spatial=0)[0]
    np.testing.assert_allclose(found, (X - mean) / np.sqrt(var + 1e-5) * scale + bias, rtol=1e-4, atol=1e-5)


def test_batch_normalization_trains_where_statistics_are_wanted() -> None:
    zeros, ones = np.zeros(3, np.float32), np.ones(3, np.float32)
    y, mean, var, saved_mean, saved_var = run(
        "BatchNormalization", 9, [IMAGE, ones, zeros, zeros, ones], outputs=5, momentum=0.75
    )
    batch_mean, batch_var = IMAGE.mean((0, 2, 3)), IMAGE.var((0, 2, 3))
    np.testing.assert_allclose(saved_mean, batch_mean, atol=1e-6)
    np.testing.assert_allclose(saved_var, batch_var, rtol=1e-5)
    np.testing.assert_allclose(mean, 0.25 * batch_mean, atol=1e-6)
    np.testing.assert_allclose(var, 0.75 + 0.25 * batch_var, rtol=1e-5)
    expected = (IMAGE - batch_mean[:, None, None]) / np.sqrt(batch_var[:, None, None] + 1e-5)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_group_normalization_18_scales_by_group() -> None:
    x = RNG.standard_normal((2, 4, 3)).astype(np.float32)
    scale, bias = np.array([2, 3], np.float32), np.array([-1, 1], np.float32)
    groups = x.reshape(2, 2, -1).astype(np.float64)
    normal = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    expected = (normal * scale[:, None] + bias[:, None]).reshape(x.shape)
    np.testing.assert_allclose(run("GroupNormalization", 18, [x, scale, bias], num_groups=2)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("version", "dtype"), [(1, np.float32), (7, np.float32), (10, np.bool_), (13, np.bool_)])
def test_dropout_mask_of_inference_is_all_one(version: int, dtype: Any) -> None:
    y, mask = run("Dropout", version, [X], outputs=2)
    np.testing.assert_array_equal(y, X)
    assert mask.dtype == dtype
    assert mask.shape == X.shape
    assert mask.all()


def test_dropout_in_training_scales_what_it_keeps() -> None:
    inputs = [np.ones((40, 50), np.float16), np.array(0.25, np.float32), np.array(True)]
    y, mask = run("Dropout", 13, inputs, outputs=2, seed=3)
    again = run("Dropout", 13, inputs, outputs=2, seed=3)
    assert y.dtype == np.float16
    np.testing.assert_array_equal(mask, again[1])
    np.testing.assert_allclose(y, mask / 0.75, rtol=1e-3)
    assert 0.7 < mask.mean() < 0.8
