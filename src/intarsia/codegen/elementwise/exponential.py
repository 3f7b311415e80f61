"""exp of float32, and 1 / (1 + exp(x)), as `emitter.Emitter` writes them.

exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2: n is read off the last bits of x / ln 2 + 1.5 * 2^23, to which the
bias of exponents is added, so that a shift makes a power of two of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.codegen.llvm import ir_builder
from intarsia.primitives.lang import Tensor

if TYPE_CHECKING:
    from intarsia.codegen.elementwise.emitter import Emitter

# 1, 1, and (exp(r) - 1 - r) / r^2 for |r| <= ln 2 / 2, fitted for this file (weighted least squares, relative error 3e-9).
POLYNOMIAL = (
    1.0,
    1.0,
    0.4999999403953552,
    0.1666652113199234,
    0.04166839271783829,
    0.008368746377527714,
    0.0013814534759148955,
)
LN2_PARTS, LN2_ROUNDED = (-0.693145751953125, -1.428606765330187e-06), (-0.6931471805599453,)  # -ln 2
_F32, _I32 = ir_builder.FloatType(), ir_builder.IntType(32)
_INVERSE_LN2, _MAGIC, _BIAS, _MANTISSA = 1.4426950408889634, 12582912.0, 127, 23


def exp(e: Emitter, x: ir_builder.Value) -> ir_builder.Value:
    """exp(x), also where it is denormal: 2^n in two factors."""
    b = e.builder
    p, bits = _parts(e, e.clamp(x, -105.0, 89.0), 2 * _BIAS, LN2_PARTS)
    half = b.lshr(bits, e.constant(1, _I32))
    return b.fmul(b.fmul(p, _power_of_two(e, half)), _power_of_two(e, b.sub(bits, half)))


def exp_by_ldexp(e: Emitter, x: ir_builder.Value) -> tuple[ir_builder.Value, ir_builder.Value]:
    """exp(r) and n."""
    p, bits = _parts(e, e.clamp(x, -105.0, 89.0), 0, LN2_PARTS)
    return p, e.builder.sub(bits, e.constant(0x4B400000, _I32))


def sigmoid(e: Emitter, x: ir_builder.Value) -> ir_builder.Value:
    """1 / (1 + exp(x)), both halved, so that exp(x) may be all that float32 has; 0 from 2^128.5 on.

    -ln 2 in one part will do: what that is off by grows with |n|, where a sigmoid is nearly 0 or exp(x) beside 1 is.
    """
    p, bits = _parts(e, e.clamp(x, -86.5, 89.3), _BIAS - 1, LN2_ROUNDED)
    half = e.constant(0.5, _F32)
    return e.builder.fdiv(half, e.intrinsic("fma", [p, _power_of_two(e, bits), half]), flags=("nsz",))


def _parts(e: Emitter, x: ir_builder.Value, bias: int, ln2: tuple[float, ...]) -> tuple[ir_builder.Value, ir_builder.Value]:
    """exp(r), and a number whose last bits are n + `bias`."""
    b, magic = e.builder, e.constant(_MAGIC + bias, _F32)
    shifted = e.intrinsic("fma", [x, e.constant(_INVERSE_LN2, _F32), magic])
    n = b.fsub(shifted, magic)
    for part in ln2:
        x = e.intrinsic("fma", [n, e.constant(part, _F32), x])
    return e.polynomial(x, POLYNOMIAL), b.bitcast(shifted, e.shaped(_I32))


def _power_of_two(e: Emitter, bits: ir_builder.Value) -> ir_builder.Value:
    """2^n of a number whose last bits are n + 127."""
    b = e.builder
    return b.bitcast(b.shl(bits, e.constant(_MANTISSA, _I32)), e.shaped(_F32))


def sigmoid_exponent(t: Tensor) -> Tensor | None:
    """The x of 1 / (1 + exp(x)), if that is what `t` is."""
    if t.prim != "div" or not _is_one(t.args[0]):
        return None
    below = plain(t.args[1])
    if below.prim != "add" or not any(map(_is_one, below.args)):
        return None
    exponential = next((plain(a) for a in below.args if plain(a).prim == "exp"), None)
    return exponential.args[0] if exponential is not None else None


def _is_one(t: Tensor) -> bool:
    t = plain(t)
    return t.prim == "scalar" and bool(t.attrs[0] == 1)


def plain(t: Tensor) -> Tensor:
    """`t` without what only gives it another shape."""
    while t.prim in ("broadcast", "expand", "reshape"):
        (t,) = t.args
    return t
