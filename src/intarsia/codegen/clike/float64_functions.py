"""Functions of float64 in languages that have only its arithmetic and square roots, perhaps exp and log (WGSL).

Errors are a few units of the last place, but for powers that are not whole (|y log x| times that) and for sines of
|x| above 2^20, whose reduction loses digits. Special values are IEEE 754's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from intarsia.codegen.clike.storage_types import Kind
from intarsia.codegen.clike.writer import Block

if TYPE_CHECKING:
    from intarsia.codegen.clike.element import Elements

_KIND = Kind.F64
_LN2 = (0.6931471803691238, 1.9082149292705877e-10)  # the first has so few bits that its multiples up to 2^11 are exact
_HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)  # 33 bits each
_MOST_SQUARED = 1024  # whole exponents up to this are powers by multiplication: integers have exact ones


def _number(e: Elements, value: float) -> str:
    return e.literal(value, _KIND)


def _let(e: Elements, block: Block, text: str) -> str:
    return e.let(block, text, _KIND)


def _if(e: Elements, block: Block, condition: str, yes: str, no: str) -> str:
    return e.one_of(block, condition, yes, no, _KIND)


def _same_nan(e: Elements, x: str, value: str, block: Block) -> str:
    return _if(e, block, e.is_nan(x, _KIND, block), x, value)


def _power_of_two(e: Elements, n: str, block: Block) -> str:
    """2^n for an I32 from -1022 to 1023."""
    d = e.dialect
    bits = d.convert(f"({n} + 1023)", Kind.I32, Kind.U64)
    return _let(e, block, d.bitcast(d.arithmetic("<<", bits, d.shift("52", Kind.I32), Kind.U64), Kind.U64, _KIND))


def rounded(e: Elements, x: str, block: Block) -> str:
    """To the nearest whole number, halves to even ones; drivers on CPUs without AVX-512 make 709 of 709.5."""
    whole, half = _let(e, block, f"trunc({x})"), _number(e, 0.5)
    rest, halved = _let(e, block, f"abs({x} - {whole})"), _let(e, block, f"({whole} * {half})")
    away = e.let(block, f"({rest} > {half} || ({rest} == {half} && {halved} != trunc({halved})))", Kind.BOOL)
    one = _number(e, 1.0)
    next_one = _if(e, block, f"({x} < {_number(e, 0.0)})", f"({whole} - {one})", f"({whole} + {one})")
    return _if(e, block, away, next_one, whole)


def exponential(e: Elements, x: str, block: Block) -> str:
    """exp(x) = 2^n exp(r), |r| <= ln 2 / 2: Taylor's series, whose next term is below 2^-57."""
    d = e.dialect
    if function := d.functions.get(("exp", _KIND)):
        return _let(e, block, f"{function}({x})")
    low, high = _number(e, -746.0), _number(e, 710.0)
    clamped = _if(e, block, f"({x} > {low})", x, low)  # NaN too
    clamped = _if(e, block, f"({clamped} < {high})", clamped, high)
    count = _let(e, block, f"floor({clamped} * {_number(e, 1 / math.log(2))} + {_number(e, 0.5)})")
    rest = clamped
    for multiple in _LN2:
        rest = _let(e, block, f"({rest} - {count} * {_number(e, multiple)})")
    out = e.polynomial(rest, [1 / math.factorial(i) for i in range(14)], _KIND, block)
    n = e.let(block, d.convert(count, _KIND, Kind.I32), Kind.I32)
    half = e.let(block, f"({n} / 2)", Kind.I32)
    for part in (half, f"({n} - {half})"):  # two factors, so that neither over- nor underflows
        out = _let(e, block, f"({out} * {_power_of_two(e, part, block)})")
    return _same_nan(e, x, out, block)


