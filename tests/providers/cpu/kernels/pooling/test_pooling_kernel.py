from __future__ import annotations

import math

import numpy as np
import pytest

from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import window_args
from intarsia.providers.cpu.kernels.conv.window_products import WindowOperands

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.graph.dtypes import DType
from intarsia.primitives import lang
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import WindowSpec, window_operand
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape
from intarsia.providers.cpu.kernels.pooling import pooling_arguments, pooling_kernel
from intarsia.providers.cpu.kernels.pooling.pooling_arguments import GlobalPoolSpec


def pool_shape(
    batch: int,
    spatial: tuple[int, ...],
    channels: int,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...] | None = None,
) -> ConvShape:
    return ConvShape(batch, spatial, channels, channels, kernel, strides, dilations or (1,) * len(kernel), pads, channels)


SHAPES = [
    pool_shape(1, (14, 14), 20, (3, 3), (2, 2), (1, 1, 1, 1)),
    pool_shape(2, (9, 32), 16, (2, 2), (2, 2), (0, 0, 0, 0)),
    pool_shape(1, (6, 17), 70, (3, 3), (1, 1), (1, 1, 1, 1)),
    pool_shape(1, (10, 9), 5, (3, 2), (1, 2), (2, 0, 1, 1), (2, 3)),
    pool_shape(2, (23,), 17, (4,), (3,), (1, 2)),
    pool_shape(1, (5, 7, 6), 16, (2, 3, 2), (1, 2, 2), (0, 1, 1, 1, 1, 0)),
]


def reference(x: np.ndarray, s: ConvShape, output: tuple[int, ...], operation: str, include: bool) -> np.ndarray:
    rank = len(s.spatial)
    y = np.zeros((s.batch, *output, s.channels))
    for place in np.ndindex(*output):
        inside, counted = [], 0
        for position in np.ndindex(*s.kernel):
            at = [
                o * st - s.pads[i] + p * d
                for i, (o, st, p, d) in enumerate(zip(place, s.strides, position, s.dilations, strict=True))
            ]
            if all(0 <= a < n for a, n in zip(at, s.spatial, strict=True)):
                inside.append(x[(slice(None), *at)].astype(np.float64))
                counted += not include
            counted += include and all(
                -s.pads[i] <= a < n + s.pads[rank + i] for i, (a, n) in enumerate(zip(at, s.spatial, strict=True))
            )
        y[(slice(None), *place)] = np.max(inside, axis=0) if operation == "max" else np.sum(inside, axis=0) / counted
    return y


@pytest.mark.parametrize(("operation", "include"), [("max", False), ("average", False), ("average", True)])
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("s", SHAPES, ids=str)
def test_pool(s: ConvShape, operation: str, include: bool, ceil: bool) -> None:
    rng = np.random.default_rng(0)
    x = t.random(rng, s.batch, *s.spatial, s.channels)
    output = s.output
    if ceil:
        output = tuple(
            math.ceil((p - (k - 1) * d - 1) / st) + 1
            for p, k, d, st in zip(s.padded, s.kernel, s.dilations, s.strides, strict=True)
        )
        starts_inside = [(o - 1) * st < n + p for o, st, n, p in zip(output, s.strides, s.spatial, s.pads, strict=False)]
        output = tuple(o if ok else o - 1 for o, ok in zip(output, starts_inside, strict=True))
    spec = WindowSpec(operation, s.kernel, s.strides, s.dilations)
    expected = reference(x, s, output, operation, include)
    for nthreads in t.THREADS:
        y, whole = t.guarded((s.batch, *output, s.channels))
        data = WindowOperands(x.ctypes.data, y.ctypes.data)
        args = window_args(spec, t.host(), s, data, output=output, count_include_pad=include)
        t.run(pooling_kernel.kernel_text(spec, t.host()), args, nthreads)
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
        t.check_margin(whole)


def bias_residual(factor: np.ndarray) -> Epilogue:
    a, b, r, f = (lang.input(i, DType.FLOAT, ()) for i in range(4))
    return Epilogue((a + b + r) * f, ("column", "full", "scalar"), (DType.FLOAT,) * 3)


