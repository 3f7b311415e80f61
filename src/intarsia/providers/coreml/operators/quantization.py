"""Quantised tensors: scales and zero points in the arithmetic of floats, products of bytes in that of 32-bit integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.providers.coreml.node_builder import BYTES, CARRIERS, FLOATS, Handler, NodeBuilder, Var
from intarsia.providers.coreml.operators.convolution import interleaved, matmul

_RANGES: Mapping[DType, tuple[int, int]] = {
    DType.UINT8: (0, 255), DType.INT8: (-128, 127), DType.UINT16: (0, 65535), DType.INT16: (-32768, 32767)
}  # fmt: skip
_EXACT = 1 << 24  # integers up to here are numbers of float32


def _along(b: NodeBuilder, index: int, x: Var) -> Var:
    """A scale or zero point as broadcast to the data: of one element, or of one for each place of the axis."""
    shape = b.shape(index)
    if b.attribute("block_size", 0):
        raise b.refuse("scales of blocks along an axis are not translated")
    if len(shape) > 1:
        raise b.refuse("scales of several axes are not translated")
    if prod(shape) == 1:
        return b.reshape(x, ())
    axis = b.axis(1)
    wide = [shape[0] if i == axis else 1 for i in range(b.rank)]
    return b.reshape(x, wide)


def _quantize(b: NodeBuilder) -> Var:
    """saturate(round(x / scale) + zero point), halves to even."""
    b.only(*FLOATS)
    target = b.out_dtype()
    if target not in _RANGES:
        raise b.refuse(f"QuantizeLinear to {target} is not translated", "type")
    if b.dtype(1) is not DType.FLOAT or b.dtype() is not DType.FLOAT:
        raise b.refuse("QuantizeLinear is translated for float32", "type")
    mb = b.mb
    scaled = mb.round(x=mb.real_div(x=b.x(), y=_along(b, 1, b.x(1))))
    if b.has(2):
        scaled = mb.add(x=scaled, y=b.cast(_along(b, 2, b.x(2)), np.float32))
    return mb.cast(x=saturated(b, scaled, target), dtype="int32")


def saturated(b: NodeBuilder, x: Var, target: DType) -> Var:
    """Floats within what an integer type holds; NaN becomes the lowest."""
    low, high = (np.float32(n) for n in _RANGES[target])
    above = b.mb.greater(x=x, y=low)
    return b.mb.minimum(x=b.mb.select(cond=above, a=x, b=low), y=high)


def _dequantize(b: NodeBuilder) -> Var:
    """(x - zero point) * scale."""
    b.only(*_RANGES, DType.INT32)
    if b.out_dtype() not in FLOATS:
        raise b.refuse(f"Core ML has no {b.out_dtype()}", "type")
    mb, x = b.mb, b.x()
    if b.has(2):
        zero = _along(b, 2, b.x(2))
        x = mb.sub(x=x, y=zero)
    found = mb.mul(x=mb.cast(x=x, dtype="fp32"), y=b.cast(_along(b, 1, b.x(1)), np.float32))
    return b.cast(found, CARRIERS[b.out_dtype()])


def _dynamic_quantize(b: NodeBuilder) -> list[Var]:
    """y, its scale and its zero point, of the data's own extremes with 0 among them."""
    b.only(DType.FLOAT)
    mb = b.mb
    x = b.x() if b.rank else b.reshape(b.x(), (1,))
    axes = list(range(max(b.rank, 1)))
    high = mb.maximum(x=mb.reduce_max(x=x, axes=axes, keep_dims=False), y=np.float32(0))
    low = mb.minimum(x=mb.reduce_min(x=x, axes=axes, keep_dims=False), y=np.float32(0))
    span = mb.sub(x=high, y=low)
    scale = mb.real_div(x=span, y=np.float32(255))
    safe = mb.select(cond=mb.equal(x=scale, y=np.float32(0)), a=mb.add(x=scale, y=np.float32(1)), b=scale)
    zero = mb.round(x=saturated(b, mb.real_div(x=mb.mul(x=low, y=np.float32(-1)), y=safe), DType.UINT8))
    y = saturated(b, mb.add(x=mb.round(x=mb.real_div(x=x, y=safe)), y=zero), DType.UINT8)
    return [
        b.reshape(mb.cast(x=y, dtype="int32"), b.out_shape(0)),
        b.reshape(scale, b.out_shape(1)),
        b.reshape(mb.cast(x=zero, dtype="int32"), b.out_shape(2)),
    ]


def _shifted(b: NodeBuilder, data: int, zero: int, wide: Sequence[int] | None = None) -> Var:
    """Bytes less their zero point, in 32 bits."""
    x = b.x(data)
    if not b.has(zero):
        return x
    point = b.x(zero)
    shape = tuple(wide) if wide is not None and prod(b.shape(zero)) > 1 else ()
    point = b.reshape(point, shape)
    if isinstance(x, np.ndarray) and isinstance(point, np.ndarray):
        return x - point
    return b.mb.sub(x=x, y=point)


