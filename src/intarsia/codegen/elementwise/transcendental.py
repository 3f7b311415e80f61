"""float32 functions whose steps are taken in float64: sin and cos (Cody and Waite's reduction), pow (2^(y log2 x)) and fmod.

Errors in units of the last place: sin 2, cos 2, pow 1, fmod 0; but sin and cos of |x| >= 2^46 are off by up to 2^-36.
Special values are IEEE 754's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia.codegen.llvm import ir_builder

if TYPE_CHECKING:
    from intarsia.codegen.elementwise.emitter import Emitter

_F32, _F64 = ir_builder.FloatType(), ir_builder.DoubleType()
_I32, _I64 = ir_builder.IntType(32), ir_builder.IntType(64)
_MAGIC = 6755399441055744.0  # 1.5 * 2^52: x + magic - magic rounds x to an integer, which is read off the low bits
_TWO_OVER_PI = 0.6366197723675814
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
_REDUCIBLE = 46  # for |x| < 2^46, x - n pi / 2 is right to 2^-50 and n fits the low bits
_ROWS = 128 - _REDUCIBLE  # exponents of the larger numbers
_DIGIT = 28  # bits of a quotient that are found at once: with a divisor's 24 bits, and one for an error, they fit 53
_DIGITS = 10  # of a quotient below 2^277, the largest number of float32 by the least
_INVERSE_TURN = 0x28BE60DB9391054A7F09D5F47D4D377036D8A5664F  # 2^168 / 2 pi

# Fitted for this file (weighted least squares towards the minimax): relative errors 4e-9, 2e-10, 3e-12, 2e-9.
_SIN = (-0.1666665460493859, 0.008332160479068621, -0.00019515245209076918)  # (sin r - r) / r^3 in r^2, |r| <= pi / 4
_COS = (0.04166664567454197, -0.0013887315850893305, 2.443311132396763e-05)  # (cos r - 1 + r^2 / 2) / r^4
_LOG2 = (
    1.4426950408865722,
    -0.7213475203275658,
    0.48089834880373233,
    -0.3606737931341011,
    0.28853879563096785,
    -0.24044643374064853,
    0.20610712711929438,
    -0.18043674851927757,
    0.16021658855320436,
    -0.14249861456133062,
    0.13027633825947746,
    -0.13462996499814422,
    0.1325094885988628,
    -0.0697355666896904,
)  # log2(1 + f) / f, sqrt(1/2) <= 1 + f < sqrt(2)
_EXP2 = (
    1.0000000005542629,
    0.6931472057376153,
    0.24022646889954383,
    0.05550328776052423,
    0.009618489025857921,
    0.0013399931626517402,
    0.00015345794785078014,
)  # 2^g, |g| <= 1/2


def sine(e: Emitter, x: ir_builder.Value, quarters: int = 0) -> ir_builder.Value:
    """sin(x + quarters pi / 2): x = n pi / 2 + r with |r| <= pi / 4, then +-sin r or +-cos r."""
    b = e.builder
    n, sin, cos = quarter_turns(e, x)
    turn = b.add(n, e.constant(quarters, _I32)) if quarters else n
    odd = b.icmp_unsigned("!=", b.and_(turn, e.constant(1, _I32)), e.constant(0, _I32))
    sign = b.shl(b.and_(turn, e.constant(2, _I32)), e.constant(30, _I32))
    out = b.bitcast(b.xor(b.bitcast(b.select(odd, cos, sin), e.shaped(_I32)), sign), e.shaped(_F32))
    return out if quarters else b.select(b.fcmp_ordered("==", x, e.constant(0.0, _F32)), x, out)  # -0


def quarter_turns(e: Emitter, x: ir_builder.Value) -> tuple[ir_builder.Value, ir_builder.Value, ir_builder.Value]:
    """n, sin r and cos r, where x = n pi / 2 + r with |r| <= pi / 4; n is known modulo 4."""
    n, r = _reduced(e, x)
    return n, *sine_and_cosine(e, r)


def sine_and_cosine(e: Emitter, r: ir_builder.Value) -> tuple[ir_builder.Value, ir_builder.Value]:
    """sin r and cos r of |r| <= pi / 4."""
    b = e.builder
    square = b.fmul(r, r)
    sin = _fma(e, b.fmul(square, r), polynomial(e, square, _SIN, _F32), r)
    cos = _fma(e, square, e.constant(-0.5, _F32), e.constant(1.0, _F32))
    return sin, _fma(e, b.fmul(square, square), polynomial(e, square, _COS, _F32), cos)


def cosine(e: Emitter, x: ir_builder.Value) -> ir_builder.Value:
    return sine(e, x, 1)


def _reduced(e: Emitter, x: ir_builder.Value) -> tuple[ir_builder.Value, ir_builder.Value]:
    """n modulo 4, and r = x - n pi / 2 rounded to float32; NaN for infinite x."""
    b = e.builder
    wide = b.fpext(x, e.shaped(_F64))
    shifted = _fma(e, wide, e.constant(_TWO_OVER_PI, _F64), e.constant(_MAGIC, _F64))
    count = b.fsub(shifted, e.constant(_MAGIC, _F64))
    for part in _HALF_PI:
        wide = _fma(e, count, e.constant(-part, _F64), wide)
    bits = b.bitcast(x, e.shaped(_I32))
    field = b.and_(b.lshr(bits, e.constant(23, _I32)), e.constant(255, _I32))
    row = b.sub(field, e.constant(127 + _REDUCIBLE, _I32))
    huge = b.icmp_unsigned("<", row, e.constant(_ROWS, _I32))
    mantissa = b.or_(b.and_(bits, e.constant(0x7FFFFF, _I32)), e.constant(0x800000, _I32))
    whole = b.sext(b.select(b.icmp_signed("<", bits, e.constant(0, _I32)), b.neg(mantissa), mantissa), e.shaped(_I64))
    turn = b.mul(whole, _table_entry(e, b.select(huge, row, e.constant(0, _I32))))  # x / 2 pi modulo 1, times 2^64
    quarter = b.lshr(b.add(turn, e.constant(1 << 61, _I64)), e.constant(62, _I64))
    rest = b.sitofp(b.sub(turn, b.shl(quarter, e.constant(62, _I64))), e.shaped(_F64))
    wide = b.select(huge, b.fmul(rest, e.constant(2 * math.pi * 2.0**-64, _F64)), wide)
    n = b.select(huge, quarter, b.bitcast(shifted, e.shaped(_I64)))
    return b.trunc(n, e.shaped(_I32)), b.fptrunc(wide, e.shaped(_F32))


def _table_entry(e: Emitter, row: ir_builder.Value) -> ir_builder.Value:
    """For |x| = m 2^(exponent - 23), by exponent, the number that m is multiplied by: 2^(exponent - 23) / 2 pi modulo 1."""
    b, module = e.builder, e.builder.module
    table = module.globals.get("turns")
    if table is None:
        kind = ir_builder.ArrayType(_I64, _ROWS)
        table = ir_builder.GlobalVariable(module, kind, "turns")
        table.global_constant, table.linkage = True, "internal"
        table.initializer = ir_builder.Constant(kind, [(_INVERSE_TURN >> (_ROWS - 1 - i)) % (1 << 64) for i in range(_ROWS)])

    def entry(index: ir_builder.Value) -> ir_builder.Value:
        return b.load(b.gep(table, [b.zext(index, _I64)], source_etype=_I64), typ=_I64)

    if e.lanes == 1:
        return entry(row)
    out: ir_builder.Value = ir_builder.Constant(ir_builder.VectorType(_I64, e.lanes), ir_builder.Undefined)
    for lane in range(e.lanes):
        out = b.insert_element(out, entry(b.extract_element(row, _I32(lane))), _I32(lane))
    return out


def power(e: Emitter, x: ir_builder.Value, y: ir_builder.Value) -> ir_builder.Value:
    """x^y = 2^(y log2 |x|), negated for negative x and odd y; the special values of IEEE 754-2019, 9.2.1."""
    b = e.builder
    size = e.intrinsic("fabs", [x])
    exponent = b.fmul(b.fpext(y, e.shaped(_F64)), log2_wide(e, b.fpext(size, e.shaped(_F64))))
    out = b.fptrunc(_exp2(e, exponent), e.shaped(_F32))
    zero, one, infinity = (e.constant(v, _F32) for v in (0.0, 1.0, float("inf")))
    whole = b.fcmp_ordered("==", e.intrinsic("floor", [y]), y)
    half = b.fmul(y, e.constant(0.5, _F32))
    odd = b.and_(whole, b.fcmp_ordered("!=", e.intrinsic("floor", [half]), half))
    sign = b.and_(b.bitcast(x, e.shaped(_I32)), e.constant(-(1 << 31), _I32))
    signed = b.bitcast(b.xor(b.bitcast(out, e.shaped(_I32)), sign), e.shaped(_F32))
    out = b.select(odd, signed, out)
    negative = b.and_(b.fcmp_ordered("<", x, zero), b.fcmp_ordered("<", size, infinity))
    out = b.select(b.and_(negative, b.not_(whole)), e.constant(float("nan"), _F32), out)
    unit = b.and_(b.fcmp_ordered("==", size, one), b.fcmp_ordered("==", e.intrinsic("fabs", [y]), infinity))
    unit = b.or_(unit, b.or_(b.fcmp_ordered("==", x, one), b.fcmp_ordered("==", y, zero)))
    return b.select(unit, one, out)


def remainder(e: Emitter, x: ir_builder.Value, y: ir_builder.Value) -> ir_builder.Value:
    """x - trunc(x / y) y without rounding (fmod): digit by digit of the quotient, as in a long division.

    A digit may be 1 too large or too small; what is left then is a bit less than 0 or no less than the divisor, and so exact.
    """
    b, infinity = e.builder, e.constant(float("inf"), _F32)
    size, divisor = e.intrinsic("fabs", [x]), e.intrinsic("fabs", [y])
    rest, step = b.fpext(size, e.shaped(_F64)), b.fpext(divisor, e.shaped(_F64))
    inverse = b.fdiv(e.constant(1.0, _F64), step)
    for place in range(_DIGIT * (_DIGITS - 1), -1, -_DIGIT):
        unit = b.fmul(step, e.constant(2.0**place, _F64))
        digit = e.intrinsic("trunc", [b.fmul(rest, b.fmul(inverse, e.constant(2.0**-place, _F64)))])
        rest = _fma(e, b.fneg(digit), unit, rest)
    rest = b.select(b.fcmp_ordered("<", rest, e.constant(0.0, _F64)), b.fadd(rest, step), rest)
    rest = b.select(b.fcmp_ordered("<=", step, rest), b.fsub(rest, step), rest)
    out = e.intrinsic("copysign", [b.fptrunc(rest, e.shaped(_F32)), x])
    unbounded = b.and_(b.fcmp_ordered("==", divisor, infinity), b.fcmp_ordered("<", size, infinity))
    return b.select(unbounded, x, out)


def log2_wide(e: Emitter, x: ir_builder.Value) -> ir_builder.Value:
    """log2(x) of float64 x that are zero, infinite, NaN or float32 numbers, above 0 (none is denormal in float64)."""
    b = e.builder
    bits = b.bitcast(x, e.shaped(_I64))
    above = b.sub(bits, e.constant(0x3FE6A09E667F3BCD, _I64))  # sqrt(1/2)
    n = b.ashr(above, e.constant(52, _I64))
    f = b.fsub(b.bitcast(b.sub(bits, b.shl(n, e.constant(52, _I64))), e.shaped(_F64)), e.constant(1.0, _F64))
    count = b.sitofp(b.trunc(n, e.shaped(_I32)), e.shaped(_F64))
    out = _fma(e, f, polynomial(e, f, _LOG2, _F64), count)
    out = b.select(b.fcmp_ordered("==", x, e.constant(0.0, _F64)), e.constant(float("-inf"), _F64), out)
    return b.select(b.fcmp_unordered("==", x, e.constant(float("inf"), _F64)), x, out)


def _exp2(e: Emitter, t: ir_builder.Value) -> ir_builder.Value:
    """2^t in float64, right for the results that are float32 numbers; others are beyond float32's range likewise."""
    b = e.builder
    low, high = e.constant(-200.0, _F64), e.constant(200.0, _F64)
    t = b.select(b.fcmp_ordered("<", t, low), low, t)
    t = b.select(b.fcmp_ordered(">", t, high), high, t)
    magic = e.constant(_MAGIC, _F64)
    shifted = b.fadd(t, magic)
    fraction = b.fsub(t, b.fsub(shifted, magic))
    scale = b.shl(b.add(b.bitcast(shifted, e.shaped(_I64)), e.constant(1023, _I64)), e.constant(52, _I64))
    return b.fmul(polynomial(e, fraction, _EXP2, _F64), b.bitcast(scale, e.shaped(_F64)))