@pytest.mark.parametrize("operation", ["max", "average"])
def test_epilogue(operation: str) -> None:
    rng = np.random.default_rng(1)
    s = SHAPES[2]
    x, bias, residual, factor = (
        t.random(rng, 1, *s.spatial, 70),
        t.random(rng, 70),
        t.random(rng, 1, *s.output, 70),
        t.random(rng, 1),
    )
    spec = WindowSpec(operation, s.kernel, s.strides, s.dilations, epilogue=bias_residual(factor))
    y, whole = t.guarded((1, *s.output, 70))
    operands = [
        window_operand(kind, DType.FLOAT, array.ctypes.data, 70, s.output)
        for kind, array in (("column", bias), ("full", residual), ("scalar", factor))
    ]
    t.run(
        pooling_kernel.kernel_text(spec, t.host()),
        window_args(spec, t.host(), s, WindowOperands(x.ctypes.data, y.ctypes.data, operands=operands)),
        2,
    )
    np.testing.assert_allclose(y, (reference(x, s, s.output, operation, False) + bias + residual) * factor, atol=1e-5)
    t.check_margin(whole)


@pytest.mark.parametrize("operation", ["max", "average"])
@pytest.mark.parametrize("dtype", [DType.FLOAT, DType.DOUBLE])
@pytest.mark.parametrize(("batch", "pixels", "channels"), [(1, 49, 130), (3, 1, 64), (2, 8, 5), (1, 10, 257)])
def test_global_pool(batch: int, pixels: int, channels: int, dtype: DType, operation: str) -> None:
    rng = np.random.default_rng(2)
    x = t.random(rng, batch, pixels, channels, dtype=dtype.numpy)
    spec = GlobalPoolSpec(operation, dtype)
    expected = x.astype(np.float64).max(1) if operation == "max" else x.astype(np.float64).mean(1)
    for nthreads in t.THREADS:
        y, whole = t.guarded((batch, channels), dtype.numpy)
        args = pooling_arguments.global_pool_args(spec, x.ctypes.data, y.ctypes.data, (batch, pixels, channels))
        t.run(pooling_kernel.global_pool_text(spec, t.host()), args, nthreads)
        np.testing.assert_allclose(y, expected, atol=1e-6)
        t.check_margin(whole)


@pytest.mark.parametrize("pixels", [1, 2, 7])
def test_global_pool_keeps_nan(pixels: int) -> None:
    """Wherever it is, in whole vectors of channels and in the rest."""
    for at in range(pixels):
        x = t.random(np.random.default_rng(2), 1, pixels, 70)
        x[0, at, ::3] = np.nan
        spec = GlobalPoolSpec("max", DType.FLOAT)
        y, _ = t.guarded((1, 70))
        args = pooling_arguments.global_pool_args(spec, x.ctypes.data, y.ctypes.data, (1, pixels, 70))
        t.run(pooling_kernel.global_pool_text(spec, t.host()), args, 1)
        np.testing.assert_array_equal(y, x.max(1))


def test_global_pool_epilogue() -> None:
    rng = np.random.default_rng(3)
    x, bias, residual, factor = t.random(rng, 2, 9, 75), t.random(rng, 75), t.random(rng, 2, 75), t.random(rng, 1)
    spec = GlobalPoolSpec("average", epilogue=bias_residual(factor))
    y, _ = t.guarded((2, 75))
    operands = [a.ctypes.data for a in (bias, residual, factor)]
    args = pooling_arguments.global_pool_args(spec, x.ctypes.data, y.ctypes.data, (2, 9, 75), operands)
    t.run(pooling_kernel.global_pool_text(spec, t.host()), args, 2)
    np.testing.assert_allclose(y, (x.astype(np.float64).mean(1) + bias + residual) * factor, atol=1e-5)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="operation is max or average; got 'sum'"):
        GlobalPoolSpec("sum")
    row = Epilogue(lang.input(0, DType.FLOAT, ()) + lang.input(1, DType.FLOAT, ()), ("row",), (DType.FLOAT,))
    with pytest.raises(ValueError, match="global pooling's epilogue takes operands of kind column, full or scalar; got 'row'"):
        GlobalPoolSpec("max", epilogue=row)
