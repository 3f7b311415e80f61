"""Element-wise primitives as text: one element at a time, the same arithmetic in every dialect.

Results follow `primitives.interpreter`: minimum and maximum keep NaN, integer division by zero gives 0, narrow integers wrap.
NaN is looked for in the bits, since drivers may take `x != x` for false.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from intarsia.codegen.clike import float64_functions, float_formats
from intarsia.codegen.clike.dialects.dialect import Dialect
from intarsia.codegen.clike.storage_types import KINDS, Kind
from intarsia.codegen.clike.writer import Block
from intarsia.codegen.elementwise.emitter import ERF, UnsupportedPrimitive
from intarsia.graph.dtypes import DType
from intarsia.primitives.interpreter import least
from intarsia.primitives.lang import Tensor, is_limited

_INFIX = {"add": "+", "sub": "-", "mul": "*"}
_BITS = {"bitand": "&", "bitor": "|", "bitxor": "^"}
_COMPARE = {"eq": "==", "lt": "<", "le": "<="}
_BOOLEAN = {
    "and": "&&", "mul": "&&", "min": "&&", "bitand": "&&", "or": "||", "add": "||", "max": "||", "bitor": "||", "xor": "!=",
    "ne": "!=", "bitxor": "!=", "eq": "==",
}  # fmt: skip
_EIGHTH = math.tan(math.pi / 8)
_ARCTANGENT = (1.0, -0.33333308, 0.19998217, -0.14240083, 0.1057348, -0.0603479)
"""atan(z) / z by z^2 up to tan(pi / 8): the polynomial of this degree whose largest relative error is least, 6e-10."""

UNSIGNED = {Kind.I32: Kind.U32, Kind.I64: Kind.U64, Kind.U32: Kind.U32, Kind.U64: Kind.U64, Kind.F32: Kind.U32}


def unsupported(op: str, dtype: DType, dialect: Dialect) -> str:
    """Why a primitive on `dtype` has no text, "" where it has one."""
    kind = KINDS.get(dtype)
    if kind is not Kind.F64 or op in _DOUBLE or (op, kind) in dialect.functions:
        return ""
    if Kind.U64 not in dialect.kinds:
        return f"{op} of double has no form in {dialect.name}"
    if dialect.emulates_doubles and op not in float64_functions.SHORT:
        return f"{op} of double would be thousands of instructions: {dialect.name} has no doubles on this device"
    return ""


_DOUBLE = frozenset(
    "add sub mul div neg abs sign floor ceil round sqrt min max eq ne lt le isnan isinf select cast bitcast mod fmod".split()
)  # what needs arithmetic and square roots; the functions of `double` decompose numbers, as integers of 64 bits


class Elements:
    """Writes primitives into the block that is given with each call."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._serial = itertools.count()
        self._known_bits: dict[tuple[str, DType], str] = {}

    # --- statements ---

    def let(self, block: Block, text: str, kind: Kind) -> str:
        name = f"v{next(self._serial)}"
        block.write(self.dialect.let(name, kind, text))
        return name

    def variable(self, block: Block, text: str, kind: Kind, name: str = "") -> str:
        name = name or f"v{next(self._serial)}"
        block.write(self.dialect.variable(name, kind, text))
        return name

    def fresh(self, prefix: str) -> str:
        return f"{prefix}{next(self._serial)}"

    def literal(self, value: float | int | bool, kind: Kind) -> str:
        return self.dialect.literal(value, kind)

    def one_of(self, block: Block, condition: str, yes: str, no: str, kind: Kind) -> str:
        return self.let(block, self.dialect.select(condition, yes, no), kind)

    # --- primitives ---

    def primitive(self, op: str, args: Sequence[str], dtype: DType, out: DType, block: Block) -> str:
        """One primitive on operands of `dtype`, giving a value of the kind of `out`."""
        if args and all(_is_literal(a) for a in args):  # constant expressions that overflow are errors in some languages
            args = [self.variable(block, args[0], Kind.BOOL if op == "select" else KINDS[dtype]), *args[1:]]
        if op == "cast":
            return self.cast(args[0], dtype, out, block)
        if op == "bitcast":
            return self.from_bits(self.to_bits(args[0], dtype, block), out, block)
        if op == "select":
            return self.one_of(block, args[0], args[1], args[2], KINDS[out])
        if dtype is DType.BOOL:
            return self._boolean(op, args, block)
        if KINDS[dtype].is_float:
            return self._float(op, args, dtype, block)
        return self.wrapped(self._integer(op, args, dtype, block), out, block)

    def _boolean(self, op: str, args: Sequence[str], block: Block) -> str:
        if op == "not":
            return self.let(block, f"!({args[0]})", Kind.BOOL)
        if op in _BOOLEAN:
            return self.let(block, f"({args[0]} {_BOOLEAN[op]} {args[1]})", Kind.BOOL)
        if op in ("lt", "le"):
            return self.let(block, f"(!{args[0]} && {args[1]})" if op == "lt" else f"(!{args[0]} || {args[1]})", Kind.BOOL)
        raise UnsupportedPrimitive(f"{op} of booleans")

    def wrapped(self, value: str, dtype: DType, block: Block) -> str:
        """A narrow integer back in the range of its type."""
        if not dtype.is_integer or dtype.bits >= 32:
            return value
        spare = 32 - dtype.bits
        if dtype.is_signed_integer:
            return self.let(block, f"(({value} << {spare}u) >> {spare}u)", Kind.I32)
        return self.let(block, f"({value} & {(1 << dtype.bits) - 1}u)", Kind.U32)

    # --- integers ---

    def _integer(self, op: str, args: Sequence[str], dtype: DType, block: Block) -> str:
        kind, d = KINDS[dtype], self.dialect
        zero, one = self.literal(0, kind), self.literal(1, kind)
        if op in _INFIX or op in _BITS:
            return self.let(block, d.arithmetic(_INFIX.get(op) or _BITS[op], args[0], args[1], kind), kind)
        if op in _COMPARE or op == "ne":
            return self.let(block, d.comparison(_COMPARE.get(op, "!="), args[0], args[1], kind), Kind.BOOL)
        if op == "neg":
            return self.let(block, d.arithmetic("-", zero, args[0], kind), kind)
        if op == "bitnot":
            return self.let(block, f"(~{args[0]})", kind)
        if op in ("floor", "ceil", "round"):
            return args[0]
        if op in ("isnan", "isinf"):
            return self.literal(False, Kind.BOOL)
        if op in ("min", "max"):
            return self.one_of(block, d.comparison("<" if op == "min" else ">", args[0], args[1], kind), args[0], args[1], kind)
        if op == "abs":
            if not kind.is_signed:
                return args[0]
            below, minus = d.comparison("<", args[0], zero, kind), d.arithmetic("-", zero, args[0], kind)
            return self.one_of(block, below, minus, args[0], kind)
        if op == "sign":
            positive = self.one_of(block, d.comparison(">", args[0], zero, kind), one, zero, kind)
            if not kind.is_signed:
                return positive
            return self.one_of(block, d.comparison("<", args[0], zero, kind), self.literal(-1, kind), positive, kind)
        if op in ("shl", "shr"):
            return self._shift(op, args[0], args[1], dtype, block)
        if op in ("div", "mod", "fmod"):
            return self._division(op, args[0], args[1], kind, block)
        if op == "pow":
            return self._integer_power(args[0], args[1], kind, block)
        raise UnsupportedPrimitive(f"{op} of {dtype.onnx_name}")

    def _shift(self, op: str, x: str, y: str, dtype: DType, block: Block) -> str:
        """By less than 0, or by all bits or more: 0."""
        kind, d = KINDS[dtype], self.dialect
        amount = self.let(block, d.arithmetic("&", y, self.literal(kind.bits - 1, kind), kind), kind)
        shifted = d.arithmetic("<<" if op == "shl" else ">>", x, d.shift(amount, kind), kind)
        zero, width = self.literal(0, kind), self.literal(dtype.bits, kind)
        inside = d.comparison("<", y, width, kind)
        if kind.is_signed:
            inside = f"({d.comparison('>=', y, zero, kind)} && {inside})"
        return self.one_of(block, inside, shifted, zero, kind)

    def _division(self, op: str, x: str, y: str, kind: Kind, block: Block) -> str:
        zero, d = self.literal(0, kind), self.dialect
        none = self.let(block, d.comparison("==", y, zero, kind), Kind.BOOL)
        divisor = self.one_of(block, none, self.literal(1, kind), y, kind)
        quotient = self.let(block, d.arithmetic("/", x, divisor, kind), kind)
        if op == "div":
            return self.one_of(block, none, zero, quotient, kind)
        product = d.arithmetic("*", quotient, divisor, kind)
        rest = self.let(block, d.arithmetic("-", x, product, kind), kind)
        if kind.is_signed and op == "mod":
            some, below, negative = (
                d.comparison("!=", rest, zero, kind), d.comparison("<", rest, zero, kind), d.comparison("<", y, zero, kind)
            )  # fmt: skip
            rest = self.one_of(block, f"({some} && ({below} != {negative}))", d.arithmetic("+", rest, y, kind), rest, kind)
        return self.one_of(block, none, zero, rest, kind)

    def _integer_power(self, x: str, y: str, kind: Kind, block: Block) -> str:
        """By squaring, wrapping around; for y < 0 the truncated quotient 1 / x^-y."""
        zero, one, d = self.literal(0, kind), self.literal(1, kind), self.dialect
        out = self.variable(block, one, kind)
        square, left = self.variable(block, x, kind), self.variable(block, y, kind)

        def is_odd(n: str) -> str:
            return d.comparison("!=", d.arithmetic("&", n, one, kind), zero, kind)

        inner = Block(block)
        inner.write(
            f"{out} = {d.select(is_odd(left), d.arithmetic('*', out, square, kind), out)};",
            f"{square} = {d.arithmetic('*', square, square, kind)};",
            f"{left} = {d.arithmetic('>>', left, '1u', kind)};",
        )
        block.nest(d.loop(self.fresh("p"), "0", str(kind.bits)), inner)
        if not kind.is_signed:
            return out
        odd = self.one_of(block, is_odd(y), x, one, kind)
        units = [d.comparison("==", x, unit, kind) for unit in (one, self.literal(-1, kind))]
        unit = self.one_of(block, f"({' || '.join(units)})", odd, zero, kind)
        return self.one_of(block, d.comparison("<", y, zero, kind), unit, out, kind)

    # --- floats ---

    def bits(self, x: str, block: Block) -> str:
        """The bits of a float32, without its sign."""
        return self.let(block, f"({self.dialect.bitcast(x, Kind.F32, Kind.U32)} & 0x7fffffffu)", Kind.U32)

    def is_nan(self, x: str, kind: Kind, block: Block) -> str:
        if kind is Kind.F32:
            return self.let(block, f"({self.bits(x, block)} > 0x7f800000u)", Kind.BOOL)
        return self.let(block, f"!({x} == {x})", Kind.BOOL)

    def _float(self, op: str, args: Sequence[str], dtype: DType, block: Block) -> str:
        kind = KINDS[dtype]
        if why := unsupported(op, dtype, self.dialect):
            raise UnsupportedPrimitive(why)
        if op in _INFIX or op == "div":
            return self.let(block, f"({args[0]} {_INFIX.get(op, '/')} {args[1]})", kind)
        if op in _COMPARE:
            return self.let(block, f"({args[0]} {_COMPARE[op]} {args[1]})", Kind.BOOL)
        if op == "ne":
            return self.let(block, f"!({args[0]} == {args[1]})", Kind.BOOL)
        if op in ("min", "max"):
            return self.extremum(op, args[0], args[1], kind, block)
        if op == "neg":
            return self.let(block, f"(-{args[0]})", kind)
        if op == "isnan":
            return self.is_nan(args[0], kind, block)
        if op == "isinf":
            if kind is Kind.F32:
                return self.let(block, f"({self.bits(args[0], block)} == 0x7f800000u)", Kind.BOOL)
            infinity, minus = (self.literal(v, kind) for v in (float("inf"), float("-inf")))
            return self.let(block, f"({args[0]} == {infinity} || {args[0]} == {minus})", Kind.BOOL)
        if op == "sign":
            positive = self.one_of(block, f"({args[0]} > {self.literal(0, kind)})", self.literal(1, kind), args[0], kind)
            return self.one_of(block, f"({args[0]} < {self.literal(0, kind)})", self.literal(-1, kind), positive, kind)
        if op == "mod":
            return self._modulus(args[0], args[1], dtype, block)
        function = self.dialect.functions.get((op, kind))
        if function is not None:
            return self.let(block, f"{function}({', '.join(args)})", kind)
        if kind is Kind.F64 and op in float64_functions.WRITTEN:  # naga evaluates no function of constants of 64 bits
            args = [self.variable(block, a, kind) if _is_literal(a) else a for a in args]
            return float64_functions.WRITTEN[op](self, *args, block)
        written: Callable[..., str] | None = _WRITTEN.get(op)
        if written is None:
            raise UnsupportedPrimitive(f"{op} of {dtype.onnx_name} has no form in {self.dialect.name}")
        return written(self, *args, kind, block)

    def extremum(self, op: str, x: str, y: str, kind: Kind, block: Block) -> str:
        """min or max that is NaN where either is."""
        if kind is Kind.F32 and (text := self.dialect.extremum(op, x, y)) is not None:
            return self.let(block, text, kind)
        picked = self.one_of(block, f"({x} {'<' if op == 'min' else '>'} {y})", x, y, kind)
        return picked if _is_literal(x) else self.one_of(block, self.is_nan(x, kind, block), x, picked, kind)

    def _modulus(self, x: str, y: str, dtype: DType, block: Block) -> str:
        """The remainder with the divisor's sign."""
        kind = KINDS[dtype]
        rest, zero = self._float("fmod", [x, y], dtype, block), self.literal(0, kind)
        wrong = f"(!({rest} == {zero}) && (({rest} < {zero}) != ({y} < {zero})))"
        return self.one_of(block, wrong, f"({rest} + {y})", rest, kind)

    def fmod(self, x: str, y: str, kind: Kind, block: Block) -> str:
        """The remainder of |x| / |y| with the sign of x, exactly, of denormal numbers too: numbers are m 2^e with whole m, and
        the remainder of m_x / m_y is doubled, modulo m_y, as often as e_x is larger. x for an infinite y."""
        d, bits = self.dialect, Kind.U32 if kind is Kind.F32 else Kind.U64
        digits, special = (23, 255) if kind is Kind.F32 else (52, 2047)
        none, one, first = (self.literal(n, bits) for n in (0, 1, 1 << digits))
        unsigned = self.literal((1 << bits.bits - 1) - 1, bits)
        exponents, wholes = [], []
        for v in (x, y):
            word = self.let(block, d.arithmetic("&", d.bitcast(v, kind, bits), unsigned, bits), bits)
            high = self.let(block, d.convert(d.arithmetic(">>", word, f"{digits}u", bits), bits, Kind.I32), Kind.I32)
            low = self.let(block, d.arithmetic("&", word, self.literal((1 << digits) - 1, bits), bits), bits)
            wholes.append(self.one_of(block, f"({high} > 0)", d.arithmetic("+", low, first, bits), low, bits))
            exponents.append(self.one_of(block, f"({high} > 0)", high, "1", Kind.I32))
        is_zero = self.let(block, d.comparison("==", wholes[1], none, bits), Kind.BOOL)
        divisor = self.one_of(block, is_zero, one, wholes[1], bits)
        rest, inner = self.variable(block, d.arithmetic("%", wholes[0], divisor, bits), bits), Block(block)
        doubled, less = d.arithmetic("+", rest, rest, bits), d.arithmetic("-", rest, divisor, bits)
        inner.write(f"{rest} = {doubled};", f"if {d.comparison('>=', rest, divisor, bits)} {{ {rest} = {less}; }}")
        block.nest(d.loop(self.fresh("e"), "0", f"({exponents[0]} - {exponents[1]})"), inner)
        out = self._scaled(rest, exponents[1], digits, kind, bits, block)
        out = self.one_of(block, f"({x} < {self.literal(0, kind)})", f"(-{out})", out, kind)
        out = self.one_of(block, f"({exponents[0]} < {exponents[1]} || {exponents[1]} == {special})", x, out, kind)
        nan = f"({exponents[0]} == {special} || {is_zero})"
        out = self.one_of(block, nan, self.literal(float("nan"), kind), out, kind)
        return self.one_of(block, self.is_nan(y, kind, block), y, out, kind)

    def _scaled(self, whole: str, exponent: str, digits: int, kind: Kind, bits: Kind, block: Block) -> str:
        """whole 2^(exponent - bias - digits) for whole < 2^(digits + 1), an exponent as it is stored, from its bits."""
        d = self.dialect
        number = self.let(block, d.bitcast(d.convert(whole, bits, kind), kind, bits), bits)
        high = d.convert(d.arithmetic(">>", number, f"{digits}u", bits), bits, Kind.I32)
        bias = (127 if kind is Kind.F32 else 1023) + digits
        moved = self.let(block, f"({high} + {exponent} - {bias})", Kind.I32)
        low = d.arithmetic("&", number, self.literal((1 << digits) - 1, bits), bits)
        normal = d.arithmetic("|", low, d.arithmetic("<<", d.convert(moved, Kind.I32, bits), f"{digits}u", bits), bits)
        shift = d.arithmetic("&", d.convert(f"({exponent} - 1)", Kind.I32, Kind.U32), f"{bits.bits - 1}u", Kind.U32)
        denormal = d.arithmetic("<<", whole, shift, bits)
        empty = d.comparison("==", whole, self.literal(0, bits), bits)
        word = self.one_of(block, f"({moved} > 0 && !{empty})", normal, denormal, bits)
        return self.let(block, d.bitcast(word, bits, kind), kind)

    def tanh(self, x: str, kind: Kind, block: Block) -> str:
        """(e^2x - 1) / (e^2x + 1), by its series where that loses digits; +-1 beyond 10."""
        clamped = self.one_of(block, f"({x} > {self.literal(10, kind)})", self.literal(10, kind), x, kind)
        clamped = self.one_of(block, f"({clamped} < {self.literal(-10, kind)})", self.literal(-10, kind), clamped, kind)
        power = self.let(block, f"exp({clamped} + {clamped})", kind)
        one = self.literal(1, kind)
        quotient = self.let(block, f"(({power} - {one}) / ({power} + {one}))", kind)
        square = self.let(block, f"({x} * {x})", kind)
        series = self.polynomial(square, (1.0, -1 / 3, 2 / 15, -17 / 315), kind, block)
        limit = self.literal(0.15, kind)
        return self.one_of(block, f"({x} < {limit} && {x} > -{limit})", f"({x} * {series})", quotient, kind)

    def erf(self, x: str, kind: Kind, block: Block) -> str:
        """x P(x^2) / Q(x^2), +-1 beyond 4.2, and nowhere more than that."""
        clamped = self._between(x, 4.2, kind, block)
        square = self.let(block, f"({clamped} * {clamped})", kind)
        above, below = (self.polynomial(square, table, kind, block) for table in ERF)
        return self._between(self.let(block, f"({clamped} * {above} / {below})", kind), 1.0, kind, block)

    def _between(self, x: str, limit: float, kind: Kind, block: Block) -> str:
        """x from -limit to limit; NaN stays."""
        for sign, bound in ((">", limit), ("<", -limit)):
            x = self.one_of(block, f"({x} {sign} {self.literal(bound, kind)})", self.literal(bound, kind), x, kind)
        return x

    def polynomial(self, x: str, coefficients: Sequence[float], kind: Kind, block: Block) -> str:
        text = self.literal(coefficients[-1], kind)
        for c in reversed(coefficients[:-1]):
            text = f"({text} * {x} + {self.literal(c, kind)})"
        return self.let(block, text, kind)

    def power(self, x: str, y: str, kind: Kind, block: Block) -> str:
        """x^y = +-2^(y log2 |x|); a negative x that is finite has powers for whole y only; x^0 is 1."""
        zero, one = self.literal(0, kind), self.literal(1, kind)
        number, _, twos = self._normal(self.let(block, f"abs({x})", kind), kind, block)
        size = self.let(block, f"exp2({y} * (log2({number}) - {twos}))", kind)
        whole = self.let(block, f"(floor({y}) == {y})", Kind.BOOL)
        half = self.let(block, f"({y} * {self.literal(0.5, kind)})", kind)
        odd = self.let(block, f"({whole} && !(floor({half}) == {half}))", Kind.BOOL)
        size = self.one_of(block, f"(abs({x}) == {one})", one, size, kind)
        at_zero = self.one_of(block, f"({y} > {zero})", zero, self.literal(float("inf"), kind), kind)
        size = self.one_of(block, f"({x} == {zero})", at_zero, size, kind)
        signed = self.one_of(block, odd, f"(-{size})", size, kind)
        nan, infinity = (self.literal(v, kind) for v in (float("nan"), float("inf")))
        of_infinity = self.one_of(block, f"(abs({x}) == {infinity})", size, nan, kind)
        negative = self.one_of(block, whole, signed, of_infinity, kind)
        out = self.one_of(block, f"({x} < {zero})", negative, size, kind)
        out = self.one_of(block, self.is_nan(x, kind, block), x, out, kind)
        return self.one_of(block, f"({y} == {zero})", one, out, kind)

    def arctangent(self, x: str, kind: Kind, block: Block) -> str:
        """atan |x| = z P(z^2) from 0 to tan(pi / 8); from there to 1 / tan(pi / 8) atan((|x| - 1) / (|x| + 1)) + pi / 4, then
        pi / 2 - atan(1 / |x|). WGSL's own may be off by 4,096 units."""
        one, zero = self.literal(1, kind), self.literal(0, kind)
        a = self.let(block, f"abs({x})", kind)
        near, far = f"({a} <= {self.literal(_EIGHTH, kind)})", f"({a} > {self.literal(1 / _EIGHTH, kind)})"
        z = self.one_of(block, near, a, f"(({a} - {one}) / ({a} + {one}))", kind)
        z = self.one_of(block, far, f"(-{one} / {a})", z, kind)
        base = self.one_of(block, near, zero, self.literal(math.pi / 4, kind), kind)
        base = self.one_of(block, far, self.literal(math.pi / 2, kind), base, kind)
        square = self.let(block, f"({z} * {z})", kind)
        angle = self.let(block, f"({base} + {z} * {self.polynomial(square, _ARCTANGENT, kind, block)})", kind)
        angle = self.one_of(block, f"({x} < {zero})", f"(-{angle})", angle, kind)
        return self.one_of(block, self.is_nan(x, kind, block), x, angle, kind)

    def arcsine(self, x: str, kind: Kind, block: Block) -> str:
        """asin(x) = atan(x / sqrt((1 - x) (1 + x)))."""
        one = self.literal(1, kind)
        square = self.let(block, f"(({one} - {x}) * ({one} + {x}))", kind)
        angle = self.arctangent(self.let(block, f"({x} / sqrt({square}))", kind), kind, block)
        return self.one_of(block, f"({square} >= {self.literal(0, kind)})", angle, self.literal(float("nan"), kind), kind)

    def arccosine(self, x: str, kind: Kind, block: Block) -> str:
        """acos(x) = 2 atan(sqrt((1 - x) / (1 + x)))."""
        one = self.literal(1, kind)
        ratio = self.let(block, f"(({one} - {x}) / ({one} + {x}))", kind)
        angle = self.arctangent(self.let(block, f"sqrt({ratio})", kind), kind, block)
        inside = f"({ratio} >= {self.literal(0, kind)})"
        return self.one_of(block, inside, f"({angle} + {angle})", self.literal(float("nan"), kind), kind)

    def hyperbolic_sine(self, x: str, kind: Kind, block: Block) -> str:
        """sinh |x| = (e^|x| - e^-|x|) / 2, its series up to 1/2; e^|x| as the square of e^(|x| / 2), which overflows later."""
        grown, shrunk, a = self._halves_of_exponentials(x, kind, block)
        square = self.let(block, f"({x} * {x})", kind)
        series = self.polynomial(square, [1 / math.factorial(2 * i + 1) for i in range(5)], kind, block)
        far = self.let(block, f"({grown} - {shrunk})", kind)
        far = self.one_of(block, f"({x} < {self.literal(0, kind)})", f"(-{far})", far, kind)
        return self.one_of(block, f"({a} < {self.literal(0.5, kind)})", f"({x} * {series})", far, kind)

    def hyperbolic_cosine(self, x: str, kind: Kind, block: Block) -> str:
        """cosh x = (e^|x| + e^-|x|) / 2."""
        grown, shrunk, _ = self._halves_of_exponentials(x, kind, block)
        return self.let(block, f"({grown} + {shrunk})", kind)

    def _halves_of_exponentials(self, x: str, kind: Kind, block: Block) -> tuple[str, str, str]:
        """e^|x| / 2, e^-|x| / 2, |x|."""
        a, half = self.let(block, f"abs({x})", kind), self.literal(0.5, kind)
        root = self.let(block, f"exp({a} * {half})", kind)
        grown = self.let(block, f"(({half} * {root}) * {root})", kind)
        return grown, self.let(block, f"({half} / {root} / {root})", kind), a

    def logarithm(self, x: str, kind: Kind, block: Block) -> str:
        """Of denormal numbers too."""
        number, denormal, _ = self._normal(x, kind, block)
        less = self.one_of(block, denormal, self.literal(149 * math.log(2), kind), self.literal(0, kind), kind)
        return self.let(block, f"(log({number}) - {less})", kind)

    def _normal(self, x: str, kind: Kind, block: Block) -> tuple[str, str, str]:
        """A float32 x as n 2^-k with normal n: (n, whether x is positive and denormal, k). Denormal numbers are their bits
        times 2^-149, and drivers may take them for 0."""
        bits = self.let(block, self.dialect.bitcast(x, kind, Kind.U32), Kind.U32)
        denormal = self.let(block, f"({bits} > 0u && {bits} < 0x00800000u)", Kind.BOOL)
        number = self.one_of(block, denormal, self.dialect.convert(bits, Kind.U32, kind), x, kind)
        return number, denormal, self.one_of(block, denormal, self.literal(149, kind), self.literal(0, kind), kind)

    def area_sine(self, x: str, kind: Kind, block: Block) -> str:
        """asinh(x) = sign(x) log1p(a + a^2 / (1 + sqrt(a^2 + 1))), a = |x|."""
        a = self.let(block, f"abs({x})", kind)
        one = self.literal(1, kind)
        z = self.let(block, f"({a} + {a} * ({a} / ({one} + sqrt({a} * {a} + {one}))))", kind)
        far = f"({self._log(a, kind, block)} + {self.literal(0.6931471805599453, kind)})"
        out = self.one_of(block, f"({a} > {self.literal(1e18, kind)})", far, self._log1p(z, kind, block), kind)
        return self.one_of(block, f"({x} < {self.literal(0, kind)})", f"(-{out})", out, kind)

    def area_cosine(self, x: str, kind: Kind, block: Block) -> str:
        """acosh(x) = log1p(t + sqrt(t (x + 1))), t = x - 1; NaN below 1."""
        one = self.literal(1, kind)
        t = self.let(block, f"({x} - {one})", kind)
        near = self._log1p(self.let(block, f"({t} + sqrt({t} * ({x} + {one})))", kind), kind, block)
        far = f"({self._log(x, kind, block)} + {self.literal(0.6931471805599453, kind)})"
        out = self.one_of(block, f"({x} > {self.literal(1e18, kind)})", far, near, kind)
        return self.one_of(block, f"({x} < {one})", self.literal(float("nan"), kind), out, kind)

    def area_tangent(self, x: str, kind: Kind, block: Block) -> str:
        """atanh(x) = sign(x) log1p(2 a / (1 - a)) / 2, a = |x|."""
        one, a = self.literal(1, kind), self.let(block, f"abs({x})", kind)
        z = self.let(block, f"({a} + {a}) / ({one} - {a})", kind)
        out = self.let(block, f"({self._log1p(z, kind, block)} * {self.literal(0.5, kind)})", kind)
        return self.one_of(block, f"({x} < {self.literal(0, kind)})", f"(-{out})", out, kind)

    def _log(self, x: str, kind: Kind, block: Block) -> str:
        return f"log({x})" if kind is Kind.F32 else float64_functions.logarithm(self, x, block)

    def _log1p(self, z: str, kind: Kind, block: Block) -> str:
        """log(1 + z): for small z 2 artanh f, f = z / (2 + z); drivers may take (1 + z) - 1 for z, so no other trick serves."""
        one, limit = self.literal(1, kind), self.literal(0.4, kind)
        f = self.let(block, f"({z} / ({self.literal(2, kind)} + {z}))", kind)
        square = self.let(block, f"({f} * {f})", kind)
        series = self.polynomial(square, [2 / (2 * i + 1) for i in range(7 if kind is Kind.F32 else 13)], kind, block)
        far = self._log(self.let(block, f"({one} + {z})", kind), kind, block)
        return self.one_of(block, f"({z} < {limit} && {z} > -{limit})", f"({f} * {series})", far, kind)

    # --- casts ---

    def converted(self, t: Tensor, x: str, block: Block) -> str:
        """A cast of the value `x`."""
        source = t.args[0].dtype
        if is_limited(t):
            kind = KINDS[source]
            x = self.one_of(block, self.is_nan(x, kind, block), self.literal(float(least(t.dtype)), kind), x, kind)
        return self.cast(x, source, t.dtype, block, bool(t.attrs[0]))

    def cast(self, x: str, source: DType, target: DType, block: Block, saturate: bool = True) -> str:
        """As ONNX's Cast; `saturate` counts for 8-bit floats."""
        have, want = KINDS[source], KINDS[target]
        if want is Kind.BOOL:
            equal = self.dialect.comparison("==", x, self.literal(0, have), have)
            return x if have is Kind.BOOL else self.let(block, f"!{equal}", Kind.BOOL)
        if have is Kind.BOOL:
            return self.one_of(block, x, self.literal(1, want), self.literal(0, want), want)
        if have is not want:
            if _is_literal(x):
                x = self.variable(block, x, have)
            x = self.let(block, self._number(x, have, want, target, block), want)
        if target.is_floating and want is Kind.F32 and target is not DType.FLOAT:
            bits = float_formats.encode(self, x, target, block, saturate)
            value = float_formats.decode(self, bits, target, block)
            self._known_bits[value, target] = bits
            return value
        return self.wrapped(x, target, block) if source.bits > target.bits or have is not want or source.is_floating else x

    def _number(self, x: str, have: Kind, want: Kind, target: DType, block: Block) -> str:
        if not have.is_float or want.is_float:
            return self.dialect.convert(x, have, want)
        signed = Kind.I64 if target.bits == 64 else Kind.I32  # narrower integers take its lower bits
        whole = self._whole(x, have, signed, target.is_unsigned_integer and target.bits == signed.bits, block)
        return whole if want is signed else self.dialect.convert(whole, signed, want)

    def _whole(self, x: str, have: Kind, signed: Kind, unsigned: bool, block: Block) -> str:
        """A float cut off to an integer, as `primitives.interpreter` has it: the lowest one where it is NaN or out of range;
        numbers from half of an unsigned type's range on are taken less that half."""
        d, half = self.dialect, self.literal(2.0 ** (signed.bits - 1), have)
        lowest = self.literal(-(1 << (signed.bits - 1)), signed)
        upper = self.let(block, d.comparison(">=", x, half, have), Kind.BOOL) if unsigned else ""
        if unsigned:
            x = self.one_of(block, upper, f"({x} - {half})", x, have)
        least = self.literal(-(2.0 ** (signed.bits - 1)), have)
        inside = f"({d.comparison('<', x, half, have)} && {d.comparison('>=', x, least, have)})"
        whole = self.one_of(block, inside, d.convert(x, have, signed), lowest, signed)
        return self.one_of(block, upper, d.arithmetic("^", whole, lowest, signed), whole, signed) if unsigned else whole

    # --- bits ---

    def to_bits(self, x: str, dtype: DType, block: Block) -> str:
        """The bits of an element, as U32 or (64 bits) U64."""
        kind = KINDS[dtype]
        if kind is Kind.BOOL:
            return self.one_of(block, x, "1u", "0u", Kind.U32)
        if dtype.is_floating and kind is Kind.F32 and dtype is not DType.FLOAT:
            return self._known_bits.get((x, dtype)) or float_formats.encode(self, x, dtype, block)
        wide = Kind.U64 if kind.bits == 64 else Kind.U32
        text = x if kind is wide else self.let(block, self.dialect.bitcast(x, kind, wide), wide)
        return text if dtype.bits >= 32 else self.let(block, f"({text} & {(1 << dtype.bits) - 1}u)", Kind.U32)

    def from_bits(self, bits: str, dtype: DType, block: Block) -> str:
        """The element that has these bits; those above the type's own are ignored."""
        kind = KINDS[dtype]
        if kind is Kind.BOOL:
            return self.let(block, f"(({bits} & 0xffu) != 0u)", Kind.BOOL)
        if dtype.is_floating and kind is Kind.F32 and dtype is not DType.FLOAT:
            return float_formats.decode(self, bits, dtype, block)
        wide = Kind.U64 if kind.bits == 64 else Kind.U32
        text = bits if kind is wide else self.let(block, self.dialect.bitcast(bits, wide, kind), kind)
        return self.wrapped(text, dtype, block)


def _is_literal(text: str) -> bool:
    return not any(c in text for c in "vX") and text[:1] in "0123456789(-tf" and "bitcast" not in text


_WRITTEN: Mapping[str, Callable[..., str]] = {
    "fmod": Elements.fmod, "tanh": Elements.tanh, "erf": Elements.erf, "pow": Elements.power, "asinh": Elements.area_sine,
    "acosh": Elements.area_cosine, "atanh": Elements.area_tangent, "asin": Elements.arcsine, "acos": Elements.arccosine,
    "atan": Elements.arctangent, "sinh": Elements.hyperbolic_sine, "cosh": Elements.hyperbolic_cosine,
    "log": Elements.logarithm,
}  # fmt: skip
