"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear: per tensor, per axis, in blocks."""

from __future__ import annotations

from intarsia.graph.dims import Dim, floordiv
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.operands import element_type, normal_axis
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import op
from intarsia.primitives import lang as k

_RANGES = {
    DType.UINT8: (0, 255), DType.INT8: (-128, 127), DType.UINT16: (0, 65535), DType.INT16: (-32768, 32767),
    DType.UINT4: (0, 15), DType.INT4: (-8, 7), DType.UINT2: (0, 3), DType.INT2: (-2, 1), DType.INT32: (-(2**31), 2**31 - 1),
}  # fmt: skip


@dataclass(frozen=True)
class Rounding(ParameterGroup):
    """To which type numbers are rounded, of quotients in which type, and what becomes of those that float8 does not have."""

    output_dtype: int = 0
    precision: int = 0
    saturate: int = 1


@op("QuantizeLinear", since=(10, 13, 19, 21, 23, 24, 25, 28))
def quantize_linear(
    x: k.Tensor, y_scale: k.Tensor, y_zero_point: k.Tensor | None = None, *, axis: int = 1, block_size: int = 0,
    rounding: Rounding,
) -> k.Tensor:  # fmt: skip
    output_dtype, precision = rounding.output_dtype, rounding.precision
    target = y_zero_point.dtype if y_zero_point is not None else element_type(output_dtype) if output_dtype else DType.UINT8
    requested = element_type(precision) if precision else y_scale.dtype
    # Quotients of 16-bit floats are rounded to whole numbers alone, as onnxruntime has them, unless `precision` requests more.
    kind = DType.DOUBLE if requested is DType.DOUBLE else DType.FLOAT
    narrow = requested if precision and requested in (DType.FLOAT16, DType.BFLOAT16) else kind

    def rounded_to(t: k.Tensor) -> k.Tensor:
        return k.cast(k.cast(t, narrow), kind)

    ratio = rounded_to(x) / rounded_to(along_axis(y_scale, x, axis, block_size))
    ratio = k.cast(k.cast(ratio, narrow), DType.FLOAT)
    zero = None if y_zero_point is None else k.cast(along_axis(y_zero_point, x, axis, block_size), DType.FLOAT)
    if target not in _RANGES:
        return k.cast(ratio if zero is None else ratio + zero, target, bool(rounding.saturate))
    low, high = _RANGES[target]
    rounded = k.unary("round", ratio)
    shifted = rounded if zero is None else rounded + zero
    return k.limited(shifted, low, high, target)


@op("DequantizeLinear", since=(10, 13, 19, 21, 23, 24, 25, 28))
def dequantize_linear(
    x: k.Tensor, x_scale: k.Tensor, x_zero_point: k.Tensor | None = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0,
) -> k.Tensor:  # fmt: skip
    target = element_type(output_dtype) if output_dtype else x_scale.dtype
    scale = k.cast(along_axis(x_scale, x, axis, block_size), DType.FLOAT)
    exact = x.dtype is DType.INT32  # int32 loses digits in float32 before the subtraction
    if x_zero_point is None:
        centred = k.cast(x, DType.FLOAT)
    elif x.dtype.is_integer or exact:
        wide = along_axis(x_zero_point, x, axis, block_size)
        centred = k.cast(k.cast(x, DType.INT32) - k.cast(wide, DType.INT32), DType.FLOAT)
    else:
        centred = k.cast(x, DType.FLOAT) - k.cast(along_axis(x_zero_point, x, axis, block_size), DType.FLOAT)
    return k.cast(centred * scale, target)


@op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(x: k.Tensor) -> tuple[k.Tensor, k.Tensor, k.Tensor]:
    axes = range(x.rank)
    known = k.select(k.unary("isnan", x), 0.0, x)  # NaN has no part in the range, and becomes 0
    low = k.minimum(k.reduce(known, "min", axes), 0.0)
    high = k.maximum(k.reduce(known, "max", axes), 0.0)
    scale = (high - low) / 255.0
    safe = k.select(k.equal(scale, 0.0), 1.0, scale)
    zero = k.unary("round", k.minimum(k.maximum(0.0 - low / safe, 0.0), 255.0))
    y = k.minimum(k.maximum(k.unary("round", x / safe) + zero, 0.0), 255.0)
    return k.cast(y, DType.UINT8), scale, k.cast(zero, DType.UINT8)


op("QuantizeLinear", since=1, domain="com.microsoft")(quantize_linear)
op("DequantizeLinear", since=1, domain="com.microsoft")(dequantize_linear)
op("DynamicQuantizeLinear", since=1, domain="com.microsoft")(dynamic_quantize_linear)


def along_axis(parameter: k.Tensor, x: k.Tensor, axis: int, block_size: int) -> k.Tensor:
    """A scale or zero point in a shape that broadcasts to x's: one in all, one per entry of `axis`, or one per block of it."""
    if block_size < 0:
        raise k.DefinitionError(f"block_size must not be negative, got {block_size}")
    count = parameter.shape[0] if parameter.rank == 1 else None
    if parameter.rank == 0 or (count == 1 and not block_size):
        return k.reshape(parameter, ())
    at = normal_axis(axis, x.rank)
    if block_size:
        return _blocks(parameter, x, at, block_size)
    if parameter.rank != 1:
        raise k.DefinitionError(f"the scale is {parameter!r}; expected rank 0 or 1, or block_size with x's rank")
    extent = x.shape[at]
    if count is not None:  # one may be for all, if only a run says so
        k.require_broadcast(count, extent, f"the scale has {count} entries; x has {extent} on axis {axis}")
    return k.reshape(parameter, [parameter.shape[0] if i == at else 1 for i in range(x.rank)])


def _blocks(parameter: k.Tensor, x: k.Tensor, at: int, block_size: int) -> k.Tensor:
    """Every entry repeated `block_size` times along `at`, cut to x's extent."""
    if parameter.rank != x.rank:
        raise k.DefinitionError(f"blocked quantisation needs a scale of x's rank {x.rank}, got {parameter!r}")
    count, given = floordiv(x.shape[at] + (block_size - 1), block_size), parameter.shape[at]
    if count != given:
        what = (
            f"the scale is {parameter!r}; expected {count} entries on axis {at}, one for each block of {block_size} of the "
            f"{x.shape[at]} entries of x"
        )
        k.require_equal(given, count, what)
        parameter = k.reshape(parameter, [count if i == at else d for i, d in enumerate(parameter.shape)])
    spread: list[Dim] = [*parameter.shape[: at + 1], block_size, *parameter.shape[at + 1 :]]
    merged: list[Dim] = [*parameter.shape[:at], parameter.shape[at] * block_size, *parameter.shape[at + 1 :]]
    whole = k.reshape(k.broadcast(k.expand_dims(parameter, [at + 1]), spread), merged)
    shape = [x.shape[at] if i == at else d for i, d in enumerate(whole.shape)]
    return k.strided_slice(whole, (0,) * x.rank, (1,) * x.rank, shape)
