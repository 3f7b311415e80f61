"""Powers and divisions of integers of 8 to 64 bits, in vectors, without traps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.codegen.llvm import ir_builder

if TYPE_CHECKING:
    from intarsia.codegen.elementwise.emitter import Emitter

_F32, _F64, _I64 = ir_builder.FloatType(), ir_builder.DoubleType(), ir_builder.IntType(64)


def _element(x: ir_builder.Value) -> ir_builder.Type:
    return x.type.element if isinstance(x.type, ir_builder.VectorType) else x.type


def power(e: Emitter, x: ir_builder.Value, y: ir_builder.Value, signed: bool) -> ir_builder.Value:
    """x^y by squaring, wrapping around; for y < 0 the truncated quotient 1 / x^-y."""
    b, kind = e.builder, _element(x)
    zero, one = e.constant(0, kind), e.constant(1, kind)
    out, square, left = one, x, y
    for _ in range(kind.width):
        odd = b.icmp_unsigned("!=", b.and_(left, one), zero)
        out = b.select(odd, b.mul(out, square), out)
        square, left = b.mul(square, square), b.lshr(left, one)
    if signed:
        minus_one = e.constant(-1, kind)
        is_unit = b.or_(b.icmp_signed("==", x, one), b.icmp_signed("==", x, minus_one))
        sign = b.select(b.icmp_unsigned("!=", b.and_(y, one), zero), x, one)
        out = b.select(b.icmp_signed("<", y, zero), b.select(is_unit, sign, zero), out)
    return out


def division(e: Emitter, op: str, x: ir_builder.Value, y: ir_builder.Value, signed: bool) -> ir_builder.Value:
    """Division truncates; by zero quotient and remainder are 0 instead of a trap; MIN / -1 wraps.

    Up to 32 bits the quotient of floats with twice the digits, cut off, is exact; floats are divided in vectors. int64
    takes two such quotients (`_long_division`).
    """
    b, kind = e.builder, _element(x)
    zero, one = e.constant(0, kind), e.constant(1, kind)
    by_zero = b.icmp_unsigned("==", y, zero)
    unsafe = by_zero
    if signed:
        minus_one = b.icmp_signed("==", y, e.constant(-1, kind))
        unsafe = b.or_(by_zero, minus_one)
    divisor = b.select(unsafe, one, y)
    remainder = None
    if isinstance(y, ir_builder.Constant) or (kind.width > 32 and not signed):
        quotient = b.sdiv(x, divisor) if signed else b.udiv(x, divisor)
    elif kind.width > 32:
        quotient, remainder = _long_division(e, x, divisor)
    else:
        wide = e.shaped(_F64 if kind.width == 32 else _F32)
        there, back = (b.sitofp, b.fptosi) if signed else (b.uitofp, b.fptoui)
        quotient = back(b.fdiv(there(x, wide), there(divisor, wide)), e.shaped(kind))
    if op == "div":
        if signed:
            quotient = b.select(minus_one, b.neg(x), quotient)
        return b.select(by_zero, zero, quotient)
    if remainder is None:
        remainder = b.sub(x, b.mul(quotient, divisor))
    if signed and op == "mod":
        wrong = b.and_(b.icmp_signed("!=", remainder, zero), b.icmp_signed("<", b.xor(remainder, y), zero))
        remainder = b.select(wrong, b.add(remainder, y), remainder)
    return b.select(by_zero, zero, remainder)


def _long_division(e: Emitter, x: ir_builder.Value, y: ir_builder.Value) -> tuple[ir_builder.Value, ir_builder.Value]:
    """Quotient, cut off, and remainder of int64 by a divisor that is neither 0 nor -1, without an integer division.

    float64's quotient q is off by less than 1 + 2^-52 |q|. What remains, x - q y, is below |y| + 2^12, so its quotient is
    off by one at most, towards the side where the remainder has another sign than x.
    """
    b, wide = e.builder, e.shaped(_F64)
    divisor = b.sitofp(y, wide)
    first = b.fdiv(b.sitofp(x, wide), divisor)
    most = e.constant(9223372036854774784.0, _F64)  # the last float64 before 2^63
    quotient = b.fptosi(b.select(b.fcmp_ordered("<", first, most), first, most), x.type)
    remainder = b.sub(x, b.mul(quotient, y))
    more = b.fptosi(b.fdiv(b.sitofp(remainder, wide), divisor), x.type)
    quotient, remainder = b.add(quotient, more), b.sub(remainder, b.mul(more, y))
    zero = e.constant(0, _I64)
    beyond = b.and_(b.icmp_signed("<", b.xor(remainder, x), zero), b.icmp_signed("!=", remainder, zero))
    unlike = b.icmp_signed("<", b.xor(x, y), zero)  # then the quotient is negative
    step = b.select(unlike, e.constant(1, _I64), e.constant(-1, _I64))
    back = b.select(unlike, b.neg(y), y)
    quotient = b.select(beyond, b.add(quotient, step), quotient)
    return quotient, b.select(beyond, b.add(remainder, back), remainder)