def _matmul_integer(b: NodeBuilder) -> Var:
    b.only(*BYTES)
    b.only(*BYTES, index=1)
    for index in (2, 3):
        if b.has(index) and len(b.shape(index)) > 1:
            raise b.refuse("MatMulInteger is translated for zero points of rows and columns")
    left = _shifted(b, 0, 2, (b.shape()[-2], 1) if b.rank > 1 else None)
    right = _shifted(b, 1, 3, (1, b.shape(1)[-1]) if len(b.shape(1)) > 1 else None)
    return b.reshape(matmul(b, left, right), b.out_shape())


def _qlinear_matmul(b: NodeBuilder) -> Var:
    """saturate(round((a - za) (b - zb) * sa * sb / sy) + zy)."""
    b.only(*BYTES)
    if any(prod(b.shape(i)) != 1 for i in (1, 2, 6, 7)) or any(b.dtype(i) is not DType.FLOAT for i in (1, 4, 6)):
        raise b.refuse("QLinearMatMul is translated for one scale of the rows, in float32")
    columns = (1, b.shape(3)[-1])
    found = matmul(b, _shifted(b, 0, 2), _shifted(b, 3, 5, columns))
    scale = b.mb.mul(x=_flat(b, 1), y=_flat(b, 4, columns))
    return b.reshape(_requantized(b, found, (scale, _flat(b, 6), b.cast(_flat(b, 7), np.float32))), b.out_shape())


def _flat(b: NodeBuilder, index: int, wide: Sequence[int] | None = None) -> Var:
    x = b.x(index)
    shape = tuple(wide) if wide is not None and prod(b.shape(index)) > 1 else ()
    return b.reshape(x, shape)


def _requantized(b: NodeBuilder, found: Var, scales: tuple[Var, Var, Var]) -> Var:
    """Sums of bytes in the output's bytes: scale of the operands, scale and zero point of the output."""
    scale, out_scale, zero = scales
    mb = b.mb
    real = mb.mul(x=mb.cast(x=found, dtype="fp32"), y=mb.real_div(x=scale, y=out_scale))
    whole = mb.add(x=mb.round(x=real), y=zero)
    return mb.cast(x=saturated(b, whole, b.out_dtype()), dtype="int32")


def _convolved(b: NodeBuilder, data: Var, weight: Var, at: int) -> Var:
    """A convolution of bytes in float32, which holds its sums; `at`: the index of the weights among the inputs."""
    shape = b.shape(at)
    if prod(shape[1:]) * 255 * 255 >= _EXACT:
        raise b.refuse("sums of so many products of bytes are no numbers of float32, in which Core ML convolves")
    if b.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise b.refuse("convolutions of bytes are translated with pads that are given")
    count = len(shape) - 2
    if b.constant(at) is None and set(b.attribute("dilations") or [1]) != {1}:
        raise b.refuse("Core ML convolves by filters that only a run knows without dilations")
    return b.mb.conv(
        x=b.cast(data, np.float32), weight=b.cast(weight, np.float32),
        strides=[int(n) for n in b.attribute("strides") or [1] * count],
        dilations=[int(n) for n in b.attribute("dilations") or [1] * count],
        groups=int(b.attribute("group", 1)), pad_type="custom", pad=interleaved(b.attribute("pads") or [0] * (2 * count)),
    )  # fmt: skip


def _conv_integer(b: NodeBuilder) -> Var:
    b.only(*BYTES)
    b.only(*BYTES, index=1)
    filters = (b.shape(1)[0], *(1,) * (len(b.shape(1)) - 1))
    y = _convolved(b, _shifted(b, 0, 2), _shifted(b, 1, 3, filters), 1)
    return b.mb.cast(x=y, dtype="int32")


def _qlinear_conv(b: NodeBuilder) -> Var:
    b.only(*BYTES)
    filters = (b.shape(3)[0], *(1,) * (len(b.shape(3)) - 1))
    channels = (1, b.shape(3)[0], *(1,) * (len(b.shape(3)) - 2))
    if any(prod(b.shape(i)) != 1 for i in (1, 2, 6, 7)):
        raise b.refuse("QLinearConv with several scales of its data")
    y = _convolved(b, _shifted(b, 0, 2), _shifted(b, 3, 5, filters), 3)
    if b.has(8):
        bias = b.x(8)
        wide = b.reshape(bias, channels)
        y = b.mb.add(x=b.mb.cast(x=y, dtype="int32"), y=wide)
    scale = b.mb.mul(x=_flat(b, 1), y=_flat(b, 4, channels))
    return _requantized(b, y, (scale, _flat(b, 6), b.cast(_flat(b, 7), np.float32)))


HANDLERS: Mapping[str, Handler] = {
    "ConvInteger": _conv_integer, "DequantizeLinear": _dequantize, "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulInteger": _matmul_integer, "QLinearConv": _qlinear_conv, "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}  # fmt: skip
