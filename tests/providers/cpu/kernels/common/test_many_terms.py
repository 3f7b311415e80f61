"""Micro-kernels of the tiles that are met: these are all that a number of rows is cut into, and others are right, too."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.codegen.llvm.jit import KernelText
from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.microkernel import EVERY, Met, met_of, micro_text
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import STEPS, stepped_micro_text

TILES = [Tile(14, 2, 16, 4), Tile(8, 3, 16, 4), Tile(8, 3, 8, 4), Tile(6, 4, 16, 4), Tile(6, 2, 8, 4)]
_SIGNATURE = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 13)


def cut(rows: int, tile: Tile) -> set[int]:
    """The heights of the fewest even tiles."""
    count = -(-rows // tile.rows)
    return {len(part) for part in np.array_split(np.arange(rows), count)} if count else set()


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_heights_are_all_that_rows_are_cut_into(tile: Tile) -> None:
    images = symbol("images")
    for rows in (*range(70), 98, 112, 140, 141, 196):
        heights = met_of(tile, rows, 64).heights
        assert (not heights) == (rows == 0)
        assert cut(rows, tile) <= {*heights}
        for size in (images * rows, images * images * rows + symbol("more") * 2 * rows):
            heights = met_of(tile, size, 64).heights
            assert not heights or all(cut(rows * n, tile) <= {*heights} for n in range(1, 20))
    assert met_of(tile, images * 3136, 64).heights
    assert met_of(tile, None, 64).heights == met_of(tile, images, 64).heights == ()


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_widths_are_those_of_panels(tile: Tile) -> None:
    for columns in range(1, 8 * tile.width):
        panels = [min(tile.width, columns - at) for at in range(0, columns, tile.width)]
        assert {*met_of(tile, 8, columns).widths} == {-(-width // tile.lanes) for width in panels}
    assert met_of(tile, 8, symbol("n")).widths == met_of(tile, 8, 0).widths == ()


def multiply(text: KernelText, tile: Tile, a: np.ndarray, b: np.ndarray, start: np.ndarray | None) -> np.ndarray:
    """[rows, columns] of a tile by a micro-kernel: `start` + a b."""
    (rows, k), vectors = a.shape, b.shape[1] // tile.lanes
    sums = aligned_zeros((rows, b.shape[1]), np.float32)
    if start is not None:
        sums[:] = start
    steps = "steps" in text.symbol
    taps = np.arange(k // STEPS + 1) * STEPS * 4 if steps else t.ZERO_TAP
    sizes = (0, k % STEPS) if steps else (b.shape[1] * 4, k)
    call = _SIGNATURE(t.address(text))
    call(
        a.ctypes.data, k * 4, b.ctypes.data, *sizes, taps.ctypes.data, k // STEPS if steps else 1, sums.ctypes.data,
        int(start is not None), b.ctypes.data, 0, rows, vectors,
    )  # fmt: skip
    return sums


def plain(tile: Tile, met: Met) -> KernelText:
    return micro_text(DType.FLOAT, t.host(), tile, met=met)


def by_steps(tile: Tile, met: Met) -> KernelText:
    return stepped_micro_text(DType.FLOAT, t.host(), tile, met)


@pytest.mark.parametrize("write", [plain, by_steps])
@pytest.mark.parametrize("tile", [t.tile(), Tile(6, 2, t.tile().lanes, 4)], ids=str)
def test_any_number_of_rows(write: Callable[[Tile, Met], KernelText], tile: Tile) -> None:
    rng = np.random.default_rng(0)
    whole, some = write(tile, EVERY), write(tile, Met((tile.rows - 1, tile.rows)))
    assert {part.symbol for part in some.parts} < {part.symbol for part in whole.parts}
    for vectors in range(1, tile.vectors + 1):
        b = aligned_zeros((19, vectors * tile.lanes), np.float32)
        b[:] = rng.standard_normal(b.shape)
        for rows in range(1, tile.rows + 1):
            a = t.random(rng, rows, 19)
            for start in (None, rng.standard_normal((rows, b.shape[1])).astype(np.float32)):
                expected = a.astype(np.float64) @ b + (0 if start is None else start)
                found = multiply(some, tile, a, b, start)
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
                if rows >= tile.rows - 1:
                    np.testing.assert_array_equal(found, multiply(whole, tile, a, b, start))
