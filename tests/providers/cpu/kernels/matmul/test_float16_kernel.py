"""Products in float16 with float32 sums of blocks."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.matmul import float16_kernel, pack_a, packed_a_kernel
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec, Operand

TILES = (Tile(14, 2, 32, 2), Tile(8, 3, 32, 2))
needs_halves = pytest.mark.skipif(not t.host().has("avx512fp16"), reason="this CPU has no arithmetic of float16")


def product(
    a: np.ndarray, b: np.ndarray, tile: Tile, nthreads: int, epilogue: Epilogue | None = None, operands: tuple = ()
) -> np.ndarray:
    (m, k), n = a.shape, b.shape[1]
    spec = GemmSpec(DType.FLOAT, "packed", epilogue, tile=float16_kernel.sums_tile(tile), halves=True)
    panels = float16_kernel.pack_half_weights(b, tile)
    assert panels is not None
    packed = t.at_page_end(np.full(m * float16_kernel.packed_columns(k, tile), 7, np.float16))
    t.run(
        float16_kernel.pack_halves_text(tile, t.host()),
        float16_kernel.pack_halves_args(a.ctypes.data, 4 * k, packed.ctypes.data, m, k, tile),
        nthreads,
    )
    c, whole = t.guarded((m, n), epilogue.dtype.numpy if epilogue is not None else np.float32)
    scratch = aligned_zeros((nthreads, packed_a_kernel.tiled_scratch_nbytes(spec, t.host(), m, k)), np.uint8)
    sums = aligned_zeros((packed_a_kernel.partial_elements(m, n, float16_kernel.sums_tile(tile)),), np.float32)
    claims, micro = np.zeros(1, np.int64), t.address(float16_kernel.half_micro_text(tile, t.host()))
    for part in packed_a_kernel.parts(k, float16_kernel.sums_tile(tile)):
        args = packed_a_kernel.tiled_args(
            spec, t.host(), micro=(micro, micro), a=(0, packed.ctypes.data), b=panels.ctypes.data, c=c.ctypes.data,
            m=m, n=n, k=k, taps=0, scratch=scratch.ctypes.data, part=part, partial=sums.ctypes.data,
            claims=claims.ctypes.data, threads=nthreads, operands=operands,
        )  # fmt: skip
        t.run(float16_kernel.half_text(spec, t.host()), args, nthreads)
        assert claims[0] == 0
    t.check_margin(whole)
    return c


def model(a: np.ndarray, b: np.ndarray, tile: Tile) -> np.ndarray:
    """What the kernels compute, in NumPy's float16: one rounding for each product's addition."""
    k, block = a.shape[1], pack_a.k_block(a.shape[1], float16_kernel.sums_tile(tile))
    columns = 2.0 ** np.floor(np.log2(np.abs(b).max(0)))
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for first in range(0, k, block):
        part = a[:, first : first + block]
        rows = 2.0 ** (np.floor(np.log2(np.abs(part).max(1, keepdims=True))) - 6)
        left = (part / rows).astype(np.float16).astype(np.float64)
        right = (b[first : first + block] / columns).astype(np.float16).astype(np.float64)
        sums = np.zeros(total.shape, np.float16)
        for p in range(left.shape[1]):
            sums = (sums.astype(np.float64) + left[:, p : p + 1] * right[p]).astype(np.float16)  # exact, then rounded
        total += (sums.astype(np.float32) * rows.astype(np.float32)) * columns.astype(np.float32)
    return total


@needs_halves
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 64, 32), (3, 100, 33), (13, 65, 128), (29, 97, 129), (60, 200, 300), (130, 96, 1500)]
)
def test_product(m: int, n: int, k: int, tile: Tile) -> None:
    rng = np.random.default_rng(m * n + k)
    a, b = t.random(rng, m, k), t.random(rng, k, n)
    for nthreads in t.THREADS:
        c = product(a, b, tile, nthreads)
        np.testing.assert_allclose(c, model(a, b, tile), rtol=1e-5, atol=1e-5)
    exact = a.astype(np.float64) @ b
    assert np.sqrt(((c - exact) ** 2).mean() / (exact**2).mean()) < 3e-3


@needs_halves
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_numbers_beyond_float16(tile: Tile) -> None:
    """Rows and columns have scales of their own: nothing overflows or vanishes, and one does not disturb another."""
    rng = np.random.default_rng(5)
    a, b = t.random(rng, 20, 200), t.random(rng, 200, 70)
    rows, columns = 10.0 ** rng.integers(-20, 17, (20, 1)), 10.0 ** rng.integers(-12, 12, 70)
    plain = product(a, b, tile, 2).astype(np.float64)
    scaled = product((a * rows).astype(np.float32), (b * columns).astype(np.float32), tile, 2)
    error = np.abs(scaled / rows / columns - plain).max()
    assert np.isfinite(scaled).all() and error < 0.2, error  # sums are about 14, and scales round differently
    np.testing.assert_array_equal(product(np.zeros_like(a), b, tile, 1), np.zeros((20, 70), np.float32))
    np.testing.assert_array_equal(product(a, np.zeros_like(b), tile, 1), np.zeros((20, 70), np.float32))


@needs_halves
def test_infinity_and_nan_stay_in_their_rows() -> None:
    rng = np.random.default_rng(6)
    a, b = t.random(rng, 9, 70), np.abs(t.random(rng, 70, 64))
    expected = product(a, b, TILES[0], 1)
    a[2, 5], a[4, 69], a[6, 0] = np.inf, np.nan, -np.inf
    found = product(a, b, TILES[0], 1)
    assert np.isposinf(found[2]).all() and np.isnan(found[4]).all() and np.isneginf(found[6]).all()
    kept = [0, 1, 3, 5, 7, 8]
    np.testing.assert_array_equal(found[kept], expected[kept])


@needs_halves
@pytest.mark.parametrize(("m", "n", "k"), [(5, 50, 40), (60, 100, 200), (75, 70, 1600)])
def test_epilogue_comes_once(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(k)
    a, b, column, row, full = (t.random(rng, *s) for s in ((m, k), (k, n), (n,), (m, 1), (m, n)))
    scalar = np.array([1.5], np.float32)
    places = [Operand(column.ctypes.data), Operand(row.ctypes.data, row=4), Operand(full.ctypes.data, row=4 * n)]
    c = product(a, b, TILES[1], 3, t.every_kind(), (*places, Operand(scalar.ctypes.data)))
    expected = t.every_kind_numpy(model(a, b, TILES[1]).astype(np.float64), column, row, full, 1.5)
    np.testing.assert_allclose(c, expected, rtol=2e-3, atol=2e-2)


def test_weights_that_are_not_finite_are_refused() -> None:
    for number in (np.inf, -np.inf, np.nan):
        b = np.ones((40, 70), np.float32)
        b[3, 4] = number
        assert float16_kernel.pack_half_weights(b, TILES[0]) is None


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_broadcasts_are_part_of_the_multiplication(tile: Tile) -> None:
    """A broadcast of 16 bits by itself costs a shuffle; full tiles must not have one."""
    features = "+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx512fp16,+f16c,+fma,+avx2"
    target = Target.create("x86_64-unknown-linux-gnu", "sapphirerapids", features)
    text = t.assembly(float16_kernel.half_micro_text(tile, target), target)
    assert text.count("{1to32}") > 200 and text.count("vpbroadcastw") < 40
