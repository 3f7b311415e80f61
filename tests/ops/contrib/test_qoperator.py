"""com.microsoft's operators on quantised tensors against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from intarsia.errors import InvalidGraph
from intarsia.graph.model import Node
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node

RNG = np.random.default_rng(8)
A, B = (RNG.integers(0, 255, (2, 3, 6, 6)).astype(np.uint8) for _ in range(2))
SCALES = [np.float32(0.02), np.float32(0.05), np.float32(0.04)]
ZEROS = [np.uint8(120), np.uint8(100), np.uint8(90)]


def run(op: str, inputs: list[Any], outputs: int = 1, **attributes: Any) -> list[np.ndarray]:
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    node = Node(op, names, [f"y{i}" for i in range(outputs)], attributes, domain="com.microsoft", version=1)
    return evaluate_node(node, inputs, registry())


def real(x: np.ndarray, i: int) -> np.ndarray:
    return np.asarray((x.astype(np.float64) - float(ZEROS[i])) * float(SCALES[i]))


def check(found: np.ndarray, expected: np.ndarray) -> None:
    quantised = np.clip(np.rint(expected / float(SCALES[2])) + float(ZEROS[2]), 0, 255)
    assert found.dtype == np.uint8
    assert found.shape == expected.shape
    assert np.abs(found - quantised).max() <= 1  # float32 rounds the ratio


@pytest.mark.parametrize(("op", "function"), [("QLinearAdd", np.add), ("QLinearMul", np.multiply)])
def test_binary(op: str, function: Callable[..., np.ndarray]) -> None:
    (y,) = run(op, [A, SCALES[0], ZEROS[0], B, SCALES[1], ZEROS[1], SCALES[2], ZEROS[2]])
    check(y, function(real(A, 0), real(B, 1)))


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


@pytest.mark.parametrize(
    ("op", "function", "attributes"),
    [
        ("QLinearSigmoid", lambda x: 1 / (1 + np.exp(-x)), {}),
        ("QLinearLeakyRelu", lambda x: np.where(x < 0, 0.2 * x, x), {"alpha": 0.2}),
        ("QLinearSoftmax", _softmax, {"axis": -1, "opset": 13}),
        ("QLinearGlobalAveragePool", lambda x: x.mean((2, 3), keepdims=True), {"channels_last": 0}),
        ("QLinearGlobalAveragePool", lambda x: x.mean((1, 2), keepdims=True), {"channels_last": 1}),
        (
            "QLinearAveragePool",
            lambda x: x.reshape(2, 3, 3, 2, 3, 2).mean((3, 5)),
            {"kernel_shape": [2, 2], "strides": [2, 2]},
        ),
    ],
)
def test_of_one_tensor(op: str, function: Callable[[np.ndarray], np.ndarray], attributes: dict[str, Any]) -> None:
    (y,) = run(op, [A, SCALES[0], ZEROS[0], SCALES[2], ZEROS[2]], **attributes)
    check(y, function(real(A, 0)))


def test_concatenation() -> None:
    (y,) = run("QLinearConcat", [SCALES[2], ZEROS[2], A, SCALES[0], ZEROS[0], B, SCALES[1], ZEROS[1]], axis=1)
    check(y, np.concatenate([real(A, 0), real(B, 1)], 1))


def test_concatenation_takes_triples() -> None:
    with pytest.raises(InvalidGraph, match="tensor, scale and zero point of each part; got 2 inputs"):
        run("QLinearConcat", [SCALES[2], ZEROS[2], A, SCALES[0]], axis=1)


def test_where() -> None:
    condition = RNG.random((2, 3, 6, 6)) < 0.5
    (y,) = run("QLinearWhere", [condition, A, SCALES[0], ZEROS[0], B, SCALES[1], ZEROS[1], SCALES[2], ZEROS[2]])
    check(y, np.where(condition, real(A, 0), real(B, 1)))


@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm(transposed: int) -> None:
    a, b = A[0, 0], B[0, 0]
    c = RNG.integers(-3000, 3000, 6).astype(np.int32)
    inputs = [a, SCALES[0], ZEROS[0], b, SCALES[1], ZEROS[1], c]
    expected = real(a, 0) @ (real(b, 1).T if transposed else real(b, 1)) + c * float(SCALES[0]) * float(SCALES[1])
    check(run("QGemm", [*inputs, SCALES[2], ZEROS[2]], transB=transposed)[0], expected)
    np.testing.assert_allclose(run("QGemm", inputs, transB=transposed)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("at", "name", "expected"),
    [
        (1, "a_scale", r"a scalar or \[1\]"),
        (2, "a_zero_point", r"a scalar or \[1\]"),
        (4, "b_scale", r"a scalar, or \[N\]"),
        (5, "b_zero_point", r"a scalar, or \[N\]"),
        (7, "y_scale", r"a scalar or \[1\]"),
        (8, "y_zero_point", r"a scalar or \[1\]"),
    ],
)
def test_gemm_takes_no_parameters_of_more_axes(at: int, name: str, expected: str) -> None:
    """They would add axes to the product."""
    c = np.zeros(6, np.int32)
    inputs = [A[0, 0], SCALES[0], ZEROS[0], B[0, 0], SCALES[1], ZEROS[1], c, SCALES[2], ZEROS[2]]
    inputs[at] = inputs[at].reshape((1,) * 9)
    with pytest.raises(InvalidGraph, match=rf"{name} has shape \[1, .*; expected {expected}"):
        run("QGemm", inputs)
