"""Micro-kernels alone: every tile, few and odd steps, several taps, with and without earlier sums."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.codegen.llvm.jit import KernelText, emit_assembly
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.microkernel import micro_text, tiled_micro_text, tiled_rows
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros
from intarsia.providers.cpu.kernels.common.tiles import Tile, product_tile, tile_of
from intarsia.providers.cpu.kernels.matmul.vnni_kernel import pair_rows_text, tiled_pairs_text

_MICRO = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 13)
_MANY = 4096  # columns
STEPS = (0, 1, 2, 3, 4, 7, 16)
PAIRS = pytest.mark.skipif(not t.host().has_pairs, reason="the CPU has no VDPBF16PS")


def aligned(x: np.ndarray) -> np.ndarray:
    found = aligned_zeros(x.shape, x.dtype)
    found[...] = x
    return found


def bfloat16(x: np.ndarray) -> np.ndarray:
    """The upper halves of float32."""
    return (np.ascontiguousarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def check(
    text: KernelText, tile: Tile, rows: int, vectors: int, k: int, ntaps: int, *, dtype: DType, packed: bool, pairs: bool
) -> None:  # fmt: skip
    """`packed`: A is [k][rows], else in rows; `pairs`: k counts words of two bfloat16."""
    rng, each, width = np.random.default_rng(k + 10 * rows), 2 if pairs else 1, vectors * tile.lanes
    a, b = rng.standard_normal((ntaps, rows, k, each)), rng.standard_normal((ntaps, k, width, each))
    if pairs:  # numbers of few bits, which both types hold
        a, b = np.round(a * 8) / 8, np.round(b * 8) / 8
    expected = np.einsum("trke,tkce->rc", a, b)
    stored = bfloat16 if pairs else dtype.numpy.type
    laid = stored(a.transpose(2, 1, 0, 3) if packed else a.transpose(1, 0, 2, 3))
    a_at, b_at = aligned(laid), aligned(stored(b))
    taps = np.arange(ntaps, dtype=np.int64) * k * tile.itemsize
    for accumulate in (0, 1):
        memory = aligned_zeros((rows * width + 16,), dtype.numpy)
        memory[:] = 0.5
        _MICRO(t.address(text))(
            a_at.ctypes.data, ntaps * k * tile.itemsize, b_at.ctypes.data, width * tile.itemsize, k, taps.ctypes.data, ntaps,
            memory.ctypes.data, accumulate, b_at.ctypes.data, 0, rows, vectors,
        )  # fmt: skip
        found = memory[:-16].reshape(rows, width)
        np.testing.assert_allclose(found, expected + accumulate * 0.5, rtol=1e-5, atol=1e-5)
        assert (memory[-16:] == 0.5).all(), "written behind the tile"


def tiles(dtype: DType) -> list[Tile]:
    return sorted({tile_of(dtype, t.host()), product_tile(_MANY, dtype, t.host())}, key=lambda tile: tile.rows)


@pytest.mark.parametrize("dtype", [DType.FLOAT, DType.DOUBLE])
@pytest.mark.parametrize("k", STEPS)
def test_rows(k: int, dtype: DType) -> None:
    for tile in tiles(dtype):
        for rows in range(1, tile.rows + 1):
            for vectors in range(1, tile.vectors + 1):
                for ntaps in (1, 3):
                    text = micro_text(dtype, t.host(), tile)
                    check(text, tile, rows, vectors, k, ntaps, dtype=dtype, packed=False, pairs=False)


@pytest.mark.parametrize("dtype", [DType.FLOAT, DType.DOUBLE])
@pytest.mark.parametrize("k", STEPS)
def test_packed(k: int, dtype: DType) -> None:
    for tile in tiles(dtype):
        for rows in range(tiled_rows(tile), tile.rows + 1):
            for vectors in range(1, tile.vectors + 1):
                check(tiled_micro_text(dtype, t.host(), tile), tile, rows, vectors, k, 1, dtype=dtype, packed=True, pairs=False)


@PAIRS
@pytest.mark.parametrize("k", STEPS)
def test_pairs(k: int) -> None:
    tile = product_tile(_MANY, DType.FLOAT, t.host())
    for rows in range(1, tile.rows + 1):
        for vectors in range(1, tile.vectors + 1):
            text = pair_rows_text(tile, t.host())
            check(text, tile, rows, vectors, k, 2, dtype=DType.FLOAT, packed=False, pairs=True)
            if rows >= tiled_rows(tile):
                text = tiled_pairs_text(tile, t.host())
                check(text, tile, rows, vectors, k, 1, dtype=DType.FLOAT, packed=True, pairs=True)


def test_sums_before_are_not_spilled() -> None:
    """Twelve sums of 16 registers, to which those in memory are added."""
    target = Target.create("x86_64-unknown-linux-gnu", "znver3", "+avx2,+fma")
    for make in (micro_text, tiled_micro_text):
        text = emit_assembly(make(DType.FLOAT, target, tile_of(DType.FLOAT, target)).ir, target)
        kept = [line for line in text.splitlines() if "%ymm" in line and "(%rsp)" in line]
        assert kept == []
