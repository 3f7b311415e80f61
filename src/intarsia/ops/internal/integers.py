"""From sums of integers to real numbers and back: forms that providers use inside, never a model.

Their factors and zero points stay operands of a kernel, which therefore does for all layers of a model.
"""

from __future__ import annotations

from intarsia.graph.dtypes import DType
from intarsia.ops.framework.registry import op
from intarsia.primitives import lang as k

DOMAIN = "intarsia.integers"


@op("Rescale", 1, domain=DOMAIN)
def rescale(x: k.Tensor, factor: k.Tensor) -> k.Tensor:
    """int32 `x` as float32, times `factor`."""
    return k.cast(x, DType.FLOAT) * factor


@op("Requantize", 1, domain=DOMAIN)
def requantize(x: k.Tensor, zero_point: k.Tensor, factor: k.Tensor | None = None) -> k.Tensor:
    """round(x * factor) + zero_point, half to even, saturated to the type of `zero_point` (uint8 or int8)."""
    low, high = (0, 255) if zero_point.dtype is DType.UINT8 else (-128, 127)
    shifted = k.unary("round", x if factor is None else x * factor) + k.cast(k.reshape(zero_point, ()), DType.FLOAT)
    return k.limited(shifted, low, high, zero_point.dtype)


@op("Snap", 1, domain=DOMAIN)
def snap(x: k.Tensor, factor: k.Tensor, low: k.Tensor, high: k.Tensor, scale: k.Tensor) -> k.Tensor:
    """The nearest of the steps `low` to `high` of `scale`, whose reciprocal is `factor`: x quantised and dequantised."""
    return k.minimum(k.maximum(k.unary("round", x * factor), low), high) * scale


@op("Lookup", 1, domain=DOMAIN)
def lookup(x: k.Tensor, table: k.Tensor) -> k.Tensor:
    """table[x] of 256 entries; int8 `x` counts as the byte that it is in memory."""
    place = k.cast(x, DType.INT64)
    return k.take(table, place if x.dtype is DType.UINT8 else k.binary("bitand", place, k.full(x.shape, 255, DType.INT64)), 0)
