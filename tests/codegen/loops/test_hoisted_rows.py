"""Values that do not change along some axes are computed once for many rows: `codegen.loops.hoisted_rows`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="loops are compiled with llvmlite")

from loop_kernels import check_loops, compiled, run_kernel
from test_loop_nest import SIZES, Case, arange, cases, normal

from intarsia.codegen.elementwise.element_types import SUPPORTED_DTYPES
from intarsia.codegen.loops import hoisted_rows, loop_nest
from intarsia.codegen.loops.hoisted_rows import BLOCK, rows_of
from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k

F, I64 = DType.FLOAT, DType.INT64
N, C, H, W = (symbol(n) for n in "nchw")


def axes_of(root: k.Tensor) -> tuple[int, ...] | None:
    found = rows_of([root], root.shape, [f"i{n}" for n in range(root.rank)], root.rank - 1)
    return None if found is None else found.axes


@pytest.fixture
def keen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rows are kept wherever that is possible."""
    for name, value in {"_LEAST": 1, "_WORTH": 0, "_SHARE": 1 << 20, "_SHARE_OUT_OF_ORDER": 1 << 20}.items():
        monkeypatch.setattr(hoisted_rows, name, value)
    loop_nest._lowered.clear()
    yield
    loop_nest._lowered.clear()


def sampled(x: k.Tensor, places: k.Tensor) -> k.Tensor:
    """x[n, c, y, x] by linear interpolation at the columns that `places` [n, 1, h, w] say."""
    low = k.unary("floor", places)
    at = [k.iota((N, 1, 1, 1), 0), k.iota((1, C, 1, 1), 1), k.iota((1, 1, H, 1), 2)]
    left, right = (k.index(x, [*at, k.cast(low + d, I64)]) for d in (0.0, 1.0))
    return left + (right - left) * (places - low)


@pytest.mark.parametrize(("n", "c", "h", "w"), [(2, 3, 5, 7), (1, BLOCK + 3, 2, 300), (3, 1, 1, 1), (0, 4, 2, 2), (1, 0, 2, 2)])
def test_places_that_are_the_same_for_all_channels(n: int, c: int, h: int, w: int) -> None:
    x, places = k.input(0, F, (N, C, H, W + 1)), k.input(1, F, (N, 1, H, W))
    root = sampled(x, k.exp(k.log(places)) * k.cast(k.size(W), F))
    assert axes_of(root) == (1,)
    arrays = [normal(n, c, h, w + 1), np.random.default_rng(w).random((n, 1, h, w), np.float32) * 0.98 + 0.01]
    check_loops([root], arrays, {"n": n, "c": c, "h": h, "w": w}, rtol=1e-3)


def test_several_axes_in_one_block() -> None:
    """What only depends on the last axis is computed once for rows of all others."""
    x, scale = k.input(0, F, (N, C, H, W)), k.input(1, F, (W,))
    root = x * k.exp(scale)
    assert axes_of(root) == (0, 1, 2)
    for n, c, h, w in ((2, 3, 5, 7), (1, 70, 2, 33), (4, 1, 41, 1), (1, 1, 1, 5000)):
        check_loops([root], [normal(n, c, h, w), normal(w)], {"n": n, "c": c, "h": h, "w": w})


def test_several_outputs() -> None:
    x, scale = k.input(0, F, (C, W)), k.input(1, F, (W,))
    row = k.exp(scale)
    roots = [x * row, k.cast(k.broadcast(row, (C, W)) * 8.0, I64)]
    check_loops(roots, [normal(37, 600), normal(600)], {"c": 37, "w": 600})


def test_types_of_rows() -> None:
    for dtype in (DType.FLOAT16, DType.BFLOAT16, DType.DOUBLE):
        x, scale = k.input(0, dtype, (C, W)), k.input(1, dtype, (W,))
        root = x * k.exp(scale)
        assert axes_of(root) == (0,)
        check_loops([root], [normal(40, 9).astype(dtype.numpy), normal(9).astype(dtype.numpy)], {"c": 40, "w": 9})


def test_indices_out_of_range_are_reported() -> None:
    x, places = k.input(0, F, (N, C, H, W + 1)), k.input(1, F, (N, 1, H, W))
    root = sampled(x, k.unary("tan", k.unary("atan", places)))
    assert axes_of(root) == (1,)
    arrays = [normal(1, 4, 2, 6), np.zeros((1, 1, 2, 5), np.float32)]
    env = {"n": 1, "c": 4, "h": 2, "w": 5}
    for value, expected in ((0.0, 0), (4.5, 0), (5.5, 1), (-1.0, 1), (1e30, 1)):
        arrays[1][0, 0, 1, 4] = value
        assert run_kernel(compiled([root]), [root], arrays, env)[1] == expected


@pytest.mark.parametrize("root", [
    k.input(0, F, (C, W)) * k.input(1, F, (W,)),  # a load is cheaper than a row
    k.exp(k.input(0, F, (C, W))),
    k.exp(k.input(0, F, (C, 1))) + k.input(1, F, (C, W)),  # the same for a whole row: computed in front of it anyway
    k.reduce_sum(k.exp(k.input(0, F, (C, W, W)) * k.exp(k.input(1, F, (W,)))), [1], False),
    k.exp(k.input(0, F, (W,))),
    k.unary("tanh", k.unary("erf", k.unary("sin", k.exp(k.input(0, F, (C, H, W)))))) + k.input(1, F, (W,)) * 2.0 * 3.0 * 4.0,
], ids=["load", "all", "outer", "reduction", "vector", "little"])  # fmt: skip
def test_where_it_does_not_pay(root: k.Tensor) -> None:
    assert axes_of(root) is None


def test_too_many_rows() -> None:
    x, y = k.input(0, F, (C, W)), k.input(1, F, (W,))
    root = x
    for i in range(hoisted_rows._MOST + 1):
        root = k.exp(root * 0.1) + k.exp(y * float(i))
    assert axes_of(root) is None
    check_loops([root], [normal(3, 9), normal(9) * 0.1], {"c": 3, "w": 9})


@pytest.mark.usefixtures("keen")
@given(
    cases(tuple(sorted(SUPPORTED_DTYPES))),
    st.lists(st.tuples(st.sampled_from(SIZES), st.sampled_from(SIZES)), min_size=1, max_size=3, unique=True),
)
@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_random_graphs(case: Case, sizes: list[tuple[int, int]]) -> None:
    if loop_nest.unsupported([case.root]):
        return
    for a, b in sizes:
        env = {"a": a, "b": b}
        if case.fits(env):
            check_loops([case.root], case.arrays(env), env)


@pytest.mark.usefixtures("keen")
def test_rows_that_are_parts_of_rows() -> None:
    y = k.input(1, F, (W,))
    part = k.exp(y)
    whole = k.unary("tanh", part)
    x = k.input(0, F, (C, W))
    check_loops([x * part + x * x * whole], [normal(5, 40), normal(40)], {"c": 5, "w": 40})


@pytest.mark.usefixtures("keen")
def test_concatenated_parts_have_rows_of_their_own() -> None:
    x, y = k.input(0, F, (C, W)), k.input(1, F, (W,))
    joined = k.concat([x * k.exp(y), x + k.unary("tanh", y), x], 0)
    check_loops([joined], [arange(3, 700) / 1000, normal(700)], {"c": 3, "w": 700})