def logarithm(e: Elements, x: str, block: Block) -> str:
    """log(2^n m) = n log 2 + 2 artanh f, f = (m - 1) / (m + 1), 1/sqrt 2 < m <= sqrt 2."""
    d, one = e.dialect, _number(e, 1.0)
    if function := d.functions.get(("log", _KIND)):
        return _let(e, block, f"{function}({x})")
    small = e.let(block, f"({x} < {_number(e, 2.0**-1022)})", Kind.BOOL)
    normal = _if(e, block, small, f"({x} * {_number(e, 2.0**54)})", x)
    bits = e.let(block, d.bitcast(normal, _KIND, Kind.U64), Kind.U64)
    exponent = d.convert(d.arithmetic(">>", bits, d.shift("52", Kind.I32), Kind.U64), Kind.U64, Kind.I32)
    n = e.let(block, f"(({exponent} & 2047) - 1023)", Kind.I32)
    n = e.one_of(block, small, f"({n} - 54)", n, Kind.I32)
    fraction, unit = (d.literal(v, Kind.U64) for v in ((1 << 52) - 1, 1023 << 52))
    m = _let(e, block, d.bitcast(f"(({bits} & {fraction}) | {unit})", Kind.U64, _KIND))
    above = e.let(block, f"({m} > {_number(e, math.sqrt(2))})", Kind.BOOL)
    m = _if(e, block, above, f"({m} * {_number(e, 0.5)})", m)
    n = e.one_of(block, above, f"({n} + 1)", n, Kind.I32)
    count = _let(e, block, d.convert(n, Kind.I32, _KIND))
    f = _let(e, block, f"(({m} - {one}) / ({m} + {one}))")
    series = e.polynomial(_let(e, block, f"({f} * {f})"), [2 / (2 * i + 1) for i in range(12)], _KIND, block)
    high, low = (f"{count} * {_number(e, part)}" for part in _LN2)
    out = _let(e, block, f"({high} + ({f} * {series} + {low}))")
    infinity = _number(e, math.inf)
    out = _if(e, block, f"({x} == {infinity})", infinity, out)
    out = _if(e, block, f"({x} == {_number(e, 0.0)})", _number(e, -math.inf), out)
    out = _if(e, block, f"({x} < {_number(e, 0.0)})", _number(e, math.nan), out)
    return _same_nan(e, x, out, block)


def _less_one(e: Elements, x: str, block: Block) -> str:
    """exp(x) - 1, by its series where that loses digits."""
    series = e.polynomial(x, [1 / math.factorial(i + 1) for i in range(16)], _KIND, block)
    far = _let(e, block, f"({exponential(e, x, block)} - {_number(e, 1.0)})")
    limit = _number(e, 0.4)
    return _if(e, block, f"({x} < {limit} && {x} > -{limit})", f"({x} * {series})", far)


def tangent_hyperbolic(e: Elements, x: str, block: Block) -> str:
    """(e^2x - 1) / (e^2x + 1), whose e^2x - 1 keeps its digits; +-1 beyond 20."""
    clamped = x
    for sign, limit in ((">", 20.0), ("<", -20.0)):
        clamped = _if(e, block, f"({clamped} {sign} {_number(e, limit)})", _number(e, limit), clamped)
    above = _less_one(e, _let(e, block, f"({clamped} + {clamped})"), block)
    return _same_nan(e, x, _let(e, block, f"({above} / ({above} + {_number(e, 2.0)}))"), block)


def _halves(e: Elements, x: str, block: Block) -> tuple[str, str]:
    """exp(|x| / 2), squared over 2 without overflow where the result has none, and exp(-|x|) / 2."""
    half = _let(e, block, f"(abs({x}) * {_number(e, 0.5)})")
    root = exponential(e, half, block)
    large = _let(e, block, f"({root} * {_number(e, 0.5)} * {root})")
    return large, _let(e, block, f"({_number(e, 0.25)} / {large})")


def sine_hyperbolic(e: Elements, x: str, block: Block) -> str:
    large, small = _halves(e, x, block)
    size = _let(e, block, f"({large} - {small})")
    far = _if(e, block, f"({x} < {_number(e, 0.0)})", f"(-{size})", size)
    square = _let(e, block, f"({x} * {x})")
    series = e.polynomial(square, [1 / math.factorial(2 * i + 1) for i in range(11)], _KIND, block)
    return _if(e, block, f"(abs({x}) < {_number(e, 1.0)})", f"({x} * {series})", _same_nan(e, x, far, block))


def cosine_hyperbolic(e: Elements, x: str, block: Block) -> str:
    large, small = _halves(e, x, block)
    return _let(e, block, f"({large} + {small})")