def _fma(e: Emitter, x: ir_builder.Value, y: ir_builder.Value, z: ir_builder.Value) -> ir_builder.Value:
    return e.intrinsic("fma", [x, y, z])


def polynomial(e: Emitter, x: ir_builder.Value, coefficients: Sequence[float], kind: ir_builder.Type) -> ir_builder.Value:
    """c0 + c1 x + c2 x^2 + ... by Horner's rule."""
    out = e.constant(coefficients[-1], kind)
    for c in reversed(coefficients[:-1]):
        out = _fma(e, out, x, e.constant(c, kind))
    return out


def exp_double(e: Emitter, x: ir_builder.Value) -> ir_builder.Value:
    """exp(x) = 2^n exp(r) of double, |r| <= ln 2 / 2: Taylor's series, whose next term is below 2^-57."""
    b = e.builder

    def constant(value: float) -> ir_builder.Value:
        return e.constant(value, _F64)

    x = b.select(b.fcmp_ordered("<", x, constant(-746.0)), constant(-746.0), x)
    x = b.select(b.fcmp_ordered(">", x, constant(710.0)), constant(710.0), x)
    p, bits = _exp_parts(e, x)
    p = b.fadd(constant(1.0), p)
    half = b.ashr(bits, e.constant(1, _I64))
    for part in (half, b.sub(bits, half)):  # two factors, so that neither over- nor underflows
        p = b.fmul(p, _power_of_two(e, part))
    return p


