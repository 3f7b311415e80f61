"""Softmax rows: every kind of length, memory behind a row untouched, and rows without a finite maximum."""

from __future__ import annotations

import numpy as np
import pytest
from template_kernels import at_page_end, check_margin, guarded, host, random, run

from intarsia.providers.cpu.kernels.attention.softmax_kernel import kernel_text, softmax_args


def rows_of(x: np.ndarray, log: bool, threads: int = 1) -> np.ndarray:
    source = at_page_end(x)
    target, whole = guarded(x.shape)
    args = softmax_args(source.ctypes.data, target.ctypes.data, rows=x.shape[0], n=x.shape[1])
    run(kernel_text(log, host()), args, threads)
    check_margin(whole)
    return target


def expected(x: np.ndarray, log: bool) -> np.ndarray:
    wide = x.astype(np.float64)
    shifted = wide - wide.max(axis=1, keepdims=True)
    powers = np.exp(shifted)
    total = powers.sum(axis=1, keepdims=True)
    return shifted - np.log(total) if log else powers / total


@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log"])
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 31, 63, 64, 65, 127, 200, 1000])
def test_lengths(n: int, log: bool) -> None:
    x = random(np.random.default_rng(n), 5, n) * 8
    for threads in (1, 3):
        np.testing.assert_allclose(rows_of(x, log, threads), expected(x, log), rtol=2e-6, atol=1e-6 if log else 1e-7)


@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log"])
@pytest.mark.parametrize("n", [7, 80])
def test_rows_without_a_finite_maximum(n: int, log: bool) -> None:
    x = random(np.random.default_rng(0), 5, n)
    x[0, -1], x[1, 0], x[2] = np.nan, np.inf, -np.inf
    x[3, 1:] = -np.inf
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(rows_of(x, log), expected(x, log), rtol=1e-6, atol=1e-6)


def test_far_scores_are_zero_and_sum_to_one() -> None:
    x = np.array([[0.0, -100.0, -87.0, -80.0] * 10], np.float32)
    found = rows_of(x, log=False)
    np.testing.assert_allclose(found, expected(x, False), rtol=1e-6, atol=1e-37)
    assert abs(found.sum() - 1) < 1e-6
