"""Which axis has the rows of a batch: rules for primitives, and what they say against what is computed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from intarsia.graph.dims import Dim, symbol
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.batch_axis import ALIKE, Mixes, checked_axis, leading, per_row, row_axes
from intarsia.primitives.interpreter import interpret

F, I64, N, M = DType.FLOAT, DType.INT64, symbol("n"), symbol("m")
X = k.input(0, F, (N, 4, 6))
ROWS = k.input(1, I64, (N, 2))  # indices below 4
TABLE = k.input(2, F, (4, 6))
COLUMN = k.input(3, I64, (3,))  # indices below 4
FEW = k.input(4, F, (N * 2, 6))  # two for each row
LAST = k.input(5, F, (4, N))
AXES = (0, 0, ALIKE, ALIKE, 0, 1)
SHAPES: Sequence[Sequence[Dim]] = [t.shape for t in (X, ROWS, TABLE, COLUMN, FEW, LAST)]

ROWWISE: dict[str, tuple[k.Tensor, int]] = {
    "elements": (k.exp(X) * 2 + k.broadcast(TABLE, X.shape), 0),
    "selected": (k.select(X < 0, X, k.neg(X)), 0),
    "filled": (k.full((N, 3), 1.0, F), 0),
    "a table for each row": (k.broadcast(k.expand_dims(TABLE, [0]), (N, 4, 6)), 0),
    "transposed": (k.transpose(X, (2, 0, 1)), 1),
    "merged": (k.reshape(X, (N * 4, 6)), 0),
    "parted again": (k.reshape(k.reshape(X, (N * 4, 6)), (N, 2, 2, 6)), 0),
    "behind others": (k.reshape(k.transpose(X, (1, 0, 2)), (2, 2, N * 2, 3)), 2),
    "one in front": (k.expand_dims(X, [0]), 1),
    "some columns": (k.strided_slice(X, (0, 1, 5), (1, 2, -1), (N, 2, 3)), 0),
    "padded": (k.pad(X, (0, 1, 0), (0, 0, 2), 0.0), 0),
    "joined": (k.concat([X, X], 1), 0),
    "windows": (k.windows(X, (2,), (3,), (1,), (1,)), 0),
    "taken by column": (k.take(X, COLUMN, 1), 0),
    "taken behind": (k.take(k.transpose(X, (1, 0, 2)), k.reshape(COLUMN, (3, 1)), 0), 2),
    "looked up": (k.take(TABLE, ROWS, 0), 0),
    "looked up by two": (k.index(TABLE, [ROWS, k.broadcast(k.scalar(1, I64), ROWS.shape)]), 0),
    "sums": (k.reduce_sum(X, [1]), 0),
    "means, behind": (k.reduce_mean(k.transpose(X, (1, 0, 2)), [0, 2]), 0),
    "largest": (k.arg_reduce(X, "max", 2), 0),
    "running": (k.scan(X, "sum", 1), 0),
    "sorted": (k.sort(X, 2)[1], 0),
    "rows by a matrix": (k.dot(X, k.transpose(TABLE, (1, 0))), 0),
    "merged rows by a matrix": (k.dot(FEW, k.transpose(TABLE, (1, 0))), 0),
    "a matrix by columns": (k.dot(k.transpose(TABLE, (1, 0)), LAST), 1),
    "matrices": (k.dot(X, k.transpose(X, (0, 2, 1))), 0),
    "numbers of columns": (k.iota((N, 5), 1), 0),
    "no rows": (k.dot(TABLE, k.transpose(TABLE, (1, 0))), ALIKE),
    "no rows, numbered": (k.iota((5,), 0), ALIKE),
    "no rows, gathered": (k.take(TABLE, COLUMN, 0), ALIKE),
    "no rows, sums": (k.reduce_sum(TABLE, [0]), ALIKE),
}
MIXED: dict[str, k.Tensor] = {
    "their number": k.cast(k.size(N), F),
    "their number, as a factor": X * k.cast(k.size(N), F),
    "sums": k.reduce_sum(X, [0]),
    "means": k.reduce_mean(X, [0, 1, 2]),
    "largest": k.arg_reduce(X, "max", 0),
    "running": k.scan(X, "sum", 0),
    "sorted": k.sort(X, 0)[0],
    "numbers of rows": k.iota((N, 5), 0),
    "turned round": k.strided_slice(X, (N - 1, 0, 0), (-1, 1, 1), X.shape),
    "without the first": k.strided_slice(X, (1, 0, 0), (1, 1, 1), (N - 1, 4, 6)),
    "one more": k.pad(X, (1, 0, 0), (0, 0, 0), 0.0),
    "joined": k.concat([X, X], 0),
    "windows of rows": k.windows(k.reshape(X, (N * 4, 6)), (0,), (3,), (1,), (1,)),
    "some of the rows": k.take(X, COLUMN, 0),
    "others of the rows": k.take(X, ROWS, 1),
    "elements anywhere": k.index(LAST, [COLUMN, COLUMN]),
    "products of rows": k.dot(k.reshape(X, (N, 24)), k.transpose(k.reshape(X, (N, 24)), (1, 0))),
    "sums of products": k.dot(LAST, k.reshape(X, (N, 24))),
    "merged from inside": k.reshape(k.transpose(X, (1, 0, 2)), (N * 2, 12)),
    "lines of all": k.reshape(X, (4, N, 6)),
    "as a vector of vectors": k.reshape(X, (24, N)),
    "another size": k.broadcast(k.input(6, F, (M, 1, 1)), (M, 4, 6)) + k.broadcast(X, (M, 4, 6)),
    "scattered": k.scatter(X, [k.full((3,), 0, I64), COLUMN, COLUMN], k.full((3,), 1.0, F)),
    "rows by rows": k.broadcast(k.expand_dims(k.reduce_sum(X, [1, 2]), [1]), (N, N)),
}


def axis_of(t: k.Tensor) -> int:
    return AXES[t.attrs[0]] if t.attrs[0] < len(AXES) else ALIKE


@pytest.mark.parametrize("name", sorted(ROWWISE))
def test_rows_are_found(name: str) -> None:
    root, axis = ROWWISE[name]
    assert row_axes([root], "n", axis_of) == [axis]


@pytest.mark.parametrize("name", sorted(MIXED))
def test_what_mixes_rows(name: str) -> None:
    with pytest.raises(Mixes):
        row_axes([MIXED[name]], "n", axis_of)


@pytest.mark.parametrize("name", sorted(n for n, (_, axis) in ROWWISE.items() if axis != ALIKE))
def test_rows_are_those_of_the_whole(name: str) -> None:
    """What is said to be rows is computed from some rows as from all."""
    root, axis = ROWWISE[name]
    r = np.random.default_rng(len(name))

    def given(i: int, rows: int) -> np.ndarray:
        shape = [d if isinstance(d, int) else d.evaluate({"n": rows}) for d in SHAPES[i]]
        return r.integers(0, 4, shape) if i in (1, 3) else r.standard_normal(shape).astype(np.float32)

    whole = [given(i, 5) for i in range(len(SHAPES))]
    some = [
        x if a == ALIKE else np.take(x, range(2 * x.shape[a] // 5, 4 * x.shape[a] // 5), a)
        for x, a in zip(whole, AXES, strict=True)
    ]
    (expected,), (found,) = interpret([root], whole, {"n": 5}), interpret([root], some, {"n": 2})
    each = expected.shape[axis] // 5
    np.testing.assert_allclose(found, np.take(expected, range(2 * each, 4 * each), axis), rtol=1e-6)


PARTS: list[tuple[Dim, Dim | None]] = [
    (N, 1), (N * 3, 3), (N * M * 2, M * 2), (N * M + N, M + 1), (N + 1, None), (N * N, None), (M, None), (7, None),
    (N // 2, None), ((N * 4) // 2, 2),
]  # fmt: skip


@pytest.mark.parametrize("case", PARTS, ids=str)
def test_a_size_for_each_row(case: tuple[Dim, Dim | None]) -> None:
    assert per_row(case[0], "n") == case[1]


def test_shapes_of_rows() -> None:
    assert checked_axis((M, N * 2), "n", 1) == 1
    for shape, axis in (((N, N), 0), ((N,), ALIKE), ((M, 3), 0), ((N - 1,), 0)):
        with pytest.raises(Mixes):
            checked_axis(shape, "n", axis)
    assert leading((1, 1, N, 3), 2)
    assert not leading((M, N), 1)