def _exp_parts(e: Emitter, x: ir_builder.Value) -> tuple[ir_builder.Value, ir_builder.Value]:
    """exp(r) - 1, and n as an integer, of exp(x) = 2^n exp(r)."""
    b = e.builder

    def constant(value: float) -> ir_builder.Value:
        return e.constant(value, _F64)

    magic = constant(6755399441055744.0)  # 1.5 * 2^52: the sum's low bits are n
    shifted = _fma(e, x, constant(1.4426950408889634), magic)
    n = b.fsub(shifted, magic)
    r = _fma(e, n, constant(-0.6931471803691238), x)
    r = _fma(e, n, constant(-1.9082149292705877e-10), r)
    tail = constant(1 / math.factorial(13))
    for k in range(12, 1, -1):
        tail = _fma(e, tail, r, constant(1 / math.factorial(k)))
    bits = b.sub(b.bitcast(shifted, e.shaped(_I64)), e.constant(0x4338000000000000, _I64))
    return _fma(e, b.fmul(r, r), tail, r), bits


def _power_of_two(e: Emitter, n: ir_builder.Value) -> ir_builder.Value:
    """2^n of whole n, a normal number."""
    b = e.builder
    return b.bitcast(b.shl(b.add(n, e.constant(1023, _I64)), e.constant(52, _I64)), e.shaped(_F64))


def tanh_double(e: Emitter, x: ir_builder.Value) -> ir_builder.Value:
    """tanh(x) = (exp(2 |x|) - 1) / (exp(2 |x|) + 1) with the sign of x; exp(y) - 1 = 2^n (exp(r) - 1) + (2^n - 1)."""
    b = e.builder
    one, two, most = (e.constant(value, _F64) for value in (1.0, 2.0, 40.0))  # it rounds to 1 from 19.1 on
    y = b.fmul(e.intrinsic("fabs", [x]), two)
    y = b.select(b.fcmp_ordered(">", y, most), most, y)
    p, n = _exp_parts(e, y)
    power = _power_of_two(e, n)
    less_one = _fma(e, power, p, b.fsub(power, one))
    return e.intrinsic("copysign", [b.fdiv(less_one, b.fadd(less_one, two)), x])
