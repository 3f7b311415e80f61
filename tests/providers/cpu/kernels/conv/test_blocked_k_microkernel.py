from __future__ import annotations

import numpy as np
import pytest

from intarsia.providers.cpu.kernels.common import pieces
from intarsia.providers.cpu.kernels.conv.window_products import WindowOperands
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import Threads

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t
from conv_reference import reference

from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros, pack_matrix
from intarsia.providers.cpu.kernels.common.tiles import Tile, tile_of
from intarsia.providers.cpu.kernels.conv import line_buffer_kernel, pointwise_kernel
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import STEPS, blocked_tile, stepped_micro_text
from intarsia.providers.cpu.kernels.conv.k_blocks import blocks_of
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec, Operand

SHAPES = [
    ConvShape(1, (7, 7), 16, 40, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ConvShape(2, (9, 15), 24, 33, (7, 7), (2, 2), (1, 1), (3, 3, 3, 3)),
    ConvShape(1, (9, 8), 20, 24, (1, 1), (2, 2), (1, 1), (0, 0, 0, 0)),
    ConvShape(1, (13, 17), 11, 70, (3, 2), (2, 1), (2, 3), (1, 0, 2, 3)),
    ConvShape(1, (30, 13), 8, 48, (1, 3), (2, 2), (1, 1), (1, 2, 0, 1)),
    ConvShape(1, (30, 40), 33, 48, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ConvShape(1, (5, 4), 16, 8, (3, 3), (1, 1), (1, 1), (7, 6, 0, 9)),
    ConvShape(1, (1, 200), 33, 48, (1, 1), (1, 2), (1, 1), (0, 3, 0, 0)),
    ConvShape(3, (21,), 40, 10, (5,), (2,), (1,), (2, 1)),
    ConvShape(2, (300,), 40, 100, (3,), (1,), (4,), (4, 4)),
    ConvShape(1, (500,), 24, 64, (4,), (3,), (1,), (2, 5)),
    ConvShape(1, (256,), 40, 40, (3,), (1,), (8,), (16, 0)),
    ConvShape(1, (4, 9, 10), 24, 33, (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1, 1, 1, 1)),
    ConvShape(2, (5, 6, 11), 20, 16, (3, 2, 3), (2, 1, 2), (1, 2, 1), (2, 1, 0, 1, 0, 3)),
    ConvShape(1, (1, 7, 7), 40, 48, (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1, 1, 1, 1)),
    ConvShape(1, (6, 5, 9), 70, 24, (3, 1, 1), (1, 1, 1), (1, 1, 1), (1, 0, 0, 1, 0, 0)),
    ConvShape(1, (6, 5, 9), 8, 24, (1, 3, 3), (1, 2, 2), (1, 1, 1), (0, 1, 1, 0, 1, 1)),
    ConvShape(1, (3, 4, 12), 9, 24, (2, 2, 2), (1, 1, 1), (3, 1, 2), (3, 0, 1, 2, 1, 2)),
    ConvShape(1, (2, 1, 130), 16, 24, (2, 1, 5), (1, 1, 1), (1, 1, 1), (1, 0, 2, 0, 0, 2)),
    ConvShape(1, (13, 20), 36, 24, (3, 3), (1, 1), (9, 12), (9, 12, 9, 12)),
    ConvShape(1, (11, 10), 40, 24, (3, 3), (2, 2), (5, 14), (8, 20, 9, 17)),
    ConvShape(1, (9, 12), 24, 24, (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
    ConvShape(1, (80,), 24, 24, (31,), (1,), (2,), (30, 30)),
    ConvShape(2, (9, 13), 72, 72, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 3),
    ConvShape(1, (14, 14), 64, 64, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), 4),
    ConvShape(1, (8, 9), 26, 40, (3, 3), (1, 1), (2, 2), (2, 2, 2, 2), 2),
    ConvShape(2, (150,), 48, 96, (7,), (1,), (1,), (3, 3), 2),
    ConvShape(1, (3, 6, 6), 32, 24, (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1, 1, 1, 1), 2),
    ConvShape(1, (6, 9), 120, 24, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),  # more than a long block, and half a block of channels
    ConvShape(1, (5, 11), 40, 24, (7, 7), (1, 1), (2, 2), (6, 6, 6, 6)),
    ConvShape(2, (50,), 200, 24, (3,), (2,), (1,), (1, 1)),
    ConvShape(0, (7, 7), 16, 40, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces that are worth claiming only where work is much more."""
    monkeypatch.setattr(pieces, "_LEAST_PRODUCTS", 1)


def tiles(dtype: DType) -> list[Tile]:
    """All tiles that may be chosen for some number of columns."""
    basic = tile_of(dtype, t.host())
    found = {blocked_tile(n * basic.lanes, None, dtype, t.host()) for n in range(1, 17)}
    if basic.rows == 14:  # half vectors, which only some CPUs are given
        found.add(Tile(8, 3, basic.lanes // 2, basic.itemsize))
    return sorted(found, key=lambda tile: (tile.rows, tile.lanes))


def convolve(
    s: ConvShape, x: np.ndarray, w: np.ndarray, spec: GemmSpec, nthreads: int, dtype: type, **more: object
) -> np.ndarray:
    assert spec.tile is not None
    micro = t.address(stepped_micro_text(spec.dtype, t.host(), spec.tile))
    packed, tables = (
        line_buffer_kernel.pack_windows(w, spec.tile, s.group),
        line_buffer_kernel.window_tables(spec, t.host(), s, nthreads),
    )
    scratch = aligned_zeros((nthreads, line_buffer_kernel.window_scratch_nbytes(spec, s, nthreads)), np.uint8)
    y, whole = t.guarded((s.batch, *s.output, s.filters), dtype)
    claims = np.zeros(1, np.int64)
    places = x.ctypes.data, y.ctypes.data, packed.ctypes.data
    data = WindowOperands(*places, micro=micro, taps=tables, **more)  # type: ignore[arg-type]
    args = line_buffer_kernel.window_args(
        spec, t.host(), s, data, Threads(nthreads, claims.ctypes.data, scratch.ctypes.data)
    )
    t.run(line_buffer_kernel.window_text(spec, t.host()), args, nthreads)
    t.check_margin(whole)
    assert claims[0] == 0, "the count of claims is left for the next run"
    return y


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_windows(shape: ConvShape, rng: np.random.Generator) -> None:
    x = t.random(rng, shape.batch, *shape.spatial, shape.channels)
    w = rng.standard_normal((shape.filters, shape.channels // shape.group, *shape.kernel)).astype(np.float32)
    expected = reference(x, w, shape)
    for tile in tiles(DType.FLOAT):
        for nthreads in t.THREADS:
            y = convolve(shape, x, w, GemmSpec(tile=tile), nthreads, np.float32)
            np.testing.assert_allclose(y, expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize(("length", "threads", "segments"), [(256, 1, 3), (256, 2, 4), (256, 4, 4), (256, 8, 3), (1000, 2, 10)])
def test_threads_have_as_many_segments_of_a_line(length: int, threads: int, segments: int) -> None:
    """Unless these would be short."""
    shape = ConvShape(1, (length,), 64, 64, (3,), (1,), (1,), (1, 1))
    assert line_buffer_kernel._plan(GemmSpec(tile=Tile(6, 4, 8, 4)), shape, threads).lines == segments


def test_windows_of_double(rng: np.random.Generator) -> None:
    shape = SHAPES[0]
    x = t.random(rng, 1, 7, 7, 16, dtype=np.float64)
    w = rng.standard_normal((40, 16, 3, 3))
    for tile in tiles(DType.DOUBLE):
        y = convolve(shape, x, w, GemmSpec(DType.DOUBLE, tile=tile), 2, np.float64)
        np.testing.assert_allclose(y, reference(x, w, shape), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[9], SHAPES[11], SHAPES[13], SHAPES[23], SHAPES[26]], ids=str)
def test_epilogue_of_windows(shape: ConvShape, rng: np.random.Generator) -> None:
    x = t.random(rng, shape.batch, *shape.spatial, shape.channels)
    w = rng.standard_normal((shape.filters, shape.channels // shape.group, *shape.kernel)).astype(np.float32)
    bias, residual = t.random(rng, shape.filters), t.random(rng, shape.batch, *shape.output, shape.filters)
    acc, b, r = (k.input(i, DType.FLOAT, (1,)) for i in range(3))
    epilogue = Epilogue(k.maximum(acc + b, 0.0) + r, ("column", "full"), (DType.FLOAT, DType.FLOAT))
    expected = np.maximum(reference(x, w, shape) + bias, 0) + residual
    for tile in tiles(DType.FLOAT):
        spec = GemmSpec(epilogue=epilogue, tile=tile)
        operands = [
            line_buffer_kernel.window_operand(spec, kind, DType.FLOAT, array.ctypes.data, shape, 2)
            for kind, array in (("column", bias), ("full", residual))
        ]
        y = convolve(shape, x, w, spec, 2, np.float32, operands=operands)
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("m", [1, 24, 49, 333])
@pytest.mark.parametrize("depth", [3, STEPS, 20, 64, 150, 300, 1024, 1100])
def test_rows(m: int, depth: int, rng: np.random.Generator) -> None:
    a = t.random(rng, m, depth)
    for n in (16, 70, 256):
        b, bias = rng.standard_normal((depth, n)).astype(np.float32), t.random(rng, n)
        acc, other = k.input(0, DType.FLOAT, (1,)), k.input(1, DType.FLOAT, (1,))
        epilogue = Epilogue(acc + other, ("column",), (DType.FLOAT,))
        for tile in tiles(DType.FLOAT):
            spec, taps = GemmSpec(epilogue=epilogue, tile=tile), pointwise_kernel.row_taps(DType.FLOAT, t.host())
            micro, packed = t.address(stepped_micro_text(DType.FLOAT, t.host(), tile)), pack_matrix(b, tile)
            for nthreads in (1, 3):
                c, whole = t.guarded((m, n))
                claims = np.zeros(1, np.int64)
                args = pointwise_kernel.rows_args(
                    spec, t.host(), micro=micro, a=a.ctypes.data, b=packed.ctypes.data, c=c.ctypes.data, m=m, n=n, k=depth,
                    taps=taps.ctypes.data, claims=claims.ctypes.data, threads=nthreads, operands=[Operand(bias.ctypes.data)],
                )  # fmt: skip
                t.run(pointwise_kernel.rows_text(spec, t.host()), args, nthreads)
                t.check_margin(whole)
                assert claims[0] == 0, "the count of claims is left for the next run"
                np.testing.assert_allclose(c, a.astype(np.float64) @ b + bias, rtol=1e-4, atol=2e-4)


def test_values_outside_are_not_multiplied(rng: np.random.Generator) -> None:
    """An infinity reaches only what its window sees, though blocks are padded with zeros."""
    shape = ConvShape(1, (9, 9), 11, 24, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
    x = t.random(rng, 1, 9, 9, 11)
    x[0, 4, 4, 10] = np.inf
    w = rng.standard_normal((24, 11, 3, 3)).astype(np.float32)
    finite = np.isfinite(convolve(shape, x, w, GemmSpec(tile=tiles(DType.FLOAT)[0]), 1, np.float32)).all(-1)[0]
    assert not finite[3:6, 3:6].any()
    assert finite.sum() == 81 - 9


def test_lines_outside_are_not_multiplied(rng: np.random.Generator) -> None:
    """Of blocks of many channels, too: what is infinite in the kernel's first line reaches all but the output's first line."""
    shape = ConvShape(1, (5, 9), 64, 24, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
    w = rng.standard_normal((24, 64, 3, 3)).astype(np.float32)
    w[:, :, 0] = np.inf
    y = convolve(shape, 1 + t.random(rng, 1, 5, 9, 64) ** 2, w, GemmSpec(tile=tiles(DType.FLOAT)[0]), 1, np.float32)
    assert np.isfinite(y[:, 0]).all()
    assert not np.isfinite(y[:, 1:]).any()


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("kernel", [(1, 3, 3), (1, 1, 3), (1, 5, 5), (1, 1, 70), (3, 3, 3), (1, 7, 7)], ids=str)
@pytest.mark.parametrize("channels", [8, 16, 120, 512])
def test_blocks_are_all_taps(kernel: tuple[int, ...], channels: int, long: bool) -> None:
    """Every tap of a sum is in one block; long blocks have parts that are alike."""
    blocks, _ = blocks_of(kernel, channels, 16, long)
    taps = np.concatenate([np.arange(tap, tap + count) for tap, count, *_ in blocks])
    np.testing.assert_array_equal(taps, np.arange(channels // STEPS * np.prod(kernel)))
    if long:
        assert (blocks[:, 1] == blocks[:, -2] * blocks[:, -1]).all()
        assert blocks[:, 1].max() <= 54


@pytest.mark.parametrize("shape", [ConvShape(1, (6, 40), 16, 16, (3, 3), (1, 1), (5, 30), (5, 30, 5, 30)), SHAPES[14]], ids=str)
def test_share_that_is_multiplied(shape: ConvShape) -> None:
    """Of ones by ones, with tiles of one pixel, sums are the numbers of kernel positions inside."""
    s = shape.as_3d()
    ones = np.ones((1, *s.spatial, 1)), np.ones((1, 1, *s.kernel))
    count = reference(*ones, ConvShape(1, s.spatial, 1, 1, s.kernel, s.strides, s.dilations, s.pads)).mean()
    assert line_buffer_kernel.multiplied_share(shape, 1) == pytest.approx(count / np.prod(s.kernel))
    assert count / np.prod(s.kernel) <= line_buffer_kernel.multiplied_share(shape) < 1


def test_specs_that_are_refused() -> None:
    with pytest.raises(ValueError, match="in a tile that is given"):
        line_buffer_kernel.window_scratch_nbytes(GemmSpec(), SHAPES[0], 1)
    spec = GemmSpec(tile=tiles(DType.FLOAT)[0])
    with pytest.raises(ValueError, match="kind column, full or scalar; got 'row'"):
        line_buffer_kernel.window_operand(spec, "row", DType.FLOAT, 0, SHAPES[0], 1)
