"""Euclidean distances by the kernel, against float64 NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from template_kernels import THREADS, check_margin, guarded, host, random, run

from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.linalg import cdist_kernel as template


def distances(a: np.ndarray, b: np.ndarray, root: bool, threads: int = 1) -> np.ndarray:
    dtype = DType.of(a.dtype)
    out, whole = guarded((len(a), len(b)), a.dtype.type)
    scratch = np.empty(threads * template.scratch_nbytes(a.shape[1], dtype, host()), np.uint8)
    arrays = [x.ctypes.data for x in (a, b, out, scratch)]
    run(template.kernel_text(dtype, root, host()), [*arrays, len(a), len(b), a.shape[1]], threads)
    check_margin(whole)
    return out


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "n", "features"), [(1, 1, 1), (7, 33, 5), (13, 70, 64), (30, 16, 200), (5, 100, 65), (0, 4, 3)])
def test_sizes(m: int, n: int, features: int, dtype: type, threads: int) -> None:
    rng = np.random.default_rng(m + n)
    a, b = random(rng, m, features, dtype=dtype), random(rng, n, features, dtype=dtype)
    wanted = ((a[:, None].astype(np.float64) - b[None].astype(np.float64)) ** 2).sum(2)
    tolerance = 2e-6 if dtype is np.float32 else 1e-14
    np.testing.assert_allclose(distances(a, b, False, threads), wanted, rtol=tolerance)
    np.testing.assert_allclose(distances(a, b, True, threads), np.sqrt(wanted), rtol=tolerance)


def test_close_rows_keep_their_digits() -> None:
    """Far from the origin the squares of lengths, which a product would subtract, have no digit of the distance."""
    a = np.full((3, 8), 1000, np.float32)
    b = a + np.float32(2**-10) * np.arange(3, dtype=np.float32)[:, None]
    wanted = np.sqrt(8) * 2.0**-10 * np.arange(3)
    np.testing.assert_allclose(distances(a, b, True), np.broadcast_to(wanted, (3, 3)), rtol=1e-6)


def test_no_features_and_nan() -> None:
    np.testing.assert_array_equal(distances(np.empty((2, 0), np.float32), np.empty((3, 0), np.float32), True), np.zeros((2, 3)))
    a, b = np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)
    a[1, 2], b[0, 0] = np.nan, np.inf
    found = distances(a, b, False)
    assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(found[0], [np.inf, 0, 0, 0])
