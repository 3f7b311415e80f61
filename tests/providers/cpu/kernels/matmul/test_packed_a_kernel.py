from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common import pack_b
from intarsia.providers.cpu.kernels.common.microkernel import micro_text, tiled_micro_text, tiled_rows
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros, pack_matrix
from intarsia.providers.cpu.kernels.common.tiles import Tile, product_tile, tile_of
from intarsia.providers.cpu.kernels.matmul import packed_a_kernel
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec, Operand
from intarsia.providers.cpu.kernels.matmul.pack_a import k_block, pack_tiles_args, pack_tiles_text


def packed_a(a: np.ndarray, tile: Tile, nthreads: int) -> np.ndarray:
    (m, k), out = a.shape, np.full(a.size, np.nan, a.dtype)
    args = pack_tiles_args(a.ctypes.data, k * a.itemsize, out.ctypes.data, m, k, tile)
    t.run(pack_tiles_text(DType.of(a.dtype), tile, t.host()), args, nthreads)
    return out


def product(
    spec: GemmSpec, a: np.ndarray, b: np.ndarray, c: np.ndarray, nthreads: int, operands: Sequence[Operand] = ()
) -> None:
    """C = epilogue(A B), A packed where it has rows enough."""
    tile, (m, k), n = spec.tile or tile_of(spec.dtype, t.host()), a.shape, b.shape[1]
    packed = packed_a(a, tile, nthreads).ctypes if packed_a_kernel.packs(m, tile) else None
    narrow = pack_b.in_fewer_bits(b, spec.stored) if spec.stored is not None else b
    texts = micro_text(spec.dtype, t.host(), tile, spec.stored), tiled_micro_text(spec.dtype, t.host(), tile)
    assert narrow is not None
    panels = pack_matrix(narrow, tile)
    nbytes = packed_a_kernel.tiled_scratch_nbytes(spec, t.host(), m, k)
    scratch = aligned_zeros((nthreads, nbytes), np.uint8)
    sums = aligned_zeros((packed_a_kernel.partial_elements(m, n, tile),), a.dtype)
    claims = np.zeros(1, np.int64)
    for part in packed_a_kernel.parts(k, tile):
        args = packed_a_kernel.tiled_args(
            spec, t.host(), micro=(t.address(texts[0]), t.address(texts[1])),
            a=(0 if packed is not None else a.ctypes.data, packed.data if packed is not None else 0),
            b=panels.ctypes.data, c=c.ctypes.data, m=m, n=n, k=k, taps=t.ZERO_TAP.ctypes.data, part=part,
            scratch=scratch.ctypes.data, partial=sums.ctypes.data, claims=claims.ctypes.data, threads=nthreads,
            operands=operands,
        )  # fmt: skip
        t.run(packed_a_kernel.tiled_text(spec, t.host()), args, nthreads)
        assert claims[0] == 0


@pytest.mark.parametrize("dtype", [DType.FLOAT, DType.DOUBLE])
@pytest.mark.parametrize(("m", "k"), [(56, 16), (57, 1), (99, 133), (128, 300), (61, 129)])
def test_packed_order(m: int, k: int, dtype: DType) -> None:
    a = np.arange(m * k, dtype=dtype.numpy).reshape(m, k)
    for tile in {tile_of(dtype, t.host()), product_tile(4096, dtype, t.host())}:
        block, tiles = k_block(k, tile), -(-m // tile.rows)
        parts = []
        for first in range(0, k, block):
            edges = [m // tiles * i + min(i, m % tiles) for i in range(tiles + 1)]
            parts += [a[low:high, first : first + block].T.ravel() for low, high in pairwise(edges)]
        for nthreads in t.THREADS:
            np.testing.assert_array_equal(packed_a(a, tile, nthreads), np.concatenate(parts))


@pytest.mark.parametrize("dtype", [DType.FLOAT, DType.DOUBLE])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (1, 48, 5), (9, 100, 64), (31, 96, 700), (32, 192, 33), (57, 97, 130), (64, 33, 129), (70, 65, 1500), (130, 48, 2700),
        (700, 64, 600), (300, 300, 1000),
    ],
)  # fmt: skip
def test_product(m: int, n: int, k: int, dtype: DType) -> None:
    rng = np.random.default_rng(m * n + k)
    a, b = t.random(rng, m, k, dtype=dtype.numpy), t.random(rng, k, n, dtype=dtype.numpy)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    for tile in {tile_of(dtype, t.host()), product_tile(4096, dtype, t.host())}:
        for nthreads in t.THREADS:
            c, whole = t.guarded((m, n), dtype.numpy)
            product(GemmSpec(dtype, tile=tile), a, b, c, nthreads)
            np.testing.assert_allclose(c, expected, rtol=0, atol=(1e-5 if dtype is DType.FLOAT else 1e-13) * (k + 1) ** 0.5)
            t.check_margin(whole)


