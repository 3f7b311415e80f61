from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from intarsia.providers.cpu.kernels.conv.window_products import WindowOperands

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.graph.dtypes import DType
from intarsia.primitives import lang
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.conv.grouped import depthwise_arguments, depthwise_kernel, depthwise_line_buffer
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import WindowSpec, window_operand
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape


def depthwise_shape(batch: int, spatial: tuple[int, ...], channels: int, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...], pads: tuple[int, ...]) -> ConvShape:  # fmt: skip  # noqa: E501
    return ConvShape(batch, spatial, channels, channels, kernel, strides, dilations, pads, channels)


SHAPES = [
    depthwise_shape(1, (7, 7), 40, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    depthwise_shape(2, (15, 23), 16, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
    depthwise_shape(1, (9, 30), 150, (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
    depthwise_shape(1, (12, 11), 3, (3, 2), (1, 2), (2, 3), (2, 0, 1, 4)),
    depthwise_shape(1, (3, 3), 17, (7, 7), (1, 1), (1, 1), (3, 3, 3, 3)),
    depthwise_shape(2, (31,), 20, (4,), (1,), (1,), (3, 0)),
    depthwise_shape(1, (5, 6, 9), 18, (3, 2, 3), (2, 1, 1), (1, 2, 1), (1, 1, 1, 1, 1, 1)),
    depthwise_shape(1, (1, 1), 8, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    depthwise_shape(1, (4, 29), 283, (3, 5), (1, 1), (1, 1), (1, 4, 1, 0)),  # several blocks of channels; all pads at one end
    depthwise_shape(1, (5, 40), 24, (3, 3), (1, 2), (1, 3), (1, 0, 1, 6)),
]


def reference(x: np.ndarray, w: np.ndarray, s: ConvShape) -> np.ndarray:
    rank = len(s.spatial)
    padded = np.pad(x.astype(np.float64), [(0, 0), *((s.pads[i], s.pads[rank + i]) for i in range(rank)), (0, 0)])
    y = np.zeros((s.batch, *s.output, s.channels))
    for position in np.ndindex(*s.kernel):
        window = tuple(
            slice(p * d, p * d + (o - 1) * st + 1, st)
            for p, d, o, st in zip(position, s.dilations, s.output, s.strides, strict=True)
        )
        y += padded[(slice(None), *window)] * w[(slice(None), 0, *position)]
    return y


def convolve(s: ConvShape, x: np.ndarray, w: np.ndarray, spec: WindowSpec, nthreads: int, **more: object) -> np.ndarray:
    packed = depthwise_arguments.pack_weights(w, t.host())
    y, whole = t.guarded((s.batch, *s.output, s.channels), x.dtype.type)
    data = WindowOperands(x.ctypes.data, y.ctypes.data, packed.ctypes.data, **more)  # type: ignore[arg-type]
    args = depthwise_arguments.depthwise_args(spec, t.host(), s, data)
    t.run(depthwise_kernel.kernel_text(spec, t.host()), args, nthreads)
    t.check_margin(whole)
    return y


LONG = [
    depthwise_shape(1, (9, 200), 20, (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),  # more pixels than a ring has room for
    depthwise_shape(2, (4, 6, 40), 33, (2, 3, 5), (1, 1, 2), (1, 2, 1), (1, 2, 2, 0, 0, 1)),
    depthwise_shape(1, (70, 9), 8, (9, 5), (1, 1), (1, 2), (4, 4, 4, 4)),  # several pieces of lines
    depthwise_shape(1, (40, 12), 24, (5, 3), (2, 1), (2, 1), (4, 1, 4, 1)),
]


SPECS = [  # pixels, buffered
    *((s, dtype, 7, False) for s in SHAPES for dtype in (DType.FLOAT, DType.DOUBLE)),
    *((s, DType.FLOAT, 8, False) for s in SHAPES + LONG),
    *((s, DType.FLOAT, 5, True) for s in SHAPES + LONG if len(s.kernel) > 1),
    *((s, DType.DOUBLE, 8, True) for s in SHAPES[:4] + LONG[:2]),
]


@pytest.mark.parametrize(("s", "dtype", "pixels", "buffered"), SPECS, ids=str)
def test_depthwise(s: ConvShape, dtype: DType, pixels: int, buffered: bool) -> None:
    spec = replace(depthwise_kernel.depthwise_spec(s, dtype), pixels=pixels)
    assert not buffered or depthwise_line_buffer.can_buffer_lines(spec)
    spec = replace(spec, buffers_lines=buffered)
    rng = np.random.default_rng(0)
    x, w = (
        t.random(rng, s.batch, *s.spatial, s.channels, dtype=dtype.numpy),
        t.random(rng, s.channels, 1, *s.kernel, dtype=dtype.numpy),
    )
    for nthreads in t.THREADS:
        y = convolve(s, x, w, spec, nthreads)
        np.testing.assert_allclose(y, reference(x, w, s), atol=1e-5)


@pytest.mark.parametrize("dtype", [DType.FLOAT, DType.DOUBLE])
@pytest.mark.parametrize("multiplier", [2, 4, 8])
@pytest.mark.parametrize("s", SHAPES, ids=str)
def test_multiplier(s: ConvShape, multiplier: int, dtype: DType) -> None:
    shape, lanes = replace(s, filters=s.channels * multiplier), t.host().vector_bytes // dtype.numpy.itemsize
    if not depthwise_kernel.takes((shape.filters, 1, *s.kernel), s.channels, lanes):
        pytest.skip("more filters of a channel than this machine's vectors have lanes")
    rng = np.random.default_rng(0)
    x = t.random(rng, s.batch, *s.spatial, s.channels, dtype=dtype.numpy)
    w, column = t.random(rng, shape.filters, 1, *s.kernel, dtype=dtype.numpy), t.random(rng, shape.filters, dtype=dtype.numpy)
    root = lang.input(0, dtype, ()) + lang.input(1, dtype, ())
    spec = WindowSpec(
        "multiply", s.kernel, s.strides, s.dilations, dtype, Epilogue(root, ("column",), (dtype,)), multiplier=multiplier
    )  # fmt: skip
    operand = window_operand("column", dtype, column.ctypes.data, shape.filters, s.output)
    expected = reference(np.repeat(x, multiplier, -1), w, replace(shape, channels=shape.filters)) + column
    for nthreads in t.THREADS:
        packed = depthwise_arguments.pack_weights(w, t.host())
        y, whole = t.guarded((s.batch, *s.output, shape.filters), x.dtype.type)
        data = WindowOperands(x.ctypes.data, y.ctypes.data, packed.ctypes.data, [operand])
        args = depthwise_arguments.depthwise_args(spec, t.host(), shape, data)
        t.run(depthwise_kernel.kernel_text(spec, t.host()), args, nthreads)
        t.check_margin(whole)
        np.testing.assert_allclose(y, expected, atol=1e-5)


def test_which_are_depthwise() -> None:
    assert depthwise_kernel.takes((32, 1, 3, 3), 32, 16) and depthwise_kernel.takes((64, 1, 3, 3), 32, 16)
    assert not depthwise_kernel.takes((96, 1, 3, 3), 32, 16), "a vector would see parts of channels"
    assert not depthwise_kernel.takes((64, 1, 3, 3), 8, 4), "more filters of a channel than lanes"
    assert not depthwise_kernel.takes((32, 2, 3, 3), 16, 16) and not depthwise_kernel.takes((32, 1, 3, 3), 1, 16)


def test_schedule() -> None:
    def scheduled(width: int | None, channels: int = 96, kernel: tuple[int, ...] = (3, 3), stride: int = 1) -> tuple[int, bool]:
        steps, target = (stride,) * len(kernel), replace(t.host(), vector_bytes=64)
        spec = depthwise_kernel.scheduled(WindowSpec("multiply", kernel, steps, (1,) * len(kernel)), channels, width, target)
        return spec.pixels, spec.buffers_lines

    assert [scheduled(w)[0] for w in (None, 112, 56, 28, 20, 14, 7, 4, 1)] == [7, 7, 7, 7, 7, 7, 7, 5, 5]
    assert [scheduled(w)[0] for w in (64, 32, 16, 8, 12, 10, 5)] == [8, 8, 8, 8, 6, 5, 5]
    assert scheduled(16, 768, (7, 7)) == (8, True), "pixels lie a multiple of 256 bytes apart"
    assert scheduled(None, 768, (7, 7)) == (7, True)
    assert not scheduled(16, 760, (7, 7))[1]
    assert not scheduled(7, 768, (7, 7))[1], "a short line stays in the cache"
    assert not scheduled(16, 576, (3, 3))[1], "of few lines a copy costs as much as it spares"
    assert scheduled(16, 768, (3, 3))[1], "where not even these stay in the cache"
    assert not scheduled(16, 768, (2, 3))[1] and not scheduled(16, 768, (3, 3), 2)[1] and not scheduled(7, 768, (3, 3))[1]
    far = WindowSpec("multiply", (3, 3), (1, 1), (6, 6))
    assert [depthwise_kernel.scheduled(far, c, 32, replace(t.host(), vector_bytes=64)).buffers_lines for c in (256, 240)] == [
        True,
        False,
    ]
    assert not scheduled(16, 768, (7, 7), 2)[1], "lines are hardly seen twice"
    assert not scheduled(16, 768, (7,))[1]
    assert not scheduled(64, 64, (5, 301))[1], "a ring has no room for the pixels that one output sees"


def test_no_sums_of_what_was_in_memory() -> None:
    """Outputs beyond a line's end are computed as well, of numbers: what a ring held before might be slow or raise flags."""
    s = depthwise_shape(1, (6, 9), 16, (5, 5), (1, 1), (1, 1), (2, 2, 2, 2))
    rng = np.random.default_rng(4)
    x, w = t.random(rng, 1, 6, 9, 16), t.random(rng, 16, 1, 5, 5)
    spec = replace(depthwise_kernel.depthwise_spec(s), buffers_lines=True)
    convolve(s, np.full_like(x, np.nan), w, spec, 1)
    np.testing.assert_allclose(convolve(s, x, w, spec, 1), reference(x, w, s), atol=1e-5)


@pytest.mark.parametrize(("heavy", "buffered"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("s", SHAPES, ids=str)
def test_epilogue(s: ConvShape, heavy: bool, buffered: bool) -> None:
    rng = np.random.default_rng(1)
    x, w = t.random(rng, s.batch, *s.spatial, s.channels), t.random(rng, s.channels, 1, *s.kernel)
    bias, residual, scale = (
        t.random(rng, s.channels),
        t.random(rng, s.batch, *s.output, s.channels),
        np.array([0.5], np.float32),
    )
    a, b, r, f = (lang.input(i, DType.FLOAT, ()) for i in range(4))
    kinds = ("column", "full", "scalar")
    root = lang.maximum(a + b + r, 0.0) * f
    if heavy:
        for _ in range(8):
            root = root + lang.tanh(root)
    spec = depthwise_kernel.depthwise_spec(s, epilogue=Epilogue(root, kinds, (DType.FLOAT,) * 3))
    spec = replace(spec, buffers_lines=buffered and depthwise_line_buffer.can_buffer_lines(spec))
    operands = [
        window_operand(kind, DType.FLOAT, array.ctypes.data, s.channels, s.output)
        for kind, array in zip(kinds, (bias, residual, scale), strict=True)
    ]
    y = convolve(s, x, w, spec, 2, operands=operands)
    expected = np.maximum(reference(x, w, s) + bias + residual, 0) * 0.5
    if heavy:
        for _ in range(8):
            expected = expected + np.tanh(expected)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def test_slices_of_channels() -> None:
    s = depthwise_shape(1, (6, 7), 20, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
    rng = np.random.default_rng(2)
    wide, w = t.random(rng, 1, 6, 7, 50), t.random(rng, 20, 1, 3, 3)
    y = np.full((1, 6, 7, 30), 77, np.float32)
    spec = depthwise_kernel.depthwise_spec(s)
    packed = depthwise_arguments.pack_weights(w, t.host())
    places = wide[..., 5:].ctypes.data, y[..., 2:].ctypes.data, packed.ctypes.data
    data = WindowOperands(*places, x_pixel_nbytes=200, y_pixel_nbytes=120)
    args = depthwise_arguments.depthwise_args(spec, t.host(), s, data)
    t.run(depthwise_kernel.kernel_text(spec, t.host()), args, 2)
    np.testing.assert_allclose(y[..., 2:22], reference(wide[..., 5:25], w, s), atol=1e-5)
    assert (y[..., :2] == 77).all()
    assert (y[..., 22:] == 77).all()


def test_refusals() -> None:
    shape = ConvShape(1, (5, 5), 4, 8, (3, 3), (1, 1), (1, 1), (0,) * 4, 4)
    with pytest.raises(
        ValueError, match=r"group == channels == filters; got group 4, 4 channels, 8 filters: use codegen\.conv"
    ):
        depthwise_kernel.depthwise_spec(shape)
    with pytest.raises(ValueError, match="operation is one of multiply, max, average; got 'median'"):
        WindowSpec("median", (3,), (1,), (1,))
    row = Epilogue(lang.input(0, DType.FLOAT, ()) + lang.input(1, DType.FLOAT, ()), ("row",), (DType.FLOAT,))
    with pytest.raises(ValueError, match="operands of kind column, full or scalar; got 'row'"):
        WindowSpec("max", (3,), (1,), (1,), epilogue=row)
