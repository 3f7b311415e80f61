"""Winograd of bytes against sums in int64: every bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from intarsia.providers.cpu.kernels.conv.window_products import WindowOperands
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import Threads

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.graph.dtypes import DType
from intarsia.primitives import lang
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros
from intarsia.providers.cpu.kernels.conv.pointwise_kernel import row_taps
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape, conv_operand
from intarsia.providers.cpu.kernels.conv.winograd import int8 as winograd_int8
from intarsia.providers.cpu.kernels.conv.winograd import spec as winograd_plan
from intarsia.providers.cpu.kernels.conv.winograd.cost_model import is_applicable
from intarsia.providers.cpu.kernels.conv.winograd.spec import WinogradSpec
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS

pytestmark = pytest.mark.skipif(
    winograd_int8.rates(t.host()) is None, reason="the products are VPDPWSSD's or VPMADDWD's, which this CPU does not have"
)


def square(batch: int, height: int, width: int, channels: int, filters: int, pad: int = 1, dilation: int = 1) -> ConvShape:
    return ConvShape(batch, (height, width), channels, filters, (3, 3), (1, 1), (dilation,) * 2, (pad,) * 4)


SHAPES = [
    square(1, 8, 8, 32, 32),
    square(2, 9, 14, 20, 40),
    square(1, 1, 1, 3, 5),
    square(1, 14, 13, 65, 70),
    square(2, 12, 12, 64, 16, 0),
    square(1, 11, 15, 33, 33, 4, 3),
]


def reference(x: np.ndarray, w: np.ndarray, s: ConvShape, zero: int) -> np.ndarray:
    """Sums in int64: x [N, H, W, C], w [M, C, 3, 3]."""
    (top, left, bottom, right), d = s.pads, s.dilations[0]
    wide = np.pad(x.astype(np.int64) - zero, [(0, 0), (top, bottom), (left, right), (0, 0)])
    (height, width), out = s.output, 0
    for i in range(3):
        for j in range(3):
            seen = wide[:, i * d : i * d + height, j * d : j * d + width]
            out = out + seen @ w[:, :, i, j].T.astype(np.int64)
    return out


def convolve(
    s: ConvShape, x: np.ndarray, w: np.ndarray, zero: int, nthreads: int = 1, epilogue: Epilogue | None = None,
    operands: tuple = (),
) -> np.ndarray:  # fmt: skip
    target, tile = t.host(), winograd_int8.register_tile(s.filters, t.host())
    kind = DType.UINT8 if x.dtype == np.uint8 else DType.INT8
    spec = WinogradSpec(winograd_int8.OUTPUTS, epilogue, SUMS, tile, kind)
    packed, taps, number = winograd_int8.pack_weights(w, tile), row_taps(SUMS, t.host()), np.array([zero], x.dtype)
    scratch = aligned_zeros((nthreads * winograd_plan.scratch_nbytes(spec, target, s, nthreads) + 64,), np.uint8)
    scratch[:] = 55
    out = np.int32 if epilogue is None else np.uint8
    whole = np.full(s.batch * np.prod(s.output) * s.filters + 128, 77, out)
    y, claims = whole[64:-64].reshape(s.batch, *s.output, s.filters), np.zeros(1, np.int64)
    data = WindowOperands(
        x.ctypes.data, y.ctypes.data, packed.ctypes.data, operands, taps=taps.ctypes.data, number=number.ctypes.data,
        micro=t.address(winograd_int8.micro_text(target, tile)),
    )  # fmt: skip
    args = winograd_plan.winograd_args(spec, target, s, data, Threads(nthreads, claims.ctypes.data, scratch.ctypes.data))
    t.run(winograd_int8.kernel_text(spec, target), args, nthreads)
    assert (scratch[-64:] == 55).all()
    assert (whole[:64] == 77).all()
    assert (whole[-64:] == 77).all()
    return y


@pytest.mark.parametrize("zero", ["least", "most", "between"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("s", SHAPES, ids=str)
def test_sums(s: ConvShape, dtype: type, zero: str) -> None:
    """Weights of nine bits, too."""
    rng, limits = np.random.default_rng(0), np.iinfo(dtype)
    point = {"least": limits.min, "most": limits.max, "between": limits.min + 77}[zero]
    x = rng.integers(limits.min, limits.max + 1, (s.batch, *s.spatial, s.channels)).astype(dtype)
    w = rng.integers(-255, 256, (s.filters, s.channels, 3, 3)).astype(np.int16)
    expected = reference(x, w, s, point)
    for nthreads in t.THREADS:
        np.testing.assert_array_equal(convolve(s, x, w, point, nthreads), expected)


@pytest.mark.parametrize("sign", [1, -1])
def test_as_large_as_is_allowed(sign: int) -> None:
    """Every sum at the bound below which `is_exact` is true, and transforms of the largest numbers."""
    s = square(1, 8, 8, 64, 16)
    rng = np.random.default_rng(1)
    x = np.full((1, 8, 8, 64), 255, np.uint8)
    w = np.full((16, 64, 3, 3), 227 * sign, np.int16)
    assert winograd_int8.is_exact(w, DType.UINT8, 0)
    assert not winograd_int8.is_exact(w + 2 * sign, DType.UINT8, 0)
    np.testing.assert_array_equal(convolve(s, x, w, 0), reference(x, w, s, 0))
    x = rng.choice(np.array([0, 255], np.uint8), x.shape)
    w = (rng.choice([-255, 255], w.shape) * sign).astype(np.int16)
    np.testing.assert_array_equal(convolve(s, x, w, 0), reference(x, w, s, 0))


def test_what_is_exact() -> None:
    """Bounds of sums: signs of weights count where the zero point is known."""
    w = np.zeros((2, 512, 3, 3), np.int16)
    w[1] = np.where(np.arange(512).reshape(-1, 1, 1) % 2, 50, -50)
    assert winograd_int8.is_exact(w, DType.UINT8, 0), "115,200 * 255"
    assert not winograd_int8.is_exact(w, DType.UINT8, None), "230,400 * 255"
    assert winograd_int8.is_exact(w, DType.UINT8, 128)
    assert winograd_int8.is_exact(w, DType.INT8, 0)
    assert winograd_int8.is_exact(np.abs(w) // 2, DType.INT8, 0)
    assert not winograd_int8.is_exact(np.abs(w), DType.INT8, -128)


def test_epilogue() -> None:
    """Scaled, shifted, rounded to bytes: complete tiles and others."""
    s = square(1, 10, 13, 32, 35)
    rng = np.random.default_rng(2)
    x, w = rng.integers(0, 256, (1, 10, 13, 32)).astype(np.uint8), rng.integers(-128, 128, (35, 32, 3, 3)).astype(np.int16)
    bias, scale = rng.integers(-9999, 9999, 35).astype(np.int32), rng.random(35).astype(np.float32) * np.float32(1e-3)
    total, b, f = lang.input(0, SUMS, ()), lang.input(1, SUMS, ()), lang.input(2, DType.FLOAT, ())
    real = lang.cast(total + b, DType.FLOAT) * f
    root = lang.cast(lang.minimum(lang.maximum(lang.unary("round", real), 0.0), 255.0), DType.UINT8)
    epilogue = Epilogue(root, ("column", "column"), (SUMS, DType.FLOAT))
    operands = tuple(
        conv_operand("column", kind, array.ctypes.data, s, t.host(), SUMS)
        for kind, array in ((SUMS, bias), (DType.FLOAT, scale))
    )
    y = convolve(s, x, w, 9, 2, epilogue, operands)
    real = (reference(x, w, s, 9) + bias).astype(np.float32) * scale
    np.testing.assert_array_equal(y, np.clip(np.rint(real), 0, 255).astype(np.uint8))


def test_which_convolutions() -> None:
    def taken(channels: int, filters: int, size: int, **more: object) -> bool:
        shape = replace(square(1, size, size, channels, filters), **more)  # type: ignore[arg-type]
        return is_applicable(shape) and winograd_int8.is_faster(shape, t.host())

    assert taken(128, 128, 28)
    assert taken(64, 64, 56)
    assert not taken(3, 32, 224), "the transforms take longer than what they spare"
    assert not taken(512, 512, 7), "36 large matrices for four tiles"
    assert not taken(128, 128, 28, strides=(2, 2))
    assert not taken(128, 128, 32, dilations=(18, 18), pads=(18,) * 4), "every phase has few pixels"
    assert winograd_int8.times_as_fast(square(1, 28, 28, 128, 128), t.host()) > 1
