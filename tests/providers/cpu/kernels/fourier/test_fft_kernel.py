"""The Fourier transform's kernel: forms and lengths against NumPy, each thread its share, nothing written outside."""

from __future__ import annotations

import numpy as np
import pytest
from template_kernels import THREADS, at_page_end, check_margin, guarded, host, random, run

from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.fourier import fft_kernel
from intarsia.providers.cpu.kernels.fourier.twiddle_tables import (
    LARGEST_RADIX,
    radices,
    smooth_at_least,
    split_of,
    tables,
    twists,
)

SHAPES = ((1, 1), (7, 1), (40, 1), (2, 3), (2, 50))  # outer and inner lines


def transform(form: fft_kernel.Form, x: np.ndarray, n: int, bins: int, scale: float, threads: int) -> np.ndarray:
    """x [outer, have, inner(, 2)] -> [outer, bins, inner(, 2)]."""
    outer, have, inner = x.shape[:3]
    y, whole = guarded((outer, bins, inner, *((2,) if form.target == "complex" else ())), form.dtype.numpy)
    found = tables(n, np.dtype(form.dtype.numpy).name)
    scratch = np.zeros(threads * fft_kernel.scratch_nbytes(form.dtype, found.smooth, host()), np.uint8)
    lines = fft_kernel.Lines((have * inner, 1, inner), (bins * inner, 1, inner), outer, inner)
    x = at_page_end(x)
    buffers = [x.ctypes.data, y.ctypes.data, 0, 0, scratch.ctypes.data]
    args = fft_kernel.kernel_args(form, host(), found, lines, have=have, bins=bins, scale=scale, buffers=buffers)
    run(fft_kernel.kernel_text(form, host()), [a.ctypes.data if isinstance(a, np.ndarray) else a for a in args], threads)
    check_margin(whole)
    return y


@pytest.mark.parametrize("dtype", [DType.FLOAT, DType.DOUBLE])
@pytest.mark.parametrize(("n", "have"), [(1, 1), (6, 6), (8, 5), (5, 8), (60, 60), (67, 67), (77, 77)])
def test_forms(dtype: DType, n: int, have: int) -> None:
    rng, rtol = np.random.default_rng(n), 1e-14 if dtype is DType.DOUBLE else 2e-6
    for (outer, inner), threads in zip(SHAPES, (*THREADS, 1), strict=False):
        x = random(rng, outer, have, inner, 2, dtype=dtype.numpy)
        z = x[..., 0] + 1j * x[..., 1].astype(np.float64)
        real = np.ascontiguousarray(x[..., 0])
        whole, half = np.fft.fft(real.astype(np.float64), n, axis=1), n // 2 + 1
        cases = [
            (fft_kernel.Form(dtype, "complex", "complex"), x, n, np.fft.fft(z, n, axis=1), 1.0),
            (fft_kernel.Form(dtype, "complex", "complex", inverse=True), x, n, np.fft.ifft(z, n, axis=1), 1 / n),
            (fft_kernel.Form(dtype, "real", "complex", paired=True), real, half, whole[:, :half], 1.0),
            (fft_kernel.Form(dtype, "real", "complex"), real, n, whole, 1.0),
            (fft_kernel.Form(dtype, "half", "real", inverse=True, paired=True), x, n, np.fft.irfft(z, n, axis=1), 1 / n),
        ]
        for form, given, bins, expected, scale in cases:
            y = transform(form, given, n, bins, scale, threads)
            found = y[..., 0] + 1j * y[..., 1] if form.target == "complex" else y
            np.testing.assert_allclose(found, expected, rtol=0, atol=rtol * np.abs(expected).max(), err_msg=str(form))


def test_factors() -> None:
    for n in range(1, 400):
        found = radices(n)
        assert found is None or int(np.prod(found)) == n
        assert (found is None) == any(n % p == 0 for p in range(LARGEST_RADIX + 1, n + 1) if all(p % q for q in range(2, p)))
    assert [smooth_at_least(n) for n in (1, 7, 13, 17, 133, 1025)] == [1, 8, 15, 18, 135, 1080]
    assert split_of(4096, 16) == (64, 64)
    assert split_of(2 * 67, 2) is None
    assert split_of(3 * 17, 8) is None


def test_twists_are_roots_of_unity() -> None:
    re, im = twists(3, 5, False, "float64")
    found = (re + 1j * im)[:15].reshape(3, 5)
    np.testing.assert_allclose(found, np.exp(-2j * np.pi * np.outer(range(3), range(5)) / 15), atol=1e-15)
