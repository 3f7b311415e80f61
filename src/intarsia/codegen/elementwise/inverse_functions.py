"""float32 inverse trigonometric and hyperbolic functions without calls, for one element or a vector.

Largest errors seen over all of float32's range, in units of the last place: atan 2, asin 2, acos 2, sinh 5, cosh 4, tan 3,
asinh, acosh and atanh 1. Special values are IEEE 754's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from intarsia.codegen.elementwise.transcendental import log2_wide, polynomial, quarter_turns
from intarsia.codegen.llvm import ir_builder

if TYPE_CHECKING:
    from intarsia.codegen.elementwise.emitter import Emitter

_F32, _F64 = ir_builder.FloatType(), ir_builder.DoubleType()
_I32 = ir_builder.IntType(32)
_LN_2 = math.log(2.0)
_SMALL = 1e-4  # asinh x and atanh x are x - x^3 / 6 and x + x^3 / 3 below

# Fitted for this file (minimax, relative): errors 7e-9, 2e-8, 1e-9 of the terms behind x.
_ATAN = (
    -0.3333333310653801,
    0.1999995295638054,
    -0.1428409556306378,
    0.11089168850622307,
    -0.08936359091486024,
    0.07044705151686848,
    -0.049173405914929184,
    0.02651212974226862,
    -0.009253553553695434,
    0.0015126026281444924,
)  # (atan x - x) / x^3 in x^2, |x| <= 1
_ASIN = (
    0.1666666632003079,
    0.07500098101464259,
    0.04459824389416408,
    0.031113788317094635,
    0.01708867023380156,
    0.03378847579024851,
)  # (asin x - x) / x^3 in x^2, |x| <= 1/2
_SINH = (0.1666666665885239, 0.008333338631968092, 0.00019838319737921093, 2.8050032331767093e-06)  # |x| <= 1


def arctangent(e: Emitter, x: ir_builder.Value) -> ir_builder.Value:
    """atan x; of |x| > 1 it is pi / 2 - atan(1 / |x|) with the sign of x."""
    b, one = e.builder, e.constant(1.0, _F32)
    size = e.intrinsic("fabs", [x])
    large = b.fcmp_ordered(">", size, one)
    t = b.fdiv(b.select(large, one, size), b.select(large, size, one))
    near = _odd(e, t, _ATAN)
    return e.intrinsic("copysign", [b.select(large, b.fsub(e.constant(math.pi / 2, _F32), near), near), x])


def arcsine(e: Emitter, x: ir_builder.Value) -> ir_builder.Value:
    """asin x; of |x| > 1/2 it is pi / 2 - 2 asin(sqrt((1 - |x|) / 2)) with the sign of x."""
    b = e.builder
    _, large, near = _half_angle(e, x)
    high = b.fsub(e.constant(math.pi / 2, _F32), b.fmul(near, e.constant(2.0, _F32)))
    return e.intrinsic("copysign", [b.select(large, high, near), x])


def arccosine(e: Emitter, x: ir_builder.Value) -> ir_builder.Value:
    b = e.builder
    negative, large, near = _half_angle(e, x)
    twice = b.fmul(near, e.constant(2.0, _F32))
    high = b.select(negative, b.fsub(e.constant(math.pi, _F32), twice), twice)
    signed = e.intrinsic("copysign", [near, x])
    low = b.fsub(e.constant(math.pi / 2, _F32), b.fsub(signed, e.constant(-4.371139e-08, _F32)))  # pi / 2 in two parts
    return b.select(large, high, low)


def _half_angle(e: Emitter, x: ir_builder.Value) -> tuple[ir_builder.Value, ir_builder.Value, ir_builder.Value]:
    """Whether x < 0, whether |x| > 1/2, and asin of |x|, or of sqrt((1 - |x|) / 2) where it is."""
    b, half = e.builder, e.constant(0.5, _F32)
    size = e.intrinsic("fabs", [x])
    large = b.fcmp_ordered(">", size, half)
    rest = b.fmul(b.fsub(e.constant(1.0, _F32), size), half)
    near = b.select(large, e.intrinsic("sqrt", [rest]), size)
    return b.fcmp_ordered("<", x, e.constant(0.0, _F32)), large, _odd(e, near, _ASIN)


def _odd(e: Emitter, x: ir_builder.Value, coefficients: tuple[float, ...]) -> ir_builder.Value:
    """x + x^3 P(x^2)."""
    b = e.builder
    square = b.fmul(x, x)
    return e.intrinsic("fma", [b.fmul(square, x), polynomial(e, square, coefficients, _F32), x])


def hyperbolic_sine(e: Emitter, x: ir_builder.Value) -> ir_builder.Value:
    """(e^x - e^-x) / 2 for |x| > 1, a polynomial below."""
    b = e.builder
    size = e.intrinsic("fabs", [x])
    half, quarter = _half_power(e, size)
    high = e.intrinsic("copysign", [b.fsub(half, quarter), x])
    return b.select(b.fcmp_ordered("<", size, e.constant(1.0, _F32)), _odd(e, x, _SINH), high)


def hyperbolic_cosine(e: Emitter, x: ir_builder.Value) -> ir_builder.Value:
    half, quarter = _half_power(e, e.intrinsic("fabs", [x]))
    return e.builder.fadd(half, quarter)


def _half_power(e: Emitter, size: ir_builder.Value) -> tuple[ir_builder.Value, ir_builder.Value]:
    """e^x / 2 and e^-x / 2 of x >= 0; the power is a square, so that it overflows only where its half does."""
    b = e.builder
    root = e.exponential(b.fmul(size, e.constant(0.5, _F32)))
    half = b.fmul(b.fmul(root, e.constant(0.5, _F32)), root)
    return half, b.fdiv(e.constant(0.25, _F32), half)


def tangent(e: Emitter, x: ir_builder.Value) -> ir_builder.Value:
    """sin r / cos r, or -cos r / sin r, where x = n pi / 2 + r."""
    b = e.builder
    n, sin, cos = quarter_turns(e, x)
    odd = b.icmp_unsigned("!=", b.and_(n, e.constant(1, _I32)), e.constant(0, _I32))
    out = b.fdiv(b.select(odd, b.fneg(cos), sin), b.select(odd, sin, cos))
    return b.select(b.fcmp_ordered("==", x, e.constant(0.0, _F32)), x, out)  # -0


def area_sine(e: Emitter, x: ir_builder.Value) -> ir_builder.Value:
    """asinh x = log(|x| + sqrt(x^2 + 1)) with the sign of x."""
    b = e.builder
    size = b.fpext(e.intrinsic("fabs", [x]), e.shaped(_F64))
    root = e.intrinsic("sqrt", [e.intrinsic("fma", [size, size, e.constant(1.0, _F64)])])
    return _signed_area(e, x, _log(e, b.fadd(size, root)), -1 / 6)


def area_cosine(e: Emitter, x: ir_builder.Value) -> ir_builder.Value:
    """acosh x = log(x + sqrt(x^2 - 1)); NaN below 1."""
    b, one = e.builder, e.constant(1.0, _F64)
    wide = b.fpext(x, e.shaped(_F64))
    root = e.intrinsic("sqrt", [b.fmul(b.fsub(wide, one), b.fadd(wide, one))])
    out = b.fptrunc(_log(e, b.fadd(wide, root)), e.shaped(_F32))
    return b.select(b.fcmp_unordered("<", x, e.constant(1.0, _F32)), e.constant(float("nan"), _F32), out)


def area_tangent(e: Emitter, x: ir_builder.Value) -> ir_builder.Value:
    """atanh x = log((1 + |x|) / (1 - |x|)) / 2 with the sign of x; NaN beyond 1."""
    b, one = e.builder, e.constant(1.0, _F64)
    size = e.intrinsic("fabs", [x])
    wide = b.fpext(size, e.shaped(_F64))
    half = b.fmul(_log(e, b.fdiv(b.fadd(one, wide), b.fsub(one, wide))), e.constant(0.5, _F64))
    out = _signed_area(e, x, half, 1 / 3)
    return b.select(b.fcmp_unordered(">", size, e.constant(1.0, _F32)), e.constant(float("nan"), _F32), out)


def _signed_area(e: Emitter, x: ir_builder.Value, wide: ir_builder.Value, cubic: float) -> ir_builder.Value:
    """`wide` with the sign of x, or x + cubic x^3 where x is small."""
    b = e.builder
    near = b.fmul(x, e.intrinsic("fma", [b.fmul(x, x), e.constant(cubic, _F32), e.constant(1.0, _F32)]))
    out = e.intrinsic("copysign", [b.fptrunc(wide, e.shaped(_F32)), x])
    return b.select(b.fcmp_ordered("<", e.intrinsic("fabs", [x]), e.constant(_SMALL, _F32)), near, out)


def _log(e: Emitter, x: ir_builder.Value) -> ir_builder.Value:
    return e.builder.fmul(log2_wide(e, x), e.constant(_LN_2, _F64))
