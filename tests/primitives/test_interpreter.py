"""The interpreter: conversions as ONNX's Cast has them, and primitives that only it runs."""

from __future__ import annotations

import decimal
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import cast_array, interpret
from intarsia.run_status import CURRENT_RUN

CASTS: list[tuple[list[Any], type, DType, list[Any]]] = [
    ([1.5, -2.7, 300.0], np.float32, DType.INT32, [1, -2, 300]),
    ([1e19], np.float64, DType.UINT64, [10**19]),
    ([-1, 300], np.int64, DType.UINT8, [255, 44]),
    ([0.0, -0.5, np.nan], np.float32, DType.BOOL, [False, True, True]),
    ([0, 0.25], ml_dtypes.bfloat16, DType.BOOL, [False, True]),
    ([True, False], np.bool_, DType.BFLOAT16, [1, 0]),
    ([2.5, -3.5], ml_dtypes.bfloat16, DType.INT8, [2, -3]),
    ([7, -8, 9, 15], np.int32, DType.INT4, [7, -8, -7, -1]),
    ([7.9, -1.0], np.float32, DType.UINT4, [7, 15]),
    ([7, -8], ml_dtypes.int4, DType.FLOAT, [7, -8]),
    ([15, 1], ml_dtypes.uint4, DType.INT64, [15, 1]),
    ([1e6, -1e6, np.nan, np.inf], np.float32, DType.FLOAT8E4M3FN, [448, -448, np.nan, 448]),
    ([1e6, np.inf, 3.0], np.float32, DType.FLOAT8E5M2, [57344, 57344, 3]),
    ([1.0, 6.0], np.float32, DType.FLOAT4E2M1, [1, 6]),
    ([1.5, float("inf"), float("-inf"), float("nan"), 1e-7, 123456789.0], np.float64, DType.STRING,
     ["1.5", "INF", "-INF", "NaN", "1e-07", "1.2345679e+08"]),
    ([True, False], np.bool_, DType.STRING, ["1", "0"]),
    ([-12], np.int16, DType.STRING, ["-12"]),
    (["1.5", "-INF", "NaN"], object, DType.FLOAT, [1.5, -math.inf, math.nan]),
    (["12", "-7", "9007199254740993"], object, DType.INT64, [12, -7, 9007199254740993]),
    (["3.9", "18446744073709551615"], object, DType.UINT64, [3, 2**64 - 1]),
    (["a"], object, DType.STRING, ["a"]),
]  # fmt: skip


@pytest.mark.parametrize(("values", "source", "target", "expected"), CASTS)
def test_casts(values: list[Any], source: type, target: DType, expected: list[Any]) -> None:
    found = cast_array(np.array(values, source), target)
    assert found.dtype == target.numpy
    if target is DType.STRING:
        assert found.tolist() == expected
    else:
        wide = np.float64 if target.is_floating else object
        np.testing.assert_array_equal(found.astype(wide), np.array(expected, wide))


def test_unsaturated_float8_overflows() -> None:
    found = cast_array(np.array([1e6], np.float32), DType.FLOAT8E5M2, saturate=False)
    assert np.isinf(found.astype(np.float32)).all()
    assert np.isnan(cast_array(np.array([1e6], np.float32), DType.FLOAT8E4M3FN, saturate=False).astype(np.float32)).all()


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [DType.INT32, DType.BFLOAT16])
def test_sorting_keeps_the_order_of_equal_elements(dtype: DType, descending: bool) -> None:
    x = np.array([[3, 1, 3, 2, 1]]).astype(dtype.numpy)
    values, order = interpret(k.sort(k.input(0, dtype, (1, 5)), 1, descending), [x])
    assert values.astype(int).tolist() == [[3, 3, 2, 1, 1] if descending else [1, 1, 2, 3, 3]]
    assert order.tolist() == [[0, 2, 3, 1, 4] if descending else [1, 4, 3, 0, 2]]


def erf_of(x: float) -> float:
    """The series of erf (Abramowitz 7.1.5) with 60 digits."""
    with decimal.localcontext(prec=60):
        term = total = decimal.Decimal(x)
        square, n = total * total, 0
        while abs(term) > decimal.Decimal(10) ** -50:
            n += 1
            term = -term * square / n
            total += term / (2 * n + 1)
        pi = decimal.Decimal("3.14159265358979323846264338327950288419716939937510582")
        return float(2 * total / pi.sqrt())