def _quarters(e: Elements, x: str, block: Block) -> tuple[str, str, str]:
    """n modulo 4, sin r and cos r, where x = n pi / 2 + r and |r| <= pi / 4."""
    d = e.dialect
    count = _let(e, block, f"floor({x} * {_number(e, 2 / math.pi)} + {_number(e, 0.5)})")
    rest = x
    for part in _HALF_PI:
        rest = _let(e, block, f"({rest} - {count} * {_number(e, part)})")
    for sign, limit in ((">", 0.8), ("<", -0.8)):  # of numbers so large that no digit is left
        rest = _if(e, block, f"({rest} {sign} {_number(e, limit)})", _number(e, limit), rest)
    square = _let(e, block, f"({rest} * {rest})")
    odd = e.polynomial(square, [(-1) ** i / math.factorial(2 * i + 1) for i in range(9)], _KIND, block)
    even = e.polynomial(square, [(-1) ** i / math.factorial(2 * i) for i in range(10)], _KIND, block)
    quarter = _let(e, block, f"({count} - {_number(e, 4.0)} * floor({count} * {_number(e, 0.25)}))")
    inside = _if(e, block, f"({quarter} >= {_number(e, 0.0)} && {quarter} < {_number(e, 4.0)})", quarter, _number(e, 0.0))
    return e.let(block, d.convert(inside, _KIND, Kind.I32), Kind.I32), _let(e, block, f"({rest} * {odd})"), even


def _wave(e: Elements, x: str, block: Block, ahead: int) -> str:
    n, sin, cos = _quarters(e, x, block)
    turn = e.let(block, f"(({n} + {ahead}) & 3)", Kind.I32)
    size = _if(e, block, f"(({turn} & 1) == 1)", cos, sin)
    out = _if(e, block, f"({turn} >= 2)", f"(-{size})", size)
    return _if(e, block, f"(abs({x}) < {_number(e, math.inf)})", out, _number(e, math.nan))


def sine(e: Elements, x: str, block: Block) -> str:
    return _wave(e, x, block, 0)


def cosine(e: Elements, x: str, block: Block) -> str:
    return _wave(e, x, block, 1)


def tangent(e: Elements, x: str, block: Block) -> str:
    return _let(e, block, f"({_wave(e, x, block, 0)} / {_wave(e, x, block, 1)})")


def arctangent(e: Elements, x: str, block: Block) -> str:
    """pi / 2 - atan(1 / x) beyond 1; atan(x) = 2 atan(x / (1 + sqrt(1 + x^2))), twice, then its series."""
    one = _number(e, 1.0)
    large = e.let(block, f"(abs({x}) > {one})", Kind.BOOL)
    small = _if(e, block, large, f"({one} / {x})", x)
    angle = small
    for _ in range(2):
        angle = _let(e, block, f"({angle} / ({one} + sqrt({one} + {angle} * {angle})))")
    square = _let(e, block, f"({angle} * {angle})")
    series = e.polynomial(square, [(-1) ** i * 4 / (2 * i + 1) for i in range(13)], _KIND, block)
    near = _let(e, block, f"({angle} * {series})")
    quarter = _number(e, math.pi / 2)
    signed = _if(e, block, f"({x} < {_number(e, 0.0)})", f"(-{quarter})", quarter)
    return _same_nan(e, x, _if(e, block, large, f"({signed} - {near})", near), block)


def _root(e: Elements, square: str, block: Block) -> str:
    """The square root, NaN of what has none."""
    zero = _number(e, 0.0)
    clamped = _if(e, block, f"({square} >= {zero})", square, zero)
    return _if(e, block, f"({square} >= {zero})", f"sqrt({clamped})", _number(e, math.nan))


def arcsine(e: Elements, x: str, block: Block) -> str:
    """atan(x / sqrt(1 - x^2))"""
    one = _number(e, 1.0)
    root = _root(e, _let(e, block, f"(({one} - {x}) * ({one} + {x}))"), block)
    return arctangent(e, _let(e, block, f"({x} / {root})"), block)


