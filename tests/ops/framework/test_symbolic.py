"""Integer primitives on dimensions: with numbers for the sizes, the same as the interpreter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from intarsia.graph.dims import evaluate, fresh_symbol, symbol
from intarsia.graph.dtypes import DType
from intarsia.ops.framework.symbolic import Unknown, evaluate_symbolic
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret

N, M = symbol("n"), symbol("m")
I64 = DType.INT64
X = k.input(0, I64, (3,))
VALUES = np.array([N, 6, N * M], object)
ENV = {"n": 5, "m": 4}

EXPRESSIONS: dict[str, k.Tensor] = {
    "arithmetic": (X + 2) * X - k.neg(X), "division": X / 2, "modulo": k.binary("mod", X, k.scalar(4, I64)),
    "extremes": k.maximum(k.minimum(X, 100), 3), "absolute": k.absolute(X), "size": X * k.size(N + M),
    "iota": X + k.iota((3,), 0),
    "table": X + k.constant(np.array([1, 2, 3])), "reversed": k.strided_slice(X, (2,), (-1,), (3,)),
    "taken": k.take(X, k.constant(np.array([[2, 0]])), 0), "joined": k.concat([X, X + 1], 0),
    "shaped": k.transpose(k.broadcast(k.reshape(X, (3, 1)), (3, 2)), (1, 0)), "sum": k.reduce_sum(X, [0]),
    "product": k.reduce(X, "prod", [0]), "largest": k.reduce_max(k.reshape(X, (1, 3)), [0]),
    "cast": k.cast(k.cast(X, DType.INT32), I64),
    "chosen": k.select(k.constant(np.array([True, False, True])), X, X + 1), "empty": k.reduce_sum(k.strided_slice(X, (0,),
    (1,), (0,)), [0]),
    "signs": (X - 7) / 2 + (7 - X) / 2 + (X - 7) / -2 + (2 - X * X) / 3 + (-X) / 4 + 100 / (X - 9),
    "magnitude": k.absolute(X - 7) + k.absolute(-X),
    "wrapped": k.cast(k.cast(k.constant(np.array([300, -1, 7])), DType.UINT8) + 250, I64),
    "truncated": k.scalar(-7, I64) / k.scalar(2, I64),
    "floats": k.cast(k.cast(k.constant(np.array([7, -7])), DType.FLOAT) / 2.0, I64),
    "not": ~k.equal(k.constant(np.array([0, 1])), 1),
    "and_or": (k.constant(np.array([1, 2])) < 2) & k.not_equal(k.scalar(1, I64), 2) | (k.scalar(1, I64) <= 0),
    "to_bool": k.cast(k.constant(np.array([0, 3])), DType.BOOL),
    "bools": k.equal(k.scalar(True, DType.BOOL), k.scalar(False, DType.BOOL)),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(EXPRESSIONS))
def test_same_as_with_numbers(name: str) -> None:
    root = EXPRESSIONS[name]
    found = evaluate_symbolic(root, {0: VALUES})
    numbers = np.array([evaluate(v, ENV) for v in VALUES])
    (expected,) = interpret([root], [numbers], ENV)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(np.array([evaluate(v, ENV) for v in found.flat]).reshape(found.shape), expected)


@pytest.mark.parametrize(
    ("root", "known"),
    [
        (k.equal(k.size(N), -1), False), (k.equal(k.size(N), k.size(N)), True), (k.size(N) < 0, False),
        (k.size(N + 2) <= 1, False),
        (k.scalar(0, I64) < k.size(N * M + 1), True), (k.not_equal(k.size(N), -1), True),
        (k.cast(k.size(N + 1), DType.BOOL), True),
    ],
)  # fmt: skip
def test_comparisons_that_hold_for_all_sizes(root: k.Tensor, known: bool) -> None:
    assert evaluate_symbolic(root, {}).item() is known


UNKNOWN: dict[str, Callable[[], k.Tensor]] = {
    "a comparison of two sizes": lambda: k.size(N) < k.size(M),
    "whether a size is 0": lambda: k.equal(k.size(N), 0),
    "whether a size is positive": lambda: k.scalar(0, I64) < k.size(N * M),
    "a size as a truth value": lambda: k.cast(k.size(N), DType.BOOL),
    "an operand": lambda: k.input(1, I64, (2,)),
    "a primitive": lambda: k.exp(k.cast(k.scalar(1, I64), DType.FLOAT)),
    "a quotient": lambda: k.scalar(7, I64) / k.scalar(0, I64),
    "a remainder": lambda: k.binary("mod", k.size(N), k.scalar(0, I64)),
    "a size in eight bits": lambda: k.cast(k.size(N), DType.UINT8),
    "a shape": lambda: k.broadcast(k.scalar(1, I64), (N,)),
    "an index": lambda: k.take(X, k.reshape(k.size(N), (1,)), 0),
    "a float of a size": lambda: k.cast(k.size(N), DType.FLOAT),
    "the largest of nothing": lambda: k.reduce_max(k.strided_slice(X, (0,), (1,), (0,)), [0]),
    "a reduction": lambda: k.reduce(k.equal(X, X), "any", [0]),
    "a computed start": lambda: k.strided_slice(X, (N,), (1,), (1,)),
    "whether data has a size of 0": lambda: k.equal(k.size(fresh_symbol()), 0),
    "an element of data": lambda: k.size(symbol("x[0]")) < 1,
}


@pytest.mark.parametrize("name", sorted(UNKNOWN))
def test_what_is_not_known(name: str) -> None:
    with pytest.raises(Unknown):
        evaluate_symbolic(UNKNOWN[name](), {0: VALUES})