def test_erf_is_exact_to_double_precision() -> None:
    x = np.concatenate([np.linspace(-6, 6, 401), [0.0, -0.0, 2.0804, 2.5, 1e-300]])
    (found,) = interpret([k.erf(k.input(0, DType.DOUBLE, x.shape))], [x])
    np.testing.assert_allclose(found, [erf_of(float(v)) for v in x], rtol=2.3e-16)
    (found,) = interpret([k.erf(k.input(0, DType.DOUBLE, (3, 1)))], [np.array([[np.inf], [-np.inf], [np.nan]])])
    np.testing.assert_array_equal(found, [[1.0], [-1.0], [np.nan]])
    for shape in ((), (0, 2)):
        (found,) = interpret([k.erf(k.input(0, DType.FLOAT, shape))], [np.full(shape, 0.5, np.float32)])
        assert (found.shape, found.dtype) == (shape, np.float32)


@pytest.mark.parametrize(("op", "expected"), [("any", [True, False]), ("all", [False, False])])
def test_reductions_of_booleans(op: str, expected: list[bool]) -> None:
    (found,) = interpret([k.reduce(k.input(0, DType.BOOL, (2, 2)), op, [1])], [np.array([[True, False], [False, False]])])
    assert found.tolist() == expected
    for name, identity in (("max", False), ("min", True)):
        (empty,) = interpret([k.reduce(k.input(0, DType.BOOL, (2, 0)), name, [1])], [np.zeros((2, 0), bool)])
        assert empty.tolist() == [identity] * 2


def test_sizes_that_are_negative() -> None:
    n = symbol("n")
    with pytest.raises(ValueError, match=r"a value would have shape \[-3\]: a size is negative; check sizes and pads"):
        interpret([k.full((n - 5,), 0, DType.FLOAT)], [], {"n": 2})


def test_an_empty_axis_backwards() -> None:
    x = k.input(0, DType.FLOAT, (2, 0))
    (found,) = interpret([k.strided_slice(x, (0, -1), (1, -1), (2, 0))], [np.zeros((2, 0), np.float32)])
    assert found.shape == (2, 0)


class Stopped(Exception):
    pass


class StopsAt:
    """A run whose caller stops it at the so many-th look."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    def check(self) -> None:
        self.left -= 1
        if not self.left:
            raise Stopped

    def count_trips(self, count: int = 1) -> None:
        raise AssertionError("it has no loops")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((7, 5), (5, 9)),
        ((1, 5), (5, 1)),
        ((3, 1, 4, 5), (6, 5, 2)),
        ((1, 6, 4, 5), (3, 1, 5, 2)),
        ((40, 5), (3, 5, 2)),
        ((4, 0), (0, 3)),
        ((0, 4), (4, 3)),
    ],
)
def test_long_products_are_computed_in_pieces(
    left: tuple[int, ...], right: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("intarsia.primitives.interpreter._DOT_STEPS", 20)
    draw = np.random.default_rng(3)
    a, b = draw.integers(-9, 9, left).astype(np.float32), draw.integers(-9, 9, right).astype(np.float32)
    root = k.dot(k.input(0, DType.FLOAT, left), k.input(1, DType.FLOAT, right))
    np.testing.assert_array_equal(interpret([root], [a, b])[0], a @ b)


def test_a_run_can_be_stopped_within_a_product_and_while_a_definition_is_traced() -> None:
    x = k.input(0, DType.FLOAT, (1 << 11, 1 << 10))
    root = k.dot(x, k.transpose(x, (1, 0)))  # 2^32 multiplications
    token = CURRENT_RUN.set(StopsAt(6))  # at its fourth piece or so
    try:
        with pytest.raises(Stopped):
            interpret([root], [np.ones((1 << 11, 1 << 10), np.float32)])
        CURRENT_RUN.set(StopsAt(100))
        with pytest.raises(Stopped):
            [k.exp(x) for _ in range(200)]
    finally:
        CURRENT_RUN.reset(token)
