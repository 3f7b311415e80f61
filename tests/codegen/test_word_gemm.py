"""Products of bfloat16 by VDPBF16PS and by AMX's tiles, and of bytes by tiles, in their instructions where this CPU has them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.codegen import gemm_tiles, pack, strips, tile_unit
from intarsia.codegen.epilogue import Epilogue
from intarsia.codegen.gemm import EMULATED, TILES, VECTORS, GemmSpec, Operand
from intarsia.codegen.microkernel import Tile
from intarsia.codegen.strips import Rows
from intarsia.codegen.word_gemm import strip_rows, word_micro_text, word_text, word_tile
from intarsia.graph.dtypes import DType

UNITS = [EMULATED]
UNITS += [VECTORS] * t.host().has_pairs
UNITS += [TILES] * t.host().has_tiles
SHAPES = [(1, 64, 32), (3, 100, 33), (13, 65, 128), (33, 97, 129), (60, 200, 300), (130, 96, 1500), (17, 33, 7000)]


def product(
    a: np.ndarray, b: np.ndarray, unit: str, nthreads: int = 1, epilogue: Epilogue | None = None, operands: tuple = (),
    *, rows: Rows | None = None, m: int = 0, tile: Tile | None = None,
) -> np.ndarray:  # fmt: skip
    """A [M, K] (or where `rows` says) by B [K, N] ([runs, length, N]): A float32 or bytes, B bfloat16's bits or int8."""
    source, b = DType.of(a.dtype), b if b.ndim == 3 else b[None]
    rows = rows or Rows(a.shape[1], a.strides[0])
    m = m or len(a)
    k, n = strips.words(rows.length, len(rows.displacements), source), b.shape[-1]
    tile = tile or word_tile(n, unit, t.host())
    sums = DType.FLOAT if source is DType.FLOAT else DType.INT32
    spec = GemmSpec(sums, "packed", epilogue, tile=tile, unit=unit)
    strip, displacements = strip_rows(tile, unit), np.array(rows.displacements, np.int64)
    packed = t.at_page_end(np.full(-(-m // strip) * strip * k, 7, np.uint32))
    args = strips.pack_strips_args(
        a.ctypes.data, packed.ctypes.data, m, rows, displacements.ctypes.data, gemm_tiles.block_steps(k, tile, unit),
    )  # fmt: skip
    t.run(strips.pack_strips_text(source, strip, t.host()), args, nthreads)
    panels = strips.pack_words(b, tile)
    c, whole = t.guarded((m, n), epilogue.dtype.numpy if epilogue is not None else sums.numpy)
    scratch = pack.aligned_zeros((nthreads, gemm_tiles.tiled_scratch_nbytes(spec, t.host(), m, k)), np.uint8)
    between = pack.aligned_zeros((gemm_tiles.partial_elements(m, n, tile),), np.float32)
    claims, micro = np.zeros(1, np.int64), t.address(word_micro_text(source, tile, unit, t.host()))
    for part in gemm_tiles.parts(k, tile, unit):
        args = gemm_tiles.tiled_args(
            spec, t.host(), micro=micro, a=packed.ctypes.data, b=panels.ctypes.data, c=c.ctypes.data, m=m, n=n, k=k, taps=0,
            scratch=scratch.ctypes.data, part=part, partial=between.ctypes.data, claims=claims.ctypes.data, threads=nthreads,
            operands=operands,
        )  # fmt: skip
        t.run(word_text(spec, t.host()), args, nthreads)
        assert claims[0] == 0
    t.check_margin(whole)
    return c


def rounded(x: np.ndarray) -> np.ndarray:
    """Rounded to bfloat16, as float64."""
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


def bits(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.bfloat16).view(np.uint16)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_bfloat16(m: int, n: int, k: int, unit: str) -> None:
    rng = np.random.default_rng(m * n + k)
    a, b = t.random(rng, m, k), t.random(rng, k, n)
    exact = rounded(a) @ rounded(b)
    bound = 2e-6 * (np.abs(rounded(a)) @ np.abs(rounded(b)))  # sums in float32: a thousand terms
    tiles = (Tile(14, 2, 16, 4), Tile(8, 3, 16, 4)) if unit == VECTORS else (None,)
    for tile in tiles:
        for nthreads in (1, 3):
            c = product(a, bits(b), unit, nthreads, tile=tile)
            assert (np.abs(c - exact) <= bound).all()