def arccosine(e: Elements, x: str, block: Block) -> str:
    """2 atan(sqrt((1 - x) / (1 + x)))"""
    one = _number(e, 1.0)
    angle = arctangent(e, _root(e, _let(e, block, f"(({one} - {x}) / ({one} + {x}))"), block), block)
    return _let(e, block, f"({angle} + {angle})")


def error_function(e: Elements, x: str, block: Block) -> str:
    """2 / sqrt(pi) e^-x^2 (x + 2 x^3 / 3 + 4 x^5 / 15 + ...), whose terms all have one sign; +-1 beyond 6."""
    clamped = x
    for sign, limit in ((">", 6.0), ("<", -6.0)):
        clamped = _if(e, block, f"({clamped} {sign} {_number(e, limit)})", _number(e, limit), clamped)
    square = _let(e, block, f"({clamped} * {clamped})")
    term, total = (e.variable(block, clamped, _KIND) for _ in range(2))
    name, inner = e.fresh("t"), Block(block)
    factor = e.dialect.convert(f"(2 * {name} + 1)", Kind.I32, _KIND)
    inner.write(f"{term} = {term} * (({square} + {square}) / {factor});", f"{total} = {total} + {term};")
    block.nest(e.dialect.loop(name, "1", "130"), inner)
    tail = exponential(e, _let(e, block, f"(-{square})"), block)
    scale = _number(e, 2 / math.sqrt(math.pi))
    return _same_nan(e, x, _let(e, block, f"({total} * {scale} * {tail})"), block)


def power(e: Elements, x: str, y: str, block: Block) -> str:
    """By squaring for whole y up to 1024; else +-exp(y log |x|), NaN for negative x and y that is not whole."""
    d, zero, one = e.dialect, _number(e, 0.0), _number(e, 1.0)
    whole = e.let(block, f"(floor({y}) == {y})", Kind.BOOL)
    half = _let(e, block, f"({y} * {_number(e, 0.5)})")
    odd = e.let(block, f"({whole} && !(floor({half}) == {half}))", Kind.BOOL)
    size = _let(e, block, f"abs({x})")
    out = exponential(e, _let(e, block, f"({y} * {logarithm(e, size, block)})"), block)
    out = _if(e, block, odd, _if(e, block, f"({x} < {zero})", f"(-{out})", out), out)
    out = _if(e, block, f"({x} < {zero} && {size} < {_number(e, math.inf)} && !{whole})", _number(e, math.nan), out)
    out = _if(e, block, f"({size} == {one} && {whole})", _if(e, block, odd, x, one), out)
    few = e.let(block, f"({whole} && abs({y}) <= {_number(e, _MOST_SQUARED)})", Kind.BOOL)
    count = _if(e, block, few, f"abs({y})", zero)
    left = e.variable(block, d.convert(count, _KIND, Kind.I32), Kind.I32)
    product, square = e.variable(block, one, _KIND), e.variable(block, x, _KIND)
    inner = Block(block)
    inner.write(
        f"{product} = {d.select(f'(({left} & 1) == 1)', f'({product} * {square})', product)};",
        f"{square} = {square} * {square};", f"{left} = {left} / 2;",
    )  # fmt: skip
    block.nest(d.loop(e.fresh("p"), "0", str(_MOST_SQUARED.bit_length())), inner)
    squared = _if(e, block, f"({y} < {zero})", f"({one} / {product})", product)
    out = _if(e, block, few, squared, out)
    out = _if(e, block, e.is_nan(x, _KIND, block), x, out)
    out = _if(e, block, e.is_nan(y, _KIND, block), y, out)
    out = _if(e, block, f"({y} == {zero})", one, out)
    return _if(e, block, f"({x} == {one})", one, out)


WRITTEN: Mapping[str, Callable[..., str]] = {
    "exp": exponential, "log": logarithm, "tanh": tangent_hyperbolic, "sinh": sine_hyperbolic, "cosh": cosine_hyperbolic,
    "sin": sine, "cos": cosine, "tan": tangent, "atan": arctangent, "asin": arcsine, "acos": arccosine,
    "erf": error_function, "pow": power, "round": rounded,
}  # fmt: skip
"""What is written for a primitive on doubles."""

SHORT = frozenset(("cosh", "pow"))
"""Those that are few operations where a language has exp and log."""
