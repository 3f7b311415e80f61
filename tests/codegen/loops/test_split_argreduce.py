"""Arg-reductions become two reductions: against NumPy, at ties, NaN and extremes."""

from __future__ import annotations

import numpy as np
import pytest
from loop_kernels import run_loops

from intarsia.codegen.loops.split_argreduce import in_reductions
from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.lang import walk


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint64", "int64"])
def test_ties_and_extremes(dtype: str, op: str, last: bool) -> None:
    limits = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else np.finfo(dtype)
    x = np.random.default_rng(0).integers(0, 5, (7, 40, 3)).astype(dtype)
    x[1], x[2], x[3, 5:9], x[4, 5:9] = limits.min, limits.max, limits.min, limits.max
    if np.dtype(dtype).kind == "f":
        x[5, 10:20], x[6, 3], x[6, 8] = np.nan, -np.inf, np.inf
    for axis in (0, 1, 2):
        (found,) = run_loops([k.arg_reduce(k.input(0, DType.of(x.dtype), x.shape), op, axis, last=last)], x)
        pick = np.argmax if op == "max" else np.argmin
        expected = x.shape[axis] - 1 - pick(np.flip(x, axis), axis) if last else pick(x, axis)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, expected)


def test_an_axis_of_unknown_size_is_counted_in_64_bits() -> None:
    x = k.input(0, DType.FLOAT, (symbol("n"),))
    (root,) = in_reductions([k.arg_reduce(x, "max", 0)])
    kinds = {t.prim: t.dtype for t in walk([root])}
    assert "argreduce" not in kinds
    assert kinds["iota"] is DType.INT64
    (small,) = in_reductions([k.arg_reduce(k.input(0, DType.FLOAT, (9,)), "max", 0)])
    assert {t.prim: t.dtype for t in walk([small])}["iota"] is DType.INT32


def test_other_graphs_stay_as_they_are() -> None:
    root = k.exp(k.input(0, DType.FLOAT, (3,)))
    assert in_reductions([root]) == [root]
