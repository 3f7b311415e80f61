"""The kernel language: shapes, what is refused, simplifications; printing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret
from intarsia.primitives.substitute import as_scalar, inputs_of, known_scalar, substitute

F, N = DType.FLOAT, symbol("n")
X, Y, INTEGERS = k.input(0, F, (2, 3)), k.input(1, F, (4, 3)), k.input(2, DType.INT32, (2, 3))

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "scalar": (lambda: k.scalar(1.5, DType.INT8), "the scalar 1.5 is not a int8"),
    "dtypes": (lambda: X + INTEGERS, "add: operands have dtypes float and int32"),
    "shapes": (lambda: X * Y, r"mul: shapes \[2, 3\], \[4, 3\] do not broadcast"),
    "bitcast": (lambda: k.bitcast(X, DType.INT64), "cannot reinterpret float as int64: sizes differ"),
    "rank": (lambda: k.broadcast(X, (3,)), r"cannot broadcast \[2, 3\] to \[3\]"),
    "broadcast": (lambda: k.broadcast(X, (4, 3)), r"cannot broadcast \[2, 3\] to \[4, 3\]"),
    "reshape": (lambda: k.reshape(X, (4,)), r"cannot reshape \[2, 3\] \(6 elements\) to \[4\] \(4\)"),
    "perm": (lambda: k.transpose(X, (0, 0)), r"perm \[0, 0\] is not a permutation of the 2 axes of \[2, 3\]"),
    "concat_rank": (lambda: k.concat([X, k.input(1, F, (3,))], 0), "concatenated tensors differ in rank or dtype"),
    "concat_size": (lambda: k.concat([X, Y], 1), "concatenated tensors differ on axis 0"),
    "index": (lambda: k.index(X, [INTEGERS]), "1 index tensors for <input"),
    "axis": (lambda: k.reduce_sum(X, [2]), "axis 2 is out of range for rank 2"),
    "matrices": (lambda: k.dot(X, k.input(1, F, (3,))), "dot needs matrices, got"),
    "inner": (lambda: k.dot(X, Y), r"inner dimensions differ: \[2, 3\] x \[4, 3\]"),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(k.DefinitionError, match=message):
        make()


def test_operators_are_primitives() -> None:
    x, y = np.array([[1.0, -2, 3]], np.float32), np.array([[2.0], [-1]], np.float32)
    a, b = k.input(0, F, (1, 3)), k.input(1, F, (2, 1))
    pairs = [
        (a + b, x + y), (a - b, x - y), (a * b, x * y), (a / b, x / y), (-a, -x), (a < b, x < y), (a <= b, x <= y),
        (a > b, x > y),
        (a >= b, x >= y), (1 + a, 1 + x), (1 - a, 1 - x), (2 * a, 2 * x), (1 / a, 1 / x), ((a < b) & (a < 0),
        (x < y) & (x < 0)),
        ((a < b) | (a < 0), (x < y) | (x < 0)), ((a < b) ^ (a < 0), (x < y) ^ (x < 0)), (~(a < b), ~(x < y)),
        (k.sigmoid(a), 1 / (1 + np.exp(-x))), (k.power(a, 2.0), x**2), (k.minimum(a, b), np.minimum(x, y)),
        (k.not_equal(a, b), x != y),
    ]  # fmt: skip
    for found, (root, expected) in zip(interpret([r for r, _ in pairs], [x, y]), pairs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=repr(root))


def test_nothing_is_made_of_what_changes_nothing() -> None:
    assert k.cast(X, F) is k.broadcast(X, (2, 3)) is k.reshape(X, (2, 3)) is k.transpose(X, (0, 1)) is X
    assert (
        k.pad(X, (0, 0), (0, 0), 1.0)
        is k.concat([X], 0)
        is k.strided_slice(X, (0, 0), (1, 1), (2, 3))
        is k.reduce_sum(X, [])
        is X
    )
    unsigned = k.input(0, DType.UINT8, (2,))
    assert k.absolute(unsigned) is unsigned
    assert k.transpose(k.input(0, F, (1, N, 3)), (1, 0, 2)).prim == "reshape"  # only an axis of size 1 moves


def test_symbolic_shapes() -> None:
    x = k.input(0, F, (N, 3))
    assert k.concat([x, X], 0).shape == (N + 2, 3)
    assert k.concat([k.input(0, F, (N, 1)), X], 1).shape == (2, 4)
    assert k.windows(x, [1], [2], [1], [1]).shape == (N, 2, 2)
    assert k.windows(X, [0], [5], [1], [1]).shape == (0, 3, 5)
    assert k.expand_dims(x, [0, -1]).shape == (1, N, 3, 1)
    assert k.take(x, k.input(1, DType.INT64, (4, 5)), 0).shape == (4, 5, 3)
    assert (k.size(N).prim, k.size(3).prim) == ("size", "scalar")
    assert repr(k.reduce_max(x, [0])) == "<reduce['max', (0,)] float[3]>"


def test_bodies_are_walked_operands_first_and_once() -> None:
    e = k.exp(X)
    order = k.walk([e + e, e])
    assert [t.prim for t in order] == ["input", "exp", "add"]


@pytest.mark.parametrize(("exponent", "prims"), [
    (1.0, ["input"]), (2.0, ["input", "mul"]), (3.0, ["input", "mul", "mul"]), (0.5, ["input", "sqrt"]),
    (4.0, ["input", "scalar", "broadcast", "pow"]),
])  # fmt: skip
def test_powers_with_known_exponents(exponent: float, prims: list[str]) -> None:
    (root,) = substitute(
        [k.power(k.input(0, F, (3,)), k.input(1, F, (3,)))], lambda t: t if t.attrs[0] == 0 else k.full((3,), exponent, F)
    )
    assert [t.prim for t in k.walk([root])] == prims
    x = np.array([0.5, 2, 9], np.float32)
    np.testing.assert_allclose(interpret([root], [x])[0], x**exponent, rtol=1e-6)


def test_known_scalars_are_seen_through_casts_that_keep_them() -> None:
    assert known_scalar(k.cast(k.full((2,), 2, DType.INT64), F)) == 2
    assert known_scalar(k.cast(k.cast(k.scalar(0.5, F), DType.INT64), F)) is None
    assert known_scalar(X) is None


def test_inputs_and_scalars_in_their_place() -> None:
    root = X + k.exp(X) + k.input(5, F, (2, 3))
    assert [t.attrs[0] for t in inputs_of([root])] == [0, 5]
    assert as_scalar(2.0, F, (1, 1)).shape == (1, 1)
    assert as_scalar(2.0, F, ()).shape == ()
    assert substitute([root], lambda t: t)[0] is root
