"""Tensors one behind the other, written past the caches or not."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.providers.cpu.kernels.common.nontemporal_copy import CHUNK_NBYTES, joined_text, passes_caches

pytestmark = pytest.mark.skipif(not passes_caches(t.host()), reason="only for targets whose stores may pass by the caches")


@pytest.mark.parametrize("least", [0, 1 << 40])
@pytest.mark.parametrize("threads", t.THREADS)
@pytest.mark.parametrize(
    "widths", [(7, 1), (64, 64, 64), (CHUNK_NBYTES + 3, 5), (0, 40), (3 * CHUNK_NBYTES, CHUNK_NBYTES - 1)], ids=str
)
def test_rows_of_all_parts(widths: tuple[int, ...], threads: int, least: int) -> None:
    """Bytes, so that neither rows nor parts of them begin where vectors do."""
    rows, rng = 3, np.random.default_rng(0)
    parts = [rng.integers(0, 255, (rows, width), np.uint8) for width in widths]
    out, whole = t.guarded((rows, sum(widths)), np.uint8)
    addresses = [x.ctypes.data for x in (*parts, out)]
    t.run(joined_text(t.host(), len(parts)), [*addresses, rows, rows * sum(widths), least, *widths], threads)
    np.testing.assert_array_equal(out, np.concatenate(parts, 1))
    t.check_margin(whole)
