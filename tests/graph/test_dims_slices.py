"""Slices and reshapes of symbolic sizes against Python and NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from intarsia.graph.axes import SLICE_END, reshape_dims, slice_bounds
from intarsia.graph.dims import Dim, dim_max, dim_min, evaluate, is_nonnegative, lower_bound, product, symbol

BOUNDS = (-(2**63), -(2**31) + 1, -7, -3, -1, 0, 1, 2, 5, 9, 2**31 - 1, 2**63 - 1)
STEPS = (1, 2, 3, -1, -2, -3)


def elements(first: Dim, count: Dim, step: int, env: dict[str, int]) -> list[int]:
    start, length = evaluate(first, env), evaluate(count, env)
    return [start + i * step for i in range(length)]


def python_slice(start: int, stop: int, step: int, extent: int) -> list[int]:
    """ONNX's clamping: for negative steps a start is from 0 (Python: -1) to extent - 1, and a stop at least -1."""
    start = max(start, -extent) if step < 0 else start
    return list(range(extent))[slice(start, stop, step)]


@pytest.mark.parametrize("extent", [0, 1, 2, 5, 6])
def test_slice_bounds_of_integers_are_pythons(extent: int) -> None:
    for start, stop, step in itertools.product(BOUNDS, BOUNDS, STEPS):
        first, count = slice_bounds(start, stop, step, extent)
        assert elements(first, count, step, {}) == python_slice(start, stop, step, extent), (start, stop, step)


@pytest.mark.parametrize("extent", [0, 1, 2, 6])
def test_slice_bounds_of_symbolic_extents_are_pythons(extent: int) -> None:
    n = symbol("n")
    for start, stop, step in itertools.product(BOUNDS, BOUNDS, STEPS):
        first, count = slice_bounds(start, stop, step, n)
        assert elements(first, count, step, {"n": extent}) == python_slice(start, stop, step, extent), (start, stop, step)


def test_slice_bounds_of_symbols_of_any_sign() -> None:
    start, stop, n = symbol("x[0]"), symbol("x[1]"), symbol("n")
    for a, b, step, extent in itertools.product(range(-8, 9), range(-8, 9), STEPS, (0, 1, 6)):
        first, count = slice_bounds(start, stop, step, n)
        assert elements(first, count, step, {"x[0]": a, "x[1]": b, "n": extent}) == python_slice(a, b, step, extent)


def test_slice_bounds_stay_simple_where_they_can() -> None:
    past, new = symbol("past"), symbol("new")
    total = past + new
    assert slice_bounds(0, 2**63 - 1, 1, past) == (0, past)
    assert slice_bounds(past, total, 1, total) == (past, new)
    assert slice_bounds(-1, 2**63 - 1, 1, past + 1) == (past, 1)
    assert slice_bounds(1, 2**31 - 1, 1, past + 1) == (1, past)
    assert slice_bounds(-1, -(2**63), -1, past) == (past - 1, past)
    assert slice_bounds(0, 4, 2, 8) == (0, 2)


def test_lower_bounds() -> None:
    n, m = symbol("n"), symbol("m")
    assert lower_bound(n * m + 3) == 3
    assert lower_bound(n - m) is None
    assert lower_bound(symbol("x[0]")) is None
    assert is_nonnegative(slice_bounds(0, m, 1, n)[1])
    assert not is_nonnegative(n - 1)


def test_reshape_dims_divides_exactly() -> None:
    batch, seq = symbol("batch"), symbol("seq")
    assert reshape_dims((batch, seq, 768), (0, 0, 12, 64)) == (batch, seq, 12, 64)
    assert reshape_dims((batch, seq, 768), (batch, seq, 12, -1)) == (batch, seq, 12, 64)
    assert reshape_dims((batch * seq, 12), (-1, seq, 12)) == (batch, seq, 12)
    assert reshape_dims((0, 3), (0, -1), allowzero=False) == (0, 0)
    assert reshape_dims((2, 0, 3), (3, 0, 2), allowzero=True) == (3, 0, 2)


@pytest.mark.parametrize("target", [(2, 12), (-1, 6), (4, -1), (0, 12), (-1, 0, 3), (0, 0, -1)])
def test_reshape_dims_of_elements_known_at_run_time(target: tuple[int, ...]) -> None:
    shape = (2, 4, 3)
    names = [f"s[{i}]" for i in range(len(target))]
    found = reshape_dims((symbol("a"), 4, symbol("c")), [symbol(n) for n in names])
    env = {"a": 2, "c": 3} | dict(zip(names, target, strict=True))
    copied = [shape[i] if t == 0 else t for i, t in enumerate(target)]
    assert tuple(evaluate(d, env) for d in found) == np.empty(shape).reshape(copied).shape
    assert product(evaluate(d, env) for d in found) == 24


def test_reshape_dims_errors() -> None:
    with pytest.raises(ValueError, match="has more than one -1"):
        reshape_dims((4, 3), (-1, -1))
    with pytest.raises(ValueError, match=r"element 2 of the target \[4, 3, 0\] is 0: \[4, 3\] has no such axis"):
        reshape_dims((4, 3), (4, 3, 0))


def test_the_parts_of_a_cut_axis_add_up():
    n, m = symbol("n"), symbol("m")
    for k in (0, 1, 32):
        assert dim_max(n - k, 0) + dim_min(n, k) == n
        assert dim_max(n - k, 0) + (3 * m + dim_min(k, n)) == n + 3 * m
        assert n - dim_max(n - k, 0) == dim_min(n, k)
        assert is_nonnegative(n - dim_max(n - k, 0))
    assert 2 * dim_max(n - 1, 0) + 2 * dim_min(n, 1) == 2 * n
    assert dim_max(n - m, 0) + dim_min(m, n) == n
    assert n - 5 - dim_max(n - 8, 0) == dim_min(n - 5, 3)
    assert dim_max(n - 1, 0) + dim_min(n, 2) != n
    assert slice_bounds(-32, SLICE_END, 1, n)[1] == slice_bounds(0, 32, 1, n)[1]


def test_a_sum_of_many_cuts_is_quick() -> None:
    """Each cut was looked for in sums of all others: a factorial of their number."""
    sizes = [symbol(f"s{i}") for i in range(16)]
    total: Dim = symbol("n")
    for i, size in enumerate(sizes):
        total = total - dim_max(size - i, 0)
    env = {"n": 100, **{f"s{i}": 5 * i % 23 for i in range(16)}}
    assert evaluate(total + total, env) == 2 * (100 - sum(max(5 * i % 23 - i, 0) for i in range(16)))
