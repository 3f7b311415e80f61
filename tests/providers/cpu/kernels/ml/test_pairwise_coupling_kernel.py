"""Probabilities of pairs by the kernel: the method in NumPy is the reference, down to the round in which a row stops."""

from __future__ import annotations

import numpy as np
import pytest
from template_kernels import THREADS, check_margin, guarded, host, random, run

from intarsia.ops.ml.linear import pair_probabilities
from intarsia.providers.cpu.kernels.ml import pairwise_coupling_kernel as template


def computed(raw: np.ndarray, a: np.ndarray, b: np.ndarray, classes: int, threads: int) -> np.ndarray:
    out, whole = guarded((len(raw), classes), np.float64)
    scratch = np.empty(threads * template.scratch_nbytes(classes, host()) // 8)
    arrays = [x.ctypes.data for x in (raw, a, b, out, scratch)]
    run(template.kernel_text(host()), [*arrays, len(raw), classes], threads)
    check_margin(whole)
    return out


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("classes", [2, 3, 5, 12])
@pytest.mark.parametrize("rows", [0, 1, 8, 37])
def test_against_numpy(rows: int, classes: int, threads: int) -> None:
    rng = np.random.default_rng(rows + classes)
    pairs = classes * (classes - 1) // 2
    raw = random(rng, rows, pairs, dtype=np.float64)
    raw *= 10 ** rng.uniform(-2, 2, (rows, 1))  # some rows need many rounds, some none
    a, b = -np.abs(random(rng, pairs, dtype=np.float64)) - 0.1, random(rng, pairs, dtype=np.float64)
    found = computed(raw, a, b, classes, threads)
    np.testing.assert_allclose(found, pair_probabilities(raw, a, b, classes), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-12)


def test_scores_out_of_range() -> None:
    """Rows of a vector do not disturb each other: infinities are clipped, NaN leaves its row where it began."""
    rng = np.random.default_rng(1)
    raw = rng.standard_normal((9, 6))
    raw[1], raw[3, 2], raw[5], raw[6, 0] = np.inf, np.nan, 1e300, -np.inf
    a, b = np.full(6, -1.5), np.zeros(6)
    found = computed(raw, a, b, 4, 1)
    np.testing.assert_allclose(found, pair_probabilities(raw, a, b, 4), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found[3], 0.25)
