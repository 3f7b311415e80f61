"""The TopK kernel against a stable sort, by both of its ways."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from template_kernels import at_page_end, check_margin, guarded, host, run

from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.selection import topk_kernel

DTYPES = ["float16", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))]


def expected(x: np.ndarray, k: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """Along axis 1: NaN counts as the largest number, and of equal elements the first one comes first."""
    order = np.argsort(x, axis=1, kind="stable")
    if largest:
        order = np.flip(x.shape[1] - 1 - np.argsort(np.flip(x, 1), axis=1, kind="stable"), 1)
    order = order[:, :k]
    return np.take_along_axis(x, order, 1), order


def check(x: np.ndarray, k: int, largest: bool, radix: bool | None, nthreads: int = 1) -> None:
    dtype = DType.of(x.dtype)
    outer, n, inner = x.shape
    x = at_page_end(x)
    values, around_values = guarded((outer, k, inner), x.dtype.type)
    indices, around_indices = guarded((outer, k, inner), np.int64)
    scratch = np.zeros(nthreads * topk_kernel.scratch_nbytes(dtype, n, k), np.uint8)
    args = topk_kernel.topk_args(
        dtype, outer=outer, n=n, inner=inner, k=k, x=x.ctypes.data, values=values.ctypes.data, indices=indices.ctypes.data,
        scratch=scratch.ctypes.data, radix=radix,
    )  # fmt: skip
    run(topk_kernel.kernel_text(dtype, largest, host()), args, nthreads)
    _, where = expected(x.astype(np.float64) if dtype is DType.BFLOAT16 else x, k, largest)
    wanted = np.take_along_axis(x, where, 1)
    np.testing.assert_array_equal(indices, where)
    np.testing.assert_array_equal(values.view(f"u{x.itemsize}"), wanted.view(f"u{x.itemsize}"))
    check_margin(around_values)
    check_margin(around_indices)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """With many ties, and the values at which keys go wrong."""
    if "int" in dtype:
        x = rng.integers(-20 * (dtype[0] == "i"), 20, shape).astype(dtype)
        edges = [np.iinfo(dtype).min, np.iinfo(dtype).max, 0, np.iinfo(dtype).max // 2]
    else:
        x = np.round(rng.standard_normal(shape) * 8).astype(dtype) / 4
        edges = [np.inf, -np.inf, np.nan, 0.0, -0.0, np.finfo(dtype).max, -np.finfo(dtype).smallest_subnormal, -np.nan]
    flat = x.reshape(-1)
    for value in edges:
        flat[rng.integers(0, flat.size, max(1, flat.size // 60))] = value
    return x


@pytest.mark.parametrize("radix", [False, True], ids=["insertion", "radix"])
@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64))]
)
def test_against_a_stable_sort(dtype: str, largest: bool, radix: bool) -> None:
    rng = np.random.default_rng(0)
    for n, k in ((1, 1), (5, 3), (64, 64), (300, 1), (300, 10), (80, 4), (64, 16), (67, 32), (33, 8), (1000, 129), (257, 256)):
        if not radix and k > topk_kernel.MAX_INSERTION:
            continue
        for outer, inner in ((3, 1), (2, 5)):
            check(numbers(rng, (outer, n, inner), dtype), k, largest, radix)


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
def test_bfloat16(largest: bool) -> None:
    x = numbers(np.random.default_rng(2), (3, 300, 2), "float32").astype(ml_dtypes.bfloat16)
    for k, radix in ((10, False), (150, True)):
        check(x, k, largest, radix)


def test_nothing_is_written_for_k_zero() -> None:
    check(np.ones((2, 3, 1), np.float32), 0, True, None)


@pytest.mark.parametrize("nthreads", [2, 3, 5])
def test_rows_are_shared_among_threads(nthreads: int) -> None:
    rng = np.random.default_rng(1)
    check(numbers(rng, (4, 200, 1), "float32"), 7, True, None, nthreads)
    check(numbers(rng, (1, 200, 3), "float32"), 150, True, None, nthreads)


@pytest.mark.parametrize("radix", [False, True], ids=["insertion", "radix"])
def test_rows_in_order_in_reverse_and_constant(radix: bool) -> None:
    rising = np.arange(500, dtype=np.float32)
    constant = [np.full(500, value, np.float32) for value in (np.nan, -np.inf)]
    for row in (rising, rising[::-1], *constant, 1 + rising * np.float32(2**-23)):
        for largest in (True, False):
            check(np.ascontiguousarray(row).reshape(1, 500, 1), 20, largest, radix)


def test_a_list_is_chosen_for_few_and_histograms_for_many() -> None:
    assert topk_kernel.insertion_wins(1000, 10)
    assert topk_kernel.insertion_wins(50_000, 100)
    assert not topk_kernel.insertion_wins(1000, 1000)
    assert not topk_kernel.insertion_wins(10**6, topk_kernel.MAX_INSERTION + 1)


def test_element_types_are_checked() -> None:
    with pytest.raises(ValueError, match=r"elements are float, double, float16, .*; got bool"):
        topk_kernel.kernel_text(DType.BOOL, True, host())


@pytest.mark.parametrize("dtype", DTYPES)
def test_lists_that_begin_below_the_best_of_columns(dtype: str) -> None:
    """Rows in order, both ways, of one number, of the least number but for fewer than k, and with the best side by side."""
    info = np.iinfo(dtype) if "int" in dtype else np.finfo(dtype)
    n = 131
    rising = np.arange(n) // 2 - (30 if dtype[0] != "u" else 0)
    rows = [rising, rising[::-1], np.full(n, 7), np.where(np.arange(n) % 50 == 3, 5.0, 0), np.where(np.arange(n) < 9, 9, 1)]
    x = np.stack([r.astype(dtype) for r in rows] + [np.where(np.arange(n) % 60 == 1, 1, info.min).astype(dtype)])[:, :, None]
    for k in (1, 4, 8, 16, 32):
        for largest in (True, False):
            check(x, k, largest, False)
        check(np.concatenate([np.zeros_like(x)] * 150 + [x], 1), k, True, False)
