"""The micro-kernel of attention of many queries against float64, for all numbers of halves of vectors."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.providers.cpu.kernels.attention.attention_arguments import lane_tile
from intarsia.providers.cpu.kernels.attention.many_queries_microkernel import lane_micro_text
from intarsia.providers.cpu.kernels.common.microkernel import PARAMETERS
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros

SIGNATURE = ctypes.CFUNCTYPE(None, *[{"p": ctypes.c_void_p, "i": ctypes.c_int64}[p] for p in PARAMETERS])
TILE = lane_tile(t.host())
HALVES = range(1, 2 * TILE.vectors + 1) if t.host().halves_vectors else range(2, 2 * TILE.vectors + 1, 2)


@pytest.mark.parametrize("accumulate", [0, 1])
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 8, 33])
@pytest.mark.parametrize("halves", HALVES)
def test_sums_of_halves_of_vectors(halves: int, steps: int, accumulate: int) -> None:
    rng = np.random.default_rng(halves * 100 + steps)
    columns, used = -(-halves // 2) * TILE.lanes, halves * TILE.lanes // 2
    a, b, out = (
        aligned_zeros(shape, np.float32) for shape in ((steps, TILE.rows), (steps, columns), (TILE.rows, columns))
    )
    a[:], b[:], out[:] = (rng.standard_normal(x.shape) for x in (a, b, out))
    out[:, used:] = 0
    expected = (a.T.astype(np.float64) @ b + out * accumulate)[:, :used]
    taps = np.zeros(1, np.int64)
    micro = SIGNATURE(t.address(lane_micro_text(TILE, t.host())))
    micro(
        a.ctypes.data, 0, b.ctypes.data, 4 * columns, steps, taps.ctypes.data, 1, out.ctypes.data, accumulate, b.ctypes.data,
        64, TILE.rows, halves,
    )  # fmt: skip
    np.testing.assert_allclose(out[:, :used], expected, rtol=1e-5, atol=1e-5)
    assert (out[:, used:] == 0).all(), "beside the sums of half a vector are zeros"
