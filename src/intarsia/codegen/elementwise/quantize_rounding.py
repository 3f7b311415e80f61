"""Rounding to whole numbers within bounds, as 8-bit quantisation has it: elements, as `emitter` writes them.

Adding 1.5 * 2^23 to a float32 leaves a whole number, half to even, in its last bits. Where no value is NaN, what is out of
bounds is found by comparing these bits as integers: floats of one sign are in the order of their bits, and negative ones are
less. Zen 4's units for products of bytes also multiply floats and compare them; additions, conversions and integers have
others, so that the end of one tile of sums runs beside the products of the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from intarsia.codegen.llvm import ir_builder
from intarsia.graph.dtypes import DType
from intarsia.primitives.lang import Tensor
from intarsia.primitives.substitute import quantized, rounded_steps

if TYPE_CHECKING:
    from intarsia.codegen.elementwise.emitter import Emitter

F32, I8, I32 = ir_builder.FloatType(), ir_builder.IntType(8), ir_builder.IntType(32)
_ROUNDING, _BITS = 12582912.0, 0x4B400000  # 1.5 * 2^23 and its bits
_LARGEST_WHOLE = 1 << 21
_LARGEST_FACTOR = 2.0**100

Values = Callable[[Tensor], ir_builder.Value]


def emit_rounded(e: Emitter, t: Tensor, value: Values) -> ir_builder.Value | None:
    """`t` where it is a number rounded to steps within bounds; None where it is anything else."""
    parts = quantized(t)
    if parts is not None:
        zero = value(parts.add.args[1]) if parts.add else None
        return (_byte if e.finite else _byte_of_any)(e, parts.x, zero, parts.low, parts.high, value)
    steps = rounded_steps(t)
    if steps is not None:
        zero = value(steps.add.args[1]) if steps.add else None
        magic = e.constant(_ROUNDING, F32)
        return e.builder.fsub(e.builder.fadd(_limited(e, value(steps.x), zero, steps.low, steps.high), magic), magic)
    if e.finite and t.prim == "min" and t.args[0].prim == "max" and t.dtype is DType.FLOAT:
        (rounded, low), high = t.args[0].args, t.args[1]
        if rounded.prim == "round" and _is_whole(low) and _is_whole(high):
            return _between(e, rounded.args[0], value(low), value(high), value)
    return None


def _is_whole(t: Tensor) -> bool:
    """Whether all elements are known to be whole numbers of few bits."""
    t = _plain(t)
    if t.prim == "scalar":
        return bool(t.attrs[0] == t.attrs[0] // 1 and abs(t.attrs[0]) < _LARGEST_WHOLE)
    if t.prim == "cast":
        return t.args[0].dtype in (DType.INT8, DType.UINT8) or _is_whole(t.args[0])
    return t.prim == "sub" and all(_plain(a).prim != "sub" and _is_whole(a) for a in t.args)


def _plain(t: Tensor) -> Tensor:
    while t.prim in ("broadcast", "expand", "reshape"):
        (t,) = t.args
    return t


def _is_single(t: Tensor) -> bool:
    t = _plain(t)
    return t.prim in ("input", "scalar") and all(d == 1 for d in t.shape)


# --- where no value is NaN ---


def _between(e: Emitter, x: Tensor, low: ir_builder.Value, high: ir_builder.Value, value: Values) -> ir_builder.Value:
    """round(x) within two whole numbers."""
    b, magic = e.builder, e.constant(_ROUNDING, F32)
    least, most = (b.bitcast(b.fadd(bound, magic), e.shaped(I32)) for bound in (low, high))
    bits = e.intrinsic("smin", [e.intrinsic("smax", [_bits(e, x, value), least]), most])
    return b.fsub(b.bitcast(bits, e.shaped(F32)), magic)


def _byte(e: Emitter, x: Tensor, zero: ir_builder.Value | None, low: float, high: float, value: Values) -> ir_builder.Value:
    """round(x) + zero within [low, high], as 8 bits: what is too low is limited first, so that the zero point may be added to
    the bits, what is too high by the instruction that takes the last eight bits."""
    b = e.builder
    start = e.constant(_BITS, I32)
    if zero is not None:
        start = b.sub(start, b.fptosi(zero, e.shaped(I32)))
    least = b.add(start, e.constant(int(low), I32)) if low else start
    steps = b.sub(e.intrinsic("smax", [_bits(e, x, value), least]), start)
    if low:
        steps = e.intrinsic("smax", [e.intrinsic("smin", [steps, e.constant(int(high), I32)]), e.constant(int(low), I32)])
    else:
        steps = e.intrinsic("umin", [steps, e.constant(int(high), I32)])
    return b.trunc(steps, e.shaped(I8))


def _bits(e: Emitter, x: Tensor, value: Values) -> ir_builder.Value:
    """The bits of x + 1.5 * 2^23; a product is rounded once only, with the addition."""
    b, magic = e.builder, e.constant(_ROUNDING, F32)
    scaled = _scaled_sum(e, x, value)
    if scaled is not None:
        found = b.fadd(scaled, magic)
    elif x.prim == "mul":
        found = e.intrinsic("fmuladd", [*(value(a) for a in x.args), magic])
    else:
        found = b.fadd(value(x), magic)
    return b.bitcast(found, e.shaped(I32))


def _scaled_sum(e: Emitter, x: Tensor, value: Values) -> ir_builder.Value | None:
    """(p s + q t) u as p (s u) + q (t u), where s, t and u are one number each: a residual sum, brought to new steps. Factors
    that take one step beyond all bytes may be any such number, but infinity times 0 would not be 0."""
    if x.prim != "mul":
        return None
    total, factor = x.args if _is_single(x.args[1]) else x.args[::-1]
    if total.prim != "add" or not _is_single(factor) or any(a.prim != "mul" for a in total.args):
        return None
    pairs = [a.args if _is_single(a.args[1]) else a.args[::-1] for a in total.args]
    if not all(_is_single(scale) for _, scale in pairs):
        return None
    b, by, most = e.builder, value(factor), e.constant(_LARGEST_FACTOR, F32)

    def scaled(scale: Tensor) -> ir_builder.Value:
        product = b.fmul(value(scale), by)
        return b.select(b.fcmp_ordered("<", product, most), product, most)

    (p, s), (q, t) = ((value(number), scaled(scale)) for number, scale in pairs)
    return e.intrinsic("fmuladd", [p, s, b.fmul(q, t)])


# --- where there may be ---


def _byte_of_any(
    e: Emitter, x: Tensor, zero: ir_builder.Value | None, low: float, high: float, value: Values
) -> ir_builder.Value:
    """As `_byte`; the least where x is NaN. A product is limited last."""
    if x.prim != "mul":
        return byte_of(e, value(x), zero, low, high)
    rounded = e.intrinsic("fmuladd", [*(value(a) for a in x.args), e.constant(_ROUNDING, F32)])
    return _last_bits(e, _limited(e, rounded, zero, low + _ROUNDING, high + _ROUNDING), zero)


def byte_of(e: Emitter, x: ir_builder.Value, zero: ir_builder.Value | None, low: float, high: float) -> ir_builder.Value:
    """round(x) + zero (a whole float32) within [low, high], as 8 bits; the least where x is NaN."""
    return _last_bits(e, e.builder.fadd(_limited(e, x, zero, low, high), e.constant(_ROUNDING, F32)), zero)


def _last_bits(e: Emitter, rounded: ir_builder.Value, zero: ir_builder.Value | None) -> ir_builder.Value:
    """A whole number more than 1.5 * 2^23, less that and plus `zero`."""
    b = e.builder
    bits = b.bitcast(rounded, e.shaped(I32))
    if zero is not None:
        bits = b.add(bits, b.fptosi(zero, e.shaped(I32)))
    return b.trunc(bits, e.shaped(I8))


def _limited(e: Emitter, x: ir_builder.Value, zero: ir_builder.Value | None, low: float, high: float) -> ir_builder.Value:
    """x within [low - zero, high - zero]."""
    b = e.builder
    least, most = e.constant(low, F32), e.constant(high, F32)
    if zero is not None:
        least, most = b.fsub(least, zero), b.fsub(most, zero)
    x = b.select(b.fcmp_ordered(">", x, least), x, least)
    return b.select(b.fcmp_ordered("<", x, most), x, most)
