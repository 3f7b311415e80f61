"""Philox's published numbers, shares of threads, and the distributions of what is made from them."""

from __future__ import annotations

import numpy as np
import philox_reference
import pytest
from template_kernels import check_margin, guarded, host, run

from intarsia.graph.dtypes import DType
from intarsia.ops.tensor.philox import LANES
from intarsia.providers.cpu.kernels.rng.random_kernel import Form, draw_text, kernel_text


def drawn(
    kind: str, n: int, key: int, a: float = 0.0, b: float = 1.0, p: np.ndarray | None = None, threads: int = 1, stream: int = 0
) -> np.ndarray:
    y, whole = guarded((n,))
    bounds = np.array([a, b], np.float32)
    state = np.array([key % (1 << 64), stream], np.uint64)
    source = 0 if p is None else p.ctypes.data
    args = [y.ctypes.data, n, state.ctypes.data, bounds.ctypes.data, source, 0]
    run(kernel_text(Form(kind), host()), args, threads)
    check_margin(whole)
    return y


@pytest.mark.parametrize(
    ("key", "words"),
    [(0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8))],
)
def test_published_numbers(key: int, words: tuple[int, ...]) -> None:
    """Random123's known answers for counter 0."""
    found = drawn("uniform", 4 * LANES, key)[::LANES]
    np.testing.assert_array_equal(found, np.array([w >> 8 for w in words], np.float32) * np.float32(2.0**-24))


def test_elements_follow_from_key_and_place_alone() -> None:
    whole = drawn("uniform", 1000, 7)
    for n in (0, 1, 63, 64, 65, 999):
        np.testing.assert_array_equal(drawn("uniform", n, 7), whole[:n])
    np.testing.assert_array_equal(drawn("uniform", 1000, 7, threads=3), whole)
    assert (drawn("uniform", 1000, 8) != whole).mean() > 0.99
    assert (drawn("uniform", 1000, 7 + (1 << 63)) != whole).mean() > 0.99


def test_uniform_numbers() -> None:
    x = drawn("uniform", 1 << 18, 3, -2.0, 6.0).astype(np.float64)
    assert -2 <= x.min() < -1.999
    assert 5.999 < x.max() <= 6
    counts = np.histogram(x, 64, (-2, 6))[0]
    assert (np.abs(counts - 4096) < 6 * 64).all()


def test_normal_numbers() -> None:
    x = drawn("normal", 1 << 18, 3, 1.0, 2.0).astype(np.float64)
    z = (x - 1) / 2
    moments = [np.mean(z**k) for k in range(1, 5)]
    np.testing.assert_allclose(moments, [0, 1, 0, 3], atol=0.05)
    assert abs(np.corrcoef(z[::2], z[1::2])[0, 1]) < 0.01
    assert abs((np.abs(z) < 1).mean() - 0.6827) < 0.005
    assert np.isfinite(z).all()


def test_chances() -> None:
    p = np.tile(np.array([0.0, 0.25, 1.0, np.nan], np.float32), 10_000)
    found = drawn("below", len(p), 5, p=p).reshape(-1, 4)
    assert set(np.unique(found)) == {0.0, 1.0}
    np.testing.assert_allclose(found.mean(axis=0), [0, 0.25, 1, 0], atol=0.02)


@pytest.mark.parametrize(("key", "stream"), [(0, 0), (7, 1), ((1 << 64) - 3, (1 << 33) + 5)])
def test_numpy_draws_the_same(key: int, stream: int) -> None:
    state = np.array([key, stream], np.uint64).view(np.int64)
    for n in (1, 63, 200):
        np.testing.assert_array_equal(drawn("uniform", n, key, stream=stream), philox_reference.units(n, state))
        np.testing.assert_allclose(
            drawn("normal", n, key, stream=stream), philox_reference.normals(n, state), rtol=2e-6, atol=2e-6
        )


@pytest.mark.parametrize("kind", ["uniform", "normal"])
@pytest.mark.parametrize("dtype", [DType.DOUBLE, DType.FLOAT16, DType.BFLOAT16])
def test_types(kind: str, dtype: DType) -> None:
    n, form = 333, Form(kind, dtype)
    y, whole = guarded((n,), dtype.numpy)
    bounds, state = np.array([1.0, 3.0], form.bounds), np.array([9, 2], np.int64)
    run(kernel_text(form, host()), [y.ctypes.data, n, state.ctypes.data, bounds.ctypes.data, 0, 0], 2)
    check_margin(whole)
    wide = dtype is DType.DOUBLE
    if kind == "uniform":
        expected = 1.0 + 2.0 * (philox_reference.wide_units if wide else philox_reference.units)(n, state).astype(np.float64)
    else:
        expected = 1.0 + 3.0 * (philox_reference.wide_normals if wide else philox_reference.normals)(n, state)
    rtol = {DType.DOUBLE: 1e-14, DType.FLOAT16: 1e-3, DType.BFLOAT16: 8e-3}[dtype]
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=rtol, atol=rtol)
    assert wide <= (len(set(y.tolist())) == n)


def test_streams_are_counted() -> None:
    shared, state = np.array([5, 41], np.int64), np.zeros(2, np.int64)
    run(draw_text(host()), [shared.ctypes.data, state.ctypes.data], 3)
    assert (shared.tolist(), state.tolist()) == ([5, 42], [5, 42])
