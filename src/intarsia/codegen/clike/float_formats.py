"""Floats of 16, 8 and 4 bits from and to float32, by integer arithmetic: round to nearest even, exact subnormals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.codegen.clike.storage_types import Kind
from intarsia.codegen.elementwise.float_formats import FORMATS
from intarsia.graph.dtypes import DType

if TYPE_CHECKING:
    from intarsia.codegen.clike.element import Elements
    from intarsia.codegen.clike.writer import Block


def encode(e: Elements, x: str, dtype: DType, block: Block, saturate: bool = True) -> str:
    """The bits (U32) of a float32 rounded to `dtype`. `saturate`: as Cast's attribute, for types of 8 bits."""
    if dtype is DType.FLOAT8E8M0:  # of what its operators' definitions have made a power of two
        return e.let(block, f"(({e.dialect.bitcast(x, Kind.F32, Kind.U32)} >> 23u) & 255u)", Kind.U32)
    f, d = FORMATS[dtype], e.dialect
    if dtype is DType.FLOAT16 and (text := d.encode_half(x)) is not None:
        return e.let(block, text, Kind.U32)
    saturate = f.saturates and (saturate or f.nan is None)
    bits = e.let(block, d.bitcast(x, Kind.F32, Kind.U32), Kind.U32)
    size = e.let(block, f"({bits} & 0x7fffffffu)", Kind.U32)
    cut = 23 - f.mantissa
    rounded = e.let(block, f"(({size} + {(1 << (cut - 1)) - 1}u + (({size} >> {cut}u) & 1u)) >> {cut}u)", Kind.U32)
    code = e.let(block, f"({rounded} - {(127 - f.bias) << f.mantissa}u)", Kind.U32)
    if f.bias < 127:  # below the smallest normal number: the number of smallest steps that it has
        least = (128 - f.bias) << 23
        step = e.literal(2.0 ** (f.bias - 1 + f.mantissa), Kind.F32)
        steps = f"{d.functions['round', Kind.F32]}({d.bitcast(size, Kind.U32, Kind.F32)} * {step})"
        small = e.one_of(block, f"({size} < {least}u)", steps, e.literal(0, Kind.F32), Kind.F32)
        code = e.one_of(block, f"({size} < {least}u)", d.convert(small, Kind.F32, Kind.U32), code, Kind.U32)
    beyond = f.largest if saturate else f.infinity if f.infinity is not None else f.nan
    code = e.one_of(block, f"({rounded} > {f.largest + ((127 - f.bias) << f.mantissa)}u)", f"{beyond}u", code, Kind.U32)
    sign = e.let(block, f"(({bits} >> 31u) * {f.sign}u)", Kind.U32)
    if f.unsigned_zero:
        sign = e.one_of(block, f"({code} == 0u)", "0u", sign, Kind.U32)
    code = e.let(block, f"({code} | {sign})", Kind.U32)
    if f.nan is None:  # ml_dtypes makes a zero of it
        return e.one_of(block, f"({size} > 0x7f800000u)", f"({sign} ^ {f.sign}u)", code, Kind.U32)
    nan = f"{f.nan}u" if f.unsigned_zero else f"({f.nan}u | {sign})"
    return e.one_of(block, f"({size} > 0x7f800000u)", nan, code, Kind.U32)


def decode(e: Elements, bits: str, dtype: DType, block: Block) -> str:
    """The float32 that these bits (U32; those above the format's are ignored) are in `dtype`."""
    if dtype is DType.FLOAT8E8M0:
        return _power(e, bits, block)
    f, d = FORMATS[dtype], e.dialect
    if dtype is DType.BFLOAT16:
        return e.let(block, d.bitcast(f"({bits} << 16u)", Kind.U32, Kind.F32), Kind.F32)
    if dtype is DType.FLOAT16 and (text := d.decode_half(bits)) is not None:
        return e.let(block, text, Kind.F32)
    size = e.let(block, f"({bits} & {f.sign - 1}u)", Kind.U32)
    normal = d.bitcast(f"(({size} << {23 - f.mantissa}u) + {(127 - f.bias) << 23}u)", Kind.U32, Kind.F32)
    small = f"({d.convert(size, Kind.U32, Kind.F32)} * {e.literal(2.0 ** (1 - f.bias - f.mantissa), Kind.F32)})"
    value = e.one_of(block, f"({size} < {1 << f.mantissa}u)", small, normal, Kind.F32)
    if f.infinity is not None:
        infinity = e.literal(float("inf"), Kind.F32)
        value = e.one_of(block, f"({size} == {f.infinity}u)", infinity, value, Kind.F32)
        value = e.one_of(block, f"({size} > {f.infinity}u)", e.literal(float("nan"), Kind.F32), value, Kind.F32)
    elif f.nan is not None and not f.unsigned_zero:
        value = e.one_of(block, f"({size} == {f.nan}u)", e.literal(float("nan"), Kind.F32), value, Kind.F32)
    value = e.one_of(block, f"(({bits} & {f.sign}u) != 0u)", f"(-{value})", value, Kind.F32)
    if not f.unsigned_zero:
        return value
    nan = e.literal(float("nan"), Kind.F32)
    return e.one_of(block, f"(({bits} & {2 * f.sign - 1}u) == {f.nan}u)", nan, value, Kind.F32)


def _power(e: Elements, bits: str, block: Block) -> str:
    """2^(c - 127) of the code c, whose lowest is a denormal float32; 255 is NaN."""
    code = e.let(block, f"({bits} & 255u)", Kind.U32)
    exponent = e.one_of(block, f"({code} == 255u)", "0x7fc00000u", f"({code} << 23u)", Kind.U32)
    found = e.one_of(block, f"({code} == 0u)", "0x400000u", exponent, Kind.U32)
    return e.let(block, e.dialect.bitcast(found, Kind.U32, Kind.F32), Kind.F32)
