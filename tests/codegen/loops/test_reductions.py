"""Reductions over every set of axes, of sizes that LLVM could write out: how their loops are left to it, and what they give."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="loops are compiled with llvmlite")

from loop_kernels import compiled, run_kernel

from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k

AXES = [axes for n in (1, 2, 3) for axes in itertools.combinations(range(3), n)]


@pytest.mark.parametrize("shape", [(3, 28, 28), (17, 31, 9), (5, 12, 1)])
def test_sums_and_extrema_of_every_set_of_axes(shape: tuple[int, ...]) -> None:
    data = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    x = k.input(0, DType.FLOAT, shape)
    for axes in AXES:
        for root, wanted in (
            (k.reduce_sum(x, axes), data.sum(axes, np.float64)),
            (k.reduce_mean(x, axes), data.mean(axes, np.float64)),
            (k.reduce_max(x, axes), data.max(axes)),
        ):
            (got,), _ = run_kernel(compiled([root]), [root], [data], {}, 2)
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-4)


def test_a_sum_along_memory_is_summed_in_vectors() -> None:
    """LLVM would write 28 terms out and gather those of neighbouring sums."""
    text = compiled([k.reduce_sum(k.input(0, DType.FLOAT, (64, 28)), [1])]).text.ir
    assert "llvm.loop.unroll.disable" in text
    assert "fadd reassoc" in text


def test_few_terms_are_written_out() -> None:
    text = compiled([k.reduce_sum(k.input(0, DType.FLOAT, (64, 3)), [1])]).text.ir
    assert "llvm.loop.unroll.disable" not in text


def test_sums_beside_each_other_stay_in_order() -> None:
    """LLVM would see a sum in each column and gather its terms."""
    text = compiled([k.reduce_sum(k.input(0, DType.FLOAT, (28, 28)), [0])]).text.ir
    assert "fadd" in text
    assert "reassoc" not in text


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("taps", [2, 3, 4])
def test_extrema_of_windows_are_nan_where_one_element_is(op: str, taps: int) -> None:
    """Every place in a window: NaN is looked for in two elements at once."""
    data = np.random.default_rng(4).standard_normal((7, 64)).astype(np.float32)
    data[np.arange(7), 8 * np.arange(7)] = np.nan
    data[3, 20:30] = -np.inf if op == "max" else np.inf
    windows = k.windows(k.input(0, DType.FLOAT, (7, 64)), (1,), (taps,), (1,), (1,))
    root = k.reduce(windows, op, [2])
    (got,), _ = run_kernel(compiled([root]), [root], [data], {}, 2)
    seen = np.lib.stride_tricks.sliding_window_view(data, taps, axis=1)
    np.testing.assert_array_equal(got, seen.max(2) if op == "max" else seen.min(2))


@pytest.mark.parametrize("op", ["max", "min"])
def test_extrema_of_columns_are_nan_where_one_element_is(op: str) -> None:
    """Every place in a column, in vectors and in what is left of a row; a NaN that is met first stays."""
    data = np.random.default_rng(5).standard_normal((9, 2, 43)).astype(np.float32)
    data[np.arange(9), 0, 4 * np.arange(9)] = data[np.arange(9), 1, 42 - np.arange(9)] = np.nan
    root = k.reduce(k.input(0, DType.FLOAT, data.shape), op, [0])
    (got,), _ = run_kernel(compiled([root]), [root], [data], {}, 2)
    np.testing.assert_array_equal(got, data.max(0) if op == "max" else data.min(0))


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("width", [9, 12, 16, 20, 28, 31, 64])
def test_extrema_of_short_rows_are_nan_where_one_element_is(op: str, width: int) -> None:
    """Rows of vectors, halves and quarters, and others; NaN in the first, the last and a middle one of what is reduced."""
    data = np.random.default_rng(width).standard_normal((4, 11, width)).astype(np.float32)
    data[0, 0, 1] = data[1, -1, width - 1] = data[2, 5, width // 2] = np.nan
    data[3, :, 0], data[3, 4, 2] = -np.inf, np.inf
    for root, axes in ((k.reduce(k.input(0, DType.FLOAT, data.shape), op, axes), axes) for axes in ([1], [0, 1], [0])):
        (got,), _ = run_kernel(compiled([root]), [root], [data], {}, 2)
        np.testing.assert_array_equal(got, getattr(np, op)(data, tuple(axes)))


@pytest.mark.parametrize("width", [9, 12, 14, 15, 16])
@pytest.mark.parametrize("step", [2, 3, 4, 5, -1])
def test_short_rows_that_are_read_in_steps(width: int, step: int) -> None:
    rng = np.random.default_rng(width)
    data = rng.standard_normal((5, 6, (width - 1) * abs(step) + 2)).astype(np.float32)
    x = k.input(0, DType.FLOAT, data.shape)
    first = 1 if step > 0 else width
    sliced = k.strided_slice(x, (0, 0, first), (1, 1, step), (5, 6, width))
    roots = [(k.exp(sliced), np.exp(data[:, :, first::step][:, :, :width]))]
    if step > 0:
        padded = k.pad(x, (0, 1, 1), (0, 1, 1), -np.inf)
        view = k.windows(padded, (1, 2), (2, 2), (step, step), (1, 1))
        around = np.pad(data, ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        pairs = np.lib.stride_tricks.sliding_window_view(around, (2, 2), (1, 2))[:, ::step, ::step]
        roots.append((k.reduce(view, "max", (3, 4)), pairs.max((3, 4))))
    for root, wanted in roots:
        (got,), _ = run_kernel(compiled([root]), [root], [data], {}, 2)
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_short_rows_of_windows_with_steps_are_shuffled_not_gathered() -> None:
    x = k.input(0, DType.FLOAT, (8, 28, 28))
    largest = k.reduce(k.windows(x, (1, 2), (2, 2), (2, 2), (1, 1)), "max", (3, 4))
    text = compiled([largest]).text.ir
    assert "llvm.loop.vectorize.enable" in text
    assert "llvm.loop.vectorize.predicate.enable" not in text
