"""Numbers written in decimal: texts to float32 or float64, integers to texts.

Texts lie one behind the other, each ended by a zero byte.
"""

from __future__ import annotations

import functools

import numpy as np

from intarsia.codegen.builder.kernel_body import Body, Cell, Module, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType

LEAST_POWER, MOST_POWER = -64, 64  # of ten, by which `read` multiplies
MOST_TEXT = 21  # bytes of an integer's text, with its end

_MOST_DIGITS = 19  # that a number of 64 bits holds
_I8, _I64, _I128 = ir_builder.IntType(8), ir_builder.IntType(64), ir_builder.IntType(128)


@functools.cache
def powers() -> np.ndarray:
    """uint64 [powers, 2]: 5^q for each q as a fraction of 128 bits whose first bit is set, the high half first; cut off where
    q >= 0, and the next one above where q < 0 (D. Lemire, Number Parsing at a Gigabyte per Second, 2021, section 5)."""
    rows = []
    for q in range(LEAST_POWER, MOST_POWER + 1):
        power = 5 ** abs(q)
        if q >= 0:
            fraction = power << 127 >> (power.bit_length() - 1)
        else:
            z = (power - 1).bit_length()
            fraction = (1 << (z + 127 if q >= -27 else 2 * z + 128)) // power + 1
            fraction >>= max(0, fraction.bit_length() - 128)
        rows.append((fraction >> 64, fraction & (1 << 64) - 1))
    return np.array(rows, np.uint64)


