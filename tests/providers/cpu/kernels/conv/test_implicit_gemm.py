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
from intarsia.providers.cpu.kernels.common.panels import packed_nbytes, padded_columns
from intarsia.providers.cpu.kernels.conv import implicit_gemm, window_products
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape
from intarsia.providers.cpu.kernels.matmul import gemm_kernel
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec


def with_border(x: np.ndarray, s: ConvShape, nthreads: int, channels_first: bool = False) -> np.ndarray:
    if not s.needs_border and not channels_first:
        return x
    out = np.full((s.batch, *s.padded, s.channels), 77, x.dtype)
    spec = implicit_gemm.BorderSpec(DType.of(x.dtype), channels_first)
    t.run(implicit_gemm.border_text(spec, t.host()), implicit_gemm.border_args(s, x.ctypes.data, out.ctypes.data), nthreads)
    return out


def convolve(
    s: ConvShape, x: np.ndarray, w: np.ndarray, spec: GemmSpec, nthreads: int, out_dtype: type = np.float32, **more: object
) -> np.ndarray:
    padded = with_border(x, s, nthreads)
    packed = window_products.pack_weights(w, s.group, t.tile(spec.dtype))
    taps = window_products.displacements(s, spec.dtype, t.host())
    y, whole = t.guarded((s.batch, *s.output, s.filters), out_dtype)
    claims = np.zeros(1, np.int64)
    places = padded.ctypes.data, y.ctypes.data, packed.ctypes.data
    data = WindowOperands(*places, micro=t.micro(spec.dtype), taps=taps, **more)  # type: ignore[arg-type]
    args = window_products.conv_args(spec, t.host(), s, data, Threads(nthreads, claims.ctypes.data))
    t.run(gemm_kernel.kernel_text(spec, t.host()), args, nthreads)
    t.check_margin(whole)
    assert claims[0] == 0, "the count of claims is left for the next run"
    return y


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces that are worth claiming only where work is much more."""
    monkeypatch.setattr(pieces, "_LEAST_PRODUCTS", 1)


SHAPES = [
    ConvShape(1, (40, 37), 3, 40, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ConvShape(1, (7, 7), 16, 40, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ConvShape(2, (9, 15), 3, 33, (7, 7), (2, 2), (1, 1), (3, 3, 3, 3)),
    ConvShape(2, (6, 5), 20, 24, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    ConvShape(1, (9, 8), 20, 24, (1, 1), (2, 2), (1, 1), (0, 0, 0, 0)),
    ConvShape(1, (13, 17), 5, 7, (3, 2), (2, 1), (2, 3), (1, 0, 2, 3)),
    ConvShape(2, (8, 8), 12, 18, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), group=3),
    ConvShape(1, (6, 6), 32, 64, (3, 3), (1, 2), (1, 1), (1, 1, 1, 1), group=16),
    ConvShape(1, (5, 5), 40, 80, (2, 2), (1, 1), (1, 1), (0, 0, 0, 0), group=2),
    ConvShape(2, (4, 9), 6, 6, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), group=6),
    ConvShape(3, (21,), 4, 10, (5,), (2,), (1,), (2, 1)),
    ConvShape(2, (21,), 4, 10, (3,), (1,), (4,), (4, 4)),
    ConvShape(2, (5, 6, 7), 3, 20, (3, 2, 3), (1, 2, 1), (1, 1, 1), (1, 0, 1, 1, 1, 0)),
    ConvShape(2, (4, 6, 7), 8, 12, (2, 3, 2), (2, 1, 2), (1, 2, 2), (0, 2, 1, 1, 2, 1), group=2),
    ConvShape(1, (1, 3, 3), 2, 2, (1, 3, 3), (1, 1, 1), (1, 1, 1), (0, 0, 0, 0, 0, 0)),
]


@pytest.mark.parametrize("s", SHAPES, ids=str)
def test_convolution(s: ConvShape) -> None:
    rng = np.random.default_rng(0)
    x, w = t.random(rng, s.batch, *s.spatial, s.channels), t.random(rng, s.filters, s.channels // s.group, *s.kernel)
    expected = reference(x, w, s)
    for nthreads in t.THREADS:
        np.testing.assert_allclose(convolve(s, x, w, GemmSpec(), nthreads), expected, atol=2e-4)


@pytest.mark.parametrize("s", SHAPES[:3], ids=str)
def test_double_precision(s: ConvShape) -> None:
    rng = np.random.default_rng(0)
    x = t.random(rng, s.batch, *s.spatial, s.channels, dtype=np.float64)
    w = t.random(rng, s.filters, s.channels // s.group, *s.kernel, dtype=np.float64)
    y = convolve(s, x, w, GemmSpec(DType.DOUBLE), 2, np.float64)
    np.testing.assert_allclose(y, reference(x, w, s), atol=1e-11)


@pytest.mark.parametrize("s", SHAPES, ids=str)
def test_epilogue(s: ConvShape) -> None:
    """Bias, residual, a factor: relu(conv + bias[m] + residual) * scale."""
    from intarsia.primitives import lang
    from intarsia.providers.cpu.kernels.common.epilogue import Epilogue

    rng = np.random.default_rng(1)
    x, w = t.random(rng, s.batch, *s.spatial, s.channels), t.random(rng, s.filters, s.channels // s.group, *s.kernel)
    bias, residual = t.random(rng, s.filters), t.random(rng, s.batch, *s.output, s.filters)
    scale = np.array([1.5], np.float32)
    a, b, r, f = (lang.input(i, DType.FLOAT, ()) for i in range(4))
    kinds = ("column", "full", "scalar")
    spec = GemmSpec(epilogue=Epilogue(lang.maximum(a + b + r, 0.0) * f, kinds, (DType.FLOAT,) * 3))
    operands = [
        window_products.conv_operand(kind, DType.FLOAT, array.ctypes.data, s, t.host())
        for kind, array in zip(kinds, (bias, residual, scale), strict=True)
    ]
    y = convolve(s, x, w, spec, 3, operands=operands)
    np.testing.assert_allclose(y, np.maximum(reference(x, w, s) + bias + residual, 0) * 1.5, atol=2e-4)


def test_slices_of_channels() -> None:
    """Input and output are channels of wider images: what an in-place Concat or Split makes of them."""
    s = ConvShape(2, (6, 7), 5, 20, (3, 3), (1, 1), (1, 1), (0, 0, 0, 0))
    rng = np.random.default_rng(2)
    wide, w = t.random(rng, 2, 6, 7, 12), t.random(rng, 20, 5, 3, 3)
    y = np.full((2, *s.output, 32), 77, np.float32)
    packed = window_products.pack_weights(w, 1, t.tile())
    taps = window_products.displacements(s, DType.FLOAT, t.host(), x_pixel_nbytes=48)
    places = wide[..., 4:].ctypes.data, y[..., 8:].ctypes.data, packed.ctypes.data
    data = WindowOperands(*places, x_pixel_nbytes=48, y_pixel_nbytes=128, micro=t.micro(), taps=taps)
    args = window_products.conv_args(GemmSpec(), t.host(), s, data)
    t.run(gemm_kernel.kernel_text(GemmSpec(), t.host()), args, 2)
    np.testing.assert_allclose(y[..., 8:28], reference(wide[..., 4:9], w, s), atol=1e-4)
    assert (y[..., :8] == 77).all()
    assert (y[..., 28:] == 77).all()


@pytest.mark.parametrize(("sizes", "strides"), [((9,), (2,)), ((8, 11), (2, 3)), ((5, 4, 7), (3, 1, 2)), ((0, 5), (2, 2))])
def test_picking(sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
    ones, rank = (1,) * len(sizes), len(sizes)
    s = ConvShape(2, sizes, 5, 3, ones, strides, ones, (0, 0) * rank)
    x = t.random(np.random.default_rng(0), 2, *sizes, 5)
    for nthreads in t.THREADS:
        out, whole = t.guarded((2, *s.output, 5))
        t.run(
            implicit_gemm.picking_text(t.host()),
            implicit_gemm.picking_args(s, DType.FLOAT, x.ctypes.data, out.ctypes.data),
            nthreads,
        )
        t.check_margin(whole)
        np.testing.assert_array_equal(out, x[(slice(None), *(slice(None, None, n) for n in strides))])


@pytest.mark.parametrize("channels_first", [False, True])
@pytest.mark.parametrize("s", [s for s in SHAPES if s.needs_border], ids=str)
def test_border(s: ConvShape, channels_first: bool) -> None:
    rng = np.random.default_rng(3)
    x = t.random(rng, s.batch, *s.spatial, s.channels)
    source = t.at_page_end(np.moveaxis(x, -1, 1)) if channels_first else x
    rank = len(s.spatial)
    expected = np.pad(x, [(0, 0), *((s.pads[i], s.pads[rank + i]) for i in range(rank)), (0, 0)])
    for nthreads in t.THREADS:
        np.testing.assert_array_equal(with_border(source, s, nthreads, channels_first), expected)


def test_operand_kind() -> None:
    with pytest.raises(ValueError, match="operands of kind column, full, row or scalar; got 'batch'"):
        window_products.conv_operand("batch", DType.FLOAT, 0, SHAPES[0], t.host())


def test_packed_weights_are_aligned() -> None:
    assert window_products.pack_weights(np.ones((5, 3, 2, 2), np.float32), 1, t.tile()).ctypes.data % 64 == 0
    assert packed_nbytes(12, 5, t.tile()) == 12 * padded_columns(5, t.tile()) * 4
