"""Conversion between element types."""

from __future__ import annotations

from intarsia.graph.dtypes import DType
from intarsia.ops.framework.operands import element_type
from intarsia.ops.framework.registry import op
from intarsia.primitives import lang as k

Tensor = k.Tensor

_TO_E8M0 = ("up", "down", "nearest")


@op("Cast", (1, 6, 9, 13))
def cast(input: Tensor, *, to: int | str) -> Tensor:
    return k.cast(input, element_type(to))


@op("Cast", (19, 21, 23))
def cast_saturating(input: Tensor, *, to: int, saturate: int = 1) -> Tensor:
    return k.cast(input, element_type(to), bool(saturate))


@op("Cast", (24, 25, 28))
def cast_rounding(input: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return converted(input, element_type(to), bool(saturate), round_mode)


@op("CastLike", 15)
def cast_like(input: Tensor, target_type: Tensor) -> Tensor:
    return k.cast(input, target_type.dtype)


@op("CastLike", (19, 21, 23))
def cast_like_saturating(input: Tensor, target_type: Tensor, *, saturate: int = 1) -> Tensor:
    return k.cast(input, target_type.dtype, bool(saturate))


@op("CastLike", (24, 25))
def cast_like_rounding(input: Tensor, target_type: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return converted(input, target_type.dtype, bool(saturate), round_mode)


@op("BitCast", 26)
def bit_cast(input: Tensor, *, to: int) -> Tensor:
    target = element_type(to)
    if DType.STRING in (input.dtype, target):
        raise k.DefinitionError("BitCast does not take strings")
    return input if input.dtype == target else k.bitcast(input, target)


def converted(x: Tensor, dtype: DType, saturate: bool, round_mode: str) -> Tensor:
    if dtype is not DType.FLOAT8E8M0 or x.dtype is dtype:
        return k.cast(x, dtype, saturate)
    if round_mode not in _TO_E8M0:
        raise k.DefinitionError(f"round_mode must be one of {', '.join(map(repr, _TO_E8M0))}, got {round_mode!r}")
    return _to_e8m0(k.cast(x, DType.FLOAT), saturate, round_mode)


def _to_e8m0(x: Tensor, saturate: bool, round_mode: str) -> Tensor:
    """The power of two near `x` as its biased exponent (code c is 2^(c - 127), 255 is NaN), from the bits of a float32.

    Codes 0 and 1 are 2^-127 and 2^-126, the former a denormal float32 with fraction 0x400000.
    """
    bits = k.binary("bitand", k.bitcast(x, DType.INT32), 0x7FFFFFFF)
    exponent = k.binary("shr", bits, 23)
    fraction = k.binary("bitand", bits, 0x7FFFFF)
    denormal = k.equal(exponent, 0)
    if round_mode == "up":
        more = k.select(denormal, fraction > 0x400000, fraction > 0)
    elif round_mode == "nearest":
        more = k.select(denormal, fraction >= 0x600000, fraction >= 0x400000)
    else:
        more = k.full((), False, DType.BOOL)
    code = exponent + k.cast(more, DType.INT32)
    special = exponent >= 255  # infinity and NaN
    overflow = 254 if saturate else 255
    code = k.select(special, overflow, k.select(code > 254, overflow, code))
    if not saturate:
        code = k.select(bits < 0x400000, 255, code)  # 0, and what is below the smallest
    code = k.select(k.unary("isnan", x), 255, code)
    return k.bitcast(k.cast(code, DType.UINT8), DType.FLOAT8E8M0)
