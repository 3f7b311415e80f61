"""Numbers of 8 bits and fewer as LLVM IR: an element is a byte, of which the low bits count.

Such elements are moved as bytes, and converted to compute with them: floats to and from float32 by integer arithmetic (round to
nearest even, exact subnormals, whatever the CPU makes of float32's subnormals), integers to and from int8 and uint8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.codegen.elementwise.element_types import FEW_BIT_FLOATS, FEW_BIT_INTEGERS
from intarsia.codegen.elementwise.float_formats import FORMATS
from intarsia.codegen.llvm import ir_builder
from intarsia.graph.dtypes import DType

if TYPE_CHECKING:
    from intarsia.codegen.elementwise.emitter import Emitter

_F32, _I8, _I32 = ir_builder.FloatType(), ir_builder.IntType(8), ir_builder.IntType(32)


def widened(dtype: DType) -> DType:
    """The type in which elements are computed with."""
    if dtype in FEW_BIT_INTEGERS:
        return DType.INT8 if dtype.is_signed_integer else DType.UINT8
    return DType.FLOAT


def from_byte(e: Emitter, byte: ir_builder.Value, dtype: DType) -> ir_builder.Value:
    """The number of type `widened(dtype)` that a byte is."""
    b = e.builder
    if dtype is DType.FLOAT8E8M0:
        return _power(e, b.zext(byte, e.shaped(_I32)))
    if dtype in FEW_BIT_FLOATS:
        return _decode(e, b.zext(byte, e.shaped(_I32)), dtype)
    unused = e.constant(8 - dtype.bits, _I8)
    return (b.ashr if dtype.is_signed_integer else b.lshr)(b.shl(byte, unused), unused)


def to_byte(e: Emitter, x: ir_builder.Value, dtype: DType, saturate: bool = True) -> ir_builder.Value:
    """The byte that is float32 `x` rounded to a float type, or the low bits of an integer of 8 or more."""
    b = e.builder
    if dtype in FEW_BIT_FLOATS:
        return b.trunc(_encode(e, x, dtype, saturate), e.shaped(_I8))
    byte = x if x.type == e.shaped(_I8) else b.trunc(x, e.shaped(_I8))
    return b.and_(byte, e.constant((1 << dtype.bits) - 1, _I8))


def _encode(e: Emitter, x: ir_builder.Value, dtype: DType, saturate: bool) -> ir_builder.Value:
    f, b = FORMATS[dtype], e.builder
    saturate = saturate or f.nan is None

    def word(value: int) -> ir_builder.Value:
        return e.constant(value, _I32)

    bits = b.bitcast(x, e.shaped(_I32))
    size = b.and_(bits, word(0x7FFFFFFF))
    cut = 23 - f.mantissa
    odd = b.and_(b.lshr(size, word(cut)), word(1))
    rounded = b.lshr(b.add(b.add(size, word((1 << (cut - 1)) - 1)), odd), word(cut))
    normal = b.sub(rounded, word((127 - f.bias) << f.mantissa))
    # Below the smallest normal number: added to a power of two, whose last bit is the smallest step, it is rounded to steps.
    power = (150 - (f.bias - 1 + f.mantissa)) << 23
    sum_ = b.fadd(b.bitcast(size, e.shaped(_F32)), b.bitcast(word(power), e.shaped(_F32)))
    small = b.sub(b.bitcast(sum_, e.shaped(_I32)), word(power))
    code = b.select(b.icmp_unsigned("<", size, word((128 - f.bias) << 23)), small, normal)
    beyond = f.largest if saturate else f.infinity if f.infinity is not None else f.nan
    assert beyond is not None
    too_large = b.icmp_unsigned(">", rounded, word(f.largest + ((127 - f.bias) << f.mantissa)))
    code = b.select(too_large, word(beyond), code)
    sign = b.and_(b.lshr(bits, word(31 - (f.exponent + f.mantissa))), word(f.sign))
    if f.unsigned_zero:
        sign = b.select(b.icmp_unsigned("==", code, word(0)), word(0), sign)
    if f.nan is None:  # ml_dtypes makes a zero of it
        nan = b.xor(sign, word(f.sign))
    elif f.unsigned_zero:
        nan = word(f.nan)
    else:
        nan = b.or_(word(f.nan), sign)
    return b.select(b.icmp_unsigned(">", size, word(0x7F800000)), nan, b.or_(code, sign))


def _power(e: Emitter, bits: ir_builder.Value) -> ir_builder.Value:
    """2^(bits - 127), of which the first is a subnormal number; NaN of 255."""
    b = e.builder
    value = b.shl(bits, e.constant(23, _I32))
    value = b.select(b.icmp_unsigned("==", bits, e.constant(0, _I32)), e.constant(0x00400000, _I32), value)
    value = b.select(b.icmp_unsigned("==", bits, e.constant(255, _I32)), e.constant(0x7FC00000, _I32), value)
    return b.bitcast(value, e.shaped(_F32))


def _decode(e: Emitter, bits: ir_builder.Value, dtype: DType) -> ir_builder.Value:
    f, b = FORMATS[dtype], e.builder

    def word(value: int) -> ir_builder.Value:
        return e.constant(value, _I32)

    size = b.and_(bits, word(f.sign - 1))
    normal = b.add(b.shl(size, word(23 - f.mantissa)), word((127 - f.bias) << 23))
    steps = b.fmul(b.uitofp(size, e.shaped(_F32)), e.constant(2.0 ** (1 - f.bias - f.mantissa), _F32))
    value = b.select(b.icmp_unsigned("<", size, word(1 << f.mantissa)), b.bitcast(steps, e.shaped(_I32)), normal)
    if f.infinity is not None:
        value = b.select(b.icmp_unsigned("==", size, word(f.infinity)), word(0x7F800000), value)
        value = b.select(b.icmp_unsigned(">", size, word(f.infinity)), word(0x7FC00000), value)
    elif f.nan is not None and not f.unsigned_zero:
        value = b.select(b.icmp_unsigned("==", size, word(f.nan)), word(0x7FC00000), value)
    sign = b.shl(b.and_(bits, word(f.sign)), word(31 - (f.exponent + f.mantissa)))
    value = b.or_(value, sign)
    if f.unsigned_zero:
        nan = b.icmp_unsigned("==", b.and_(bits, word(2 * f.sign - 1)), word(f.sign))  # what would be -0
        value = b.select(nan, word(0xFFC00000), value)
    return b.bitcast(value, e.shaped(_F32))
