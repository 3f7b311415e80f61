"""Products of bfloat16 by VDPBF16PS and by AMX's tiles, and of bytes by tiles; by instructions where this CPU has them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.common.units import EMULATED, TILES, VECTORS
from intarsia.providers.cpu.kernels.matmul import packed_a_kernel, vnni_layout
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec, Operand
from intarsia.providers.cpu.kernels.matmul.vnni_kernel import strip_rows, word_micro_text, word_text, word_tile
from intarsia.providers.cpu.kernels.matmul.vnni_layout import Rows

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
    k, n = vnni_layout.words(rows.length, len(rows.displacements), source), b.shape[-1]
    tile = tile or word_tile(n, unit, t.host())
    sums = DType.FLOAT if source is DType.FLOAT else DType.INT32
    spec = GemmSpec(sums, "packed", epilogue, tile=tile, unit=unit)
    strip, displacements = strip_rows(tile, unit), np.array(rows.displacements, np.int64)
    packed = t.at_page_end(np.full(-(-m // strip) * strip * k, 7, np.uint32))
    args = vnni_layout.pack_strips_args(
        a.ctypes.data, packed.ctypes.data, m, rows, displacements.ctypes.data, packed_a_kernel.block_steps(k, tile, unit),
    )  # fmt: skip
    t.run(vnni_layout.pack_strips_text(source, strip, t.host()), args, nthreads)
    panels = vnni_layout.pack_words(b, tile)
    c, whole = t.guarded((m, n), epilogue.dtype.numpy if epilogue is not None else sums.numpy)
    scratch = aligned_zeros((nthreads, packed_a_kernel.tiled_scratch_nbytes(spec, t.host(), m, k)), np.uint8)
    between = aligned_zeros((packed_a_kernel.partial_elements(m, n, tile),), np.float32)
    claims, micro = np.zeros(1, np.int64), t.address(word_micro_text(source, tile, unit, t.host()))
    for part in packed_a_kernel.parts(k, tile, unit):
        args = packed_a_kernel.tiled_args(
            spec, t.host(), micro=(micro, micro), a=(0, packed.ctypes.data), b=panels.ctypes.data, c=c.ctypes.data, m=m, n=n,
            k=k, taps=0, scratch=scratch.ctypes.data, part=part, partial=between.ctypes.data, claims=claims.ctypes.data,
            threads=nthreads, operands=operands,
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


@pytest.mark.parametrize("unit", UNITS)
def test_bits_do_not_depend_on_threads_or_rows(unit: str) -> None:
    rng = np.random.default_rng(1)
    a, b = t.random(rng, 75, 900), bits(t.random(rng, 900, 100))
    whole = product(a, b, unit, 1)
    np.testing.assert_array_equal(product(a, b, unit, 5), whole)
    np.testing.assert_array_equal(product(a[40:61].copy(), b, unit, 2), whole[40:61])


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("m", "n", "k"), [(5, 50, 40), (60, 100, 200), (75, 70, 7000)])
def test_epilogue_comes_once(m: int, n: int, k: int, unit: str) -> None:
    rng = np.random.default_rng(k)
    a, b, column, row, full = (t.random(rng, *s) for s in ((m, k), (k, n), (n,), (m, 1), (m, n)))
    a, column = a / np.float32(np.sqrt(k)), np.ascontiguousarray(column)
    scalar = np.array([1.5], np.float32)
    places = [Operand(column.ctypes.data), Operand(row.ctypes.data, row=4), Operand(full.ctypes.data, row=4 * n)]
    c = product(a, bits(b), unit, 3, t.every_kind(), (*places, Operand(scalar.ctypes.data)))
    expected = t.every_kind_numpy(rounded(a) @ rounded(b), column, row, full, 1.5)
    np.testing.assert_allclose(c, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("unit", UNITS)
def test_infinity_and_nan_stay_in_their_rows(unit: str) -> None:
    rng = np.random.default_rng(6)
    a, b = t.random(rng, 9, 70), bits(np.abs(t.random(rng, 70, 64)))
    expected = product(a, b, unit)
    a[2, 5], a[4, 69], a[6, 0] = np.inf, np.nan, -np.inf
    found = product(a, b, unit)
    assert np.isposinf(found[2]).all() and np.isnan(found[4]).all() and np.isneginf(found[6]).all()
    kept = [0, 1, 3, 5, 7, 8]
    np.testing.assert_array_equal(found[kept], expected[kept])


@pytest.mark.parametrize("unit", UNITS)
def test_numbers_below_the_normal_ones_are_zeros(unit: str) -> None:
    """As operands and as results, in every unit: what the plain code does is what VDPBF16PS does here."""
    tiny = np.float32(2.0**-126)
    a = np.zeros((5, 40), np.float32)
    a[0, 3], a[1, 3], a[2, 3], a[3, 3], a[4, 3:5] = tiny, tiny, tiny / 2, -tiny, tiny
    b = np.zeros((40, 64), np.float32)
    b[3], b[4] = np.repeat([1, 0.5, 0.75, 3], 16), -0.5
    c = product(a, bits(b), unit)
    assert (c[:4, 0] == [tiny, tiny, 0, -tiny]).all()
    assert (c[:4, 16:48] == 0).all()
    assert (c[:4, 48] == np.array([3, 3, 0, -3]) * tiny).all()
    # In row 4 tiny and -tiny / 2, of another pair: one sum (0), or sums of even and of odd elements, of which one is a zero.
    assert c[4, 0] == (0 if unit == VECTORS else tiny)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("unit", [u for u in UNITS if u != VECTORS])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 64, 32), (13, 65, 129), (60, 200, 300), (40, 33, 14000)])
def test_bytes(m: int, n: int, k: int, unit: str, dtype: type) -> None:
    rng = np.random.default_rng(m + n + k)
    a = t.at_page_end(rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (m, k)).astype(dtype))
    b = rng.integers(-128, 128, (k, n)).astype(np.int8)
    for nthreads in (1, 4):
        np.testing.assert_array_equal(product(a, b, unit, nthreads), a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
@pytest.mark.parametrize(("stride", "dilation", "channels"), [(1, 1, 21), (2, 1, 40), (1, 2, 70)])
def test_windows(stride: int, dilation: int, channels: int, dtype: type, unit: str) -> None:
    """3 x 3 windows of images as rows of A: lines of a window are runs, or its pixels where they lie apart."""
    if unit == VECTORS and dtype is np.uint8:
        return  # bytes have an instruction of their own in vectors
    rng = np.random.default_rng(channels)
    images, height, width, filters = 2, 9, 8, 35
    x = t.at_page_end(rng.integers(0, 200, (images, height, width, channels)).astype(dtype))
    w = rng.integers(-100, 100, (3, 3, channels, filters)).astype(np.int8)
    reach = 2 * dilation
    lines, columns = (height - reach - 1) // stride + 1, (width - reach - 1) // stride + 1
    pixel = channels * x.itemsize
    taps = [(i * width + j) * dilation * pixel for i in range(3) for j in range(1 if dilation == 1 else 3)]
    length = channels * (3 if dilation == 1 else 1)
    rows = Rows(length, stride * pixel, tuple(taps), columns, stride * width * pixel, lines, height * width * pixel)
    weights = w.reshape(len(taps), length, filters)
    b = bits(weights.astype(np.float32)) if dtype is np.float32 else weights
    found = product(x, b, unit, 2, rows=rows, m=images * lines * columns)
    expected = np.zeros((images, lines, columns, filters))
    for i in range(3):
        for j in range(3):
            part = x[:, i * dilation :, j * dilation :][
                :, : (lines - 1) * stride + 1 : stride, : (columns - 1) * stride + 1 : stride
            ]
            expected += part.astype(np.float64) @ w[i, j]
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)