@pytest.mark.parametrize("stored", [DType.FLOAT16, DType.BFLOAT16, DType.INT8])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 48, 5), (9, 100, 64), (31, 96, 700), (32, 192, 33), (57, 97, 130), (130, 50, 2700)]
)
def test_weights_of_fewer_bits(m: int, n: int, k: int, stored: DType) -> None:
    """Exactly the float32 product of what was rounded."""
    rng = np.random.default_rng(m * n + k)
    a, b = t.random(rng, m, k), t.random(rng, k, n)
    if stored is DType.INT8:
        a, b = a / 128, rng.integers(-128, 128, (k, n)).astype(np.float32)
    rounded = b.astype(stored.numpy).astype(np.float64)
    tile = product_tile(4096, DType.FLOAT, t.host())
    for nthreads in t.THREADS:
        c, whole = t.guarded((m, n), np.float32)
        product(GemmSpec(DType.FLOAT, tile=tile, stored=stored), a, b, c, nthreads)
        np.testing.assert_allclose(c, a.astype(np.float64) @ rounded, rtol=0, atol=1e-5 * (k + 1) ** 0.5)
        t.check_margin(whole)


def test_rounding_to_16_bits() -> None:
    """Half to even, like ml_dtypes; None where a finite number becomes infinite; infinity and NaN are kept."""
    rng = np.random.default_rng(3)
    numbers = np.concatenate([rng.standard_normal(500), [0.0, -0.0, 1e-40, 65504, 1 + 2**-8, 1 + 3 * 2**-8]]).astype(np.float32)
    for stored in (DType.FLOAT16, DType.BFLOAT16):
        found = pack_b.in_16_bits(numbers, stored)
        assert found is not None
        np.testing.assert_array_equal(found, numbers.astype(stored.numpy).view(np.uint16))
        kept = pack_b.in_16_bits(np.array([np.inf, -np.inf, np.nan], np.float32), stored)
        assert kept is not None
        np.testing.assert_array_equal(kept.view(stored.numpy).astype(np.float32), [np.inf, -np.inf, np.nan])
    assert pack_b.in_16_bits(np.array([65520], np.float32), DType.FLOAT16) is None
    whole = np.array([-128, 0, 127], np.float32)
    np.testing.assert_array_equal(pack_b.in_fewer_bits(whole, DType.INT8), whole.astype(np.int8))
    for number in (0.5, 128, -129, np.nan, np.inf):
        assert pack_b.in_fewer_bits(np.array([1, number], np.float32), DType.INT8) is None
    assert pack_b.in_16_bits(np.array([3.4e38], np.float32), DType.BFLOAT16) is None


@pytest.mark.parametrize(("m", "n", "k"), [(5, 50, 40), (60, 100, 200), (75, 70, 1600)])
def test_epilogue_comes_once(m: int, n: int, k: int) -> None:
    """After the last part of K, with operands of every kind."""
    rng = np.random.default_rng(k)
    a, b = t.random(rng, m, k), t.random(rng, k, n)
    column, row, full = t.random(rng, n), t.random(rng, m, 1), t.random(rng, m, n)
    scalar = np.array([1.5], np.float32)
    expected = t.every_kind_numpy(a.astype(np.float64) @ b, column, row, full, 1.5)
    places = [Operand(column.ctypes.data), Operand(row.ctypes.data, row=4), Operand(full.ctypes.data, row=4 * n)]
    tile = product_tile(4096, DType.FLOAT, t.host())
    for nthreads in t.THREADS:
        c, whole = t.guarded((m, n), np.float16)
        spec = GemmSpec(DType.FLOAT, "packed", t.every_kind(), tile=tile)
        product(spec, a, b, c, nthreads, [*places, Operand(scalar.ctypes.data)])
        np.testing.assert_allclose(c, expected, rtol=2e-3, atol=2e-2)
        t.check_margin(whole)


@pytest.mark.parametrize("k", [1, 100, 128, 129, 768, 1281, 3072, 10000])
def test_parts_are_whole_blocks(k: int) -> None:
    tile = product_tile(4096, DType.FLOAT, t.host())
    found = packed_a_kernel.parts(k, tile)
    assert [first for first, _ in found] == [sum(s for _, s in found[:i]) for i in range(len(found))]
    assert sum(steps for _, steps in found) == k
    assert all(first % k_block(k, tile) == 0 for first, _ in found)


def test_rows_of_even_tiles() -> None:
    """The micro-kernel for packed A has variants for every tile that even cuts give."""
    for tile in (Tile(14, 2, 16, 4), Tile(8, 3, 16, 4), Tile(6, 2, 8, 4)):
        for m in range(4 * tile.rows, 40 * tile.rows):
            assert packed_a_kernel.packs(m, tile) and m // -(-m // tile.rows) >= tiled_rows(tile)