@functools.cache
def read_text(dtype: DType, target: Target) -> KernelText:
    """Arguments: text, nbytes, y, hard, powers, count, end. Numbers of type `dtype`, rounded as IEEE 754 has it.

    The text's last byte is at `nbytes`. A byte of `hard` is 1 where a number is not of the form
    [+-]digits[.digits][e[+-]digits], has more than 19 digits, or is very large or small: y holds nothing there. `end` receives
    how many bytes were read.
    """
    module = Module(target)
    body = module.kernel()
    args, _, _ = body.args
    text, y, hard, table = (body.load_pointer(args, i) for i in (0, 2, 3, 4))
    nbytes, count = body.load_i64(args, 1), body.load_i64(args, 5)
    reader = _Reader(body, text)
    with body.loop(0, count) as i, body.when(body.b.icmp_signed("<=", reader.at.get(), nbytes)):
        mantissa, exponent, negative, wrong = reader.number()
        bits, far = _rounded(body, table, mantissa, exponent)
        value = body.b.bitcast(body.b.or_(bits, body.b.shl(negative, body.i(63))), ir_builder.DoubleType())
        if dtype is DType.FLOAT:
            value = body.b.fptrunc(value, ir_builder.FloatType())
        body.b.store(value, body.at(y, body.mul(i, dtype.bits // 8)))
        body.b.store(body.b.trunc(body.b.or_(wrong, far), _I8), body.at(hard, i))
        reader.at.add(1)
    body.b.store(reader.at.get(), body.pointer(body.load_i64(args, 6)))
    body.b.ret_void()
    return module.text("read_decimals")


class _Reader:
    """Walks through the text byte by byte."""

    def __init__(self, body: Body, text: Value) -> None:
        self.body, self.text, self.at = body, text, body.cell(0)

    def byte(self) -> Value:
        return self.body.b.zext(self.body.b.load(self.body.at(self.text, self.at.get()), typ=_I8), _I64)

    def is_byte(self, *known: str) -> Value:
        """An i1: whether the next byte is one of `known`."""
        body, found = self.body, self.byte()
        (first, *others) = [body.equal(found, ord(c)) for c in known]
        for other in others:
            first = body.b.or_(first, other)
        return first

    def sign(self) -> Value:
        """0, or 1 behind a minus."""
        body = self.body
        negative = body.b.zext(self.is_byte("-"), _I64)
        self.at.add(body.b.zext(self.is_byte("-", "+"), _I64))
        return negative

    def digits(self, number: Cell, count: Cell | None = None) -> Value:
        """Goes on with a number by the digits that follow; returns how many they are. `count`: those behind leading zeros."""
        body, before = self.body, self.at.get()
        with body.repeat_while(lambda: body.b.icmp_unsigned("<", body.sub(self.byte(), ord("0")), body.i(10))):
            number.set(body.add(body.mul(number.get(), 10), body.sub(self.byte(), ord("0"))))
            if count is not None:
                some = body.b.or_(number.get(), count.get())  # the number may wrap to 0
                count.add(body.b.zext(body.b.icmp_unsigned("!=", some, body.i(0)), _I64))
            self.at.add(1)
        return body.sub(self.at.get(), before)

    def number(self) -> tuple[Value, Value, Value, Value]:
        """Mantissa, exponent of ten, 1 if negative, 1 if it is not of the form; goes to the text's end."""
        body = self.body
        mantissa, digits, exponent, wrong, some = (body.cell(0) for _ in range(5))
        for cell in (mantissa, digits, exponent, wrong):
            cell.set(0)
        negative = self.sign()
        some.set(self.digits(mantissa, digits))
        with body.when(self.is_byte(".")):
            self.at.add(1)
            behind = self.digits(mantissa, digits)
            exponent.set(body.sub(0, behind))
            some.add(behind)
        with body.when(self.is_byte("e", "E")):
            self.at.add(1)
            scale = body.cell(0)
            scale.set(0)
            down = self.sign()
            length = self.digits(scale)
            exponent.add(body.select(body.equal(down, 1), body.sub(0, scale.get()), scale.get()))
            outside = body.b.icmp_unsigned(">=", body.sub(length, 1), body.i(9))  # none, or so many that they may wrap
            wrong.set(body.b.zext(outside, _I64))
        for bad in (body.equal(some.get(), 0), body.less(_MOST_DIGITS, digits.get()), body.b.not_(self.is_byte("\0"))):
            wrong.set(body.b.or_(wrong.get(), body.b.zext(bad, _I64)))
        with body.repeat_while(lambda: body.b.not_(self.is_byte("\0"))):
            self.at.add(1)
        return mantissa.get(), exponent.get(), negative, wrong.get()


def _rounded(body: Body, table: Value, mantissa: Value, exponent: Value) -> tuple[Value, Value]:
    """The bits of the float64 next to mantissa * 10^exponent, and 1 if they are not found (Lemire 2021, algorithm 1)."""
    b = body.b
    far = b.or_(body.less(exponent, LEAST_POWER), body.less(MOST_POWER, exponent))
    row = body.at(table, body.mul(body.select(far, 0, body.sub(exponent, LEAST_POWER)), 16))
    zeros = b.call(
        body.intrinsic("llvm.ctlz.i64", _I64, [_I64, ir_builder.IntType(1)]),
        [mantissa, ir_builder.Constant(ir_builder.IntType(1), 0)],
    )
    zeros = b.and_(zeros, body.i(63))
    normal = b.zext(b.shl(mantissa, zeros), _I128)
    half = ir_builder.Constant(_I128, 64)
    product = b.mul(normal, b.zext(body.load_i64(row), _I128))
    more = b.lshr(b.mul(normal, b.zext(body.load_i64(row, 1), _I128)), half)
    unsure = body.equal(b.and_(b.trunc(b.lshr(product, half), _I64), body.i(0x1FF)), 0x1FF)
    product = b.add(product, b.select(unsure, more, ir_builder.Constant(_I128, 0)))
    high, low = b.trunc(b.lshr(product, half), _I64), b.trunc(product, _I64)
    exact = b.and_(b.icmp_signed(">=", exponent, body.i(-27)), b.icmp_signed("<=", exponent, body.i(55)))
    far = b.or_(far, b.and_(body.equal(low, -1), b.not_(exact)))
    first = b.lshr(high, body.i(63))
    shift = body.add(first, 9)
    found = b.lshr(high, shift)
    power = body.add(b.ashr(body.mul(exponent, 217706), body.i(16)), 63 + 1023)  # floor(log2(10) q): 217706 / 2^16
    power = body.sub(body.add(power, first), zeros)
    near = b.and_(b.icmp_signed(">=", exponent, body.i(-4)), b.icmp_signed("<=", exponent, body.i(23)))
    tie = b.and_(b.icmp_unsigned("<=", low, body.i(1)), b.and_(near, body.equal(b.and_(found, body.i(3)), 1)))
    tie = b.and_(tie, body.equal(b.shl(found, shift), high))
    found = body.sub(found, b.zext(tie, _I64))  # halfway between two: to the even one
    found = b.lshr(body.add(found, b.and_(found, body.i(1))), body.i(1))
    power = body.add(power, b.zext(b.icmp_unsigned(">=", found, body.i(1 << 53)), _I64))
    found = b.and_(found, body.i((1 << 52) - 1))
    far = b.or_(far, b.or_(body.less(power, 1), b.icmp_signed(">=", power, body.i(0x7FF))))
    bits = b.or_(found, b.shl(power, body.i(52)))
    nothing = body.equal(mantissa, 0)
    return body.select(nothing, 0, bits), b.zext(b.and_(far, b.not_(nothing)), _I64)


@functools.cache
def write_text(signed: bool, target: Target) -> KernelText:
    """Arguments: x (64-bit integers), count, y, end. `end` receives how many bytes the texts have, at most `MOST_TEXT` each."""
    module = Module(target)
    body = module.kernel()
    b = body.b
    args, _, _ = body.args
    x, y, count = body.load_pointer(args, 0), body.load_pointer(args, 2), body.load_i64(args, 1)
    to, left = body.cell(0), body.cell(0)
    with body.loop(0, count) as i:
        value = body.load_i64(x, i)
        if signed:
            negative = body.less(value, 0)
            value = body.select(negative, body.sub(0, value), value)
            with body.when(negative):
                b.store(ir_builder.Constant(_I8, ord("-")), body.at(y, to.get()))
                to.add(1)
        left.set(value)
        to.add(1)
        with body.repeat_while(lambda: b.icmp_unsigned(">=", left.get(), body.i(10))):
            left.set(body.div(left.get(), 10))
            to.add(1)
        left.set(value)
        place = body.cell(0)
        place.set(to.get())
        again = body.cell(1)
        again.set(1)
        with body.repeat_while(lambda: body.equal(again.get(), 1)):
            place.add(-1)
            rest = body.div(left.get(), 10)
            digit = body.sub(left.get(), body.mul(rest, 10))
            b.store(b.trunc(body.add(digit, ord("0")), _I8), body.at(y, place.get()))
            left.set(rest)
            again.set(b.zext(b.icmp_unsigned("!=", rest, body.i(0)), _I64))
        b.store(ir_builder.Constant(_I8, 0), body.at(y, to.get()))
        to.add(1)
    b.store(to.get(), body.pointer(body.load_i64(args, 3)))
    b.ret_void()
    return module.text("write_decimals")
