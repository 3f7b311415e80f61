"""Softmax over rows of scores that lie in panels, updated block by block of keys (flash attention's recurrence).

With m the highest score so far, l the sum of exp(score - m) and O the sum of exp(score - m) * value, a further block of
scores s brings m' = max(m, max s), l' = exp(m - m') l + sum exp(s - m'), O' = exp(m - m') O + exp(s - m') V.
(Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from intarsia.codegen.builder.kernel_body import Body, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.graph.dtypes import DType

_F32 = DType.FLOAT
_I32 = ir_builder.IntType(32)
LOG2_E = 1.4426950408889634
_LOWEST = -86.5  # exp of less is taken for zero, so that 2^n stays a normal number
_MAGIC = 12582912.0  # 1.5 * 2^23: x + magic - magic rounds x to an integer, which is read off the low bits

# 2^f for |f| <= 1/2: minimax in relative error (2e-9), fitted for this file.
_EXP2 = (
    1.0, 0.6931471824645996, 0.24022646248340607, 0.05550328642129898, 0.009618489071726799, 0.0013399930903688073,
    0.0001534581242594868,
)  # fmt: skip
# The same within 1.1 units of the last place, for powers of scores, which are off by more.
_EXP2_SHORT = (1.0, 0.693146824836731, 0.24022237956523895, 0.05550896376371384, 0.00967172160744667, 0.0013224398717284203)
# 2^f - 1 for |f| <= 1/64 over f, within 0.45 units of the last place of 2^f.
_EXP2_PARTS = (0.6931573152542114, 0.24022652208805084)
_PARTS = 32  # of the exponents from one whole number to the next: as many as two vectors of 16 hold powers of
# 2^f for 0 <= f < 1 with an error of 8e-5, for numbers that are rounded to bfloat16 (2e-3).
_EXP2_FOR_PAIRS = (0.9999251961708069, 0.6958335638046265, 0.22606715559959412, 0.07802452147006989)
_PART_SHIFT = 18  # from the last bits to those of the exponent, less the five that tell a part
_DOWNWARDS, _AS_SET = 9, 4  # rounding towards -infinity to whole numbers, without a flag; rounding as the CPU has it set
_LEAST_EXPONENT = -126.0  # 2^x of less is taken for zero
_ZERO_EXPONENT = -127.0  # the bits of 1 less those of 127 in the exponent are 0


class Rows:
    """Vector code of a softmax in float32: `lanes` scores at a time."""

    def __init__(self, body: Body, lanes: int) -> None:
        self.body, self.lanes = body, lanes
        self.vector = ir_builder.VectorType(ir_builder.FloatType(), lanes)
        self.integers = ir_builder.VectorType(_I32, lanes)
        self._constants: dict[float, Value] = {}
        self._powers: list[Value] = []

    def constant(self, value: float) -> Value:
        """`value` in all lanes: made once for the function, since a vector constant's text is long."""
        found = self._constants.get(value)
        if found is None:
            with self.body.b.goto_entry_block():
                one = ir_builder.Constant(ir_builder.FloatType(), _single(value))
                found = self._constants[value] = self.body.splat(one, self.lanes)
        return found

    @property
    def lowest(self) -> Value:
        return self.constant(float("-inf"))

    @property
    def looks_up(self) -> bool:
        """Whether instructions take numbers from two vectors of 16, and scale by powers of two."""
        return self.lanes == 16 and self.body.module.target.has("avx512dq")

    @property
    def most_whole(self) -> float:
        """Whole numbers of up to that much are exact beside the number that rounds exponents."""
        return 2.0**21 / (_PARTS // 2 if self.looks_up else 1)

    def larger(self, a: Value, b: Value) -> Value:
        return self.body.b.select(self.body.b.fcmp_ordered(">", a, b), a, b)

    def exp(self, x: Value) -> Value:
        """exp(x) for x <= 0 (up to rounding); zero below -86.5; NaN stays NaN. Error: up to 1 + |x| / 4 units in the last
        place, since x log2(e) is rounded (as x has been, which is a difference of sums of many products)."""
        body, b, lanes = self.body, self.body.b, self.lanes
        magic, log2_e = self.constant(_MAGIC), self.constant(LOG2_E)
        shifted = body.fma(x, log2_e, magic, _F32, lanes)
        f = body.fma(x, log2_e, b.fneg(b.fsub(shifted, magic)), _F32, lanes)
        p = self._polynomial(f, _EXP2)
        exponent = b.shl(b.bitcast(shifted, self.integers), body.splat(_I32(23), lanes))
        scaled = b.bitcast(b.add(b.bitcast(p, self.integers), exponent), self.vector)
        tiny = b.fcmp_ordered("<", x, self.constant(_LOWEST))
        return b.select(tiny, body.zero(_F32, lanes), scaled)

    def exp2(self, x: Value) -> Value:
        """2^x for x < 127; zero from -127 down (below -126 of whatever is no normal number); NaN stays NaN. Largest error: 1.8
        units in the last place."""
        if self.looks_up:
            return self._exp2_by_parts(x, self.constant(_LEAST_EXPONENT), self.constant(_MAGIC / _PARTS))
        return self._exp2_from(self.larger(self.constant(_ZERO_EXPONENT), x), self.constant(_MAGIC))

    def exp2_above(self, whole: Value) -> Callable[[Value], Value]:
        """2^(x - whole), whole numbers of up to `most_whole`, as `exp2` has it: a subtraction less for each x."""
        b = self.body.b
        if self.looks_up:
            lowest = b.fadd(whole, self.constant(_LEAST_EXPONENT))
            part_magic = b.fsub(self.constant(_MAGIC / _PARTS), whole)
            return lambda x: self._exp2_by_parts(x, lowest, part_magic)
        least = b.fadd(whole, self.constant(_ZERO_EXPONENT))
        magic = b.fsub(self.constant(_MAGIC), whole)
        return lambda x: self._exp2_from(self.larger(least, x), magic)

    def _exp2_by_parts(self, x: Value, least: Value, magic: Value) -> Value:
        """2^(x + magic - 1.5 * 2^18), zero below `least`. x + magic rounds to parts; their number is in its last bits, where
        the instruction that looks up reads it, behind the bits of the exponent.

        Zen 4 has two units for additions and shifts, and two for multiply-adds, comparisons and look-ups: five of each.
        """
        body, b, lanes = self.body, self.body.b, self.lanes
        first, second = self._part_powers()
        look_up = body.intrinsic(
            "llvm.x86.avx512.vpermi2var.ps.512", self.vector, [self.vector, self.integers, self.vector]
        )  # fmt: skip
        shifted = b.fadd(x, magic)
        f = b.fsub(x, b.fsub(shifted, magic))
        bits = b.bitcast(shifted, self.integers)
        power = b.bitcast(b.call(look_up, [first, bits, second]), self.integers)
        power = b.bitcast(b.add(power, b.shl(bits, body.splat(_I32(_PART_SHIFT), lanes))), self.vector)
        more = b.fmul(body.fma(self.constant(_EXP2_PARTS[1]), f, self.constant(_EXP2_PARTS[0]), _F32, lanes), f)
        above = b.fcmp_unordered(">=", x, least)
        return b.select(above, body.fma(power, more, power, _F32, lanes), body.zero(_F32, lanes))

    def _part_powers(self) -> list[Value]:
        """2^(i / 32) less what i adds to the bits of an exponent."""
        if not self._powers:
            numbers = [_bits(2 ** (i / _PARTS)) - (i << _PART_SHIFT) for i in range(_PARTS)]
            with self.body.b.goto_entry_block():
                halves = [ir_builder.Constant(self.integers, numbers[at : at + 16]) for at in (0, 16)]
                self._powers = [self.body.b.bitcast(half, self.vector) for half in halves]
        return self._powers

    def _exp2_from(self, x: Value, magic: Value) -> Value:
        """2^(x + magic - 1.5 * 2^23); x + magic rounds, and has the exponent in its last bits."""
        body, b = self.body, self.body.b
        shifted = b.fadd(x, magic)
        p = self._polynomial(b.fsub(x, b.fsub(shifted, magic)), _EXP2_SHORT)
        exponent = b.shl(b.bitcast(shifted, self.integers), body.splat(_I32(23), self.lanes))
        return b.bitcast(b.add(b.bitcast(p, self.integers), exponent), self.vector)

    def exp2_for_pairs(self, x: Value) -> Value:
        """2^x as `exp2`, for numbers that are rounded to bfloat16: VREDUCEPS gives x - floor(x), VSCALEFPS p * 2^floor(x)."""
        if not self.looks_up:
            return self.exp2(x)
        body, b = self.body, self.body.b
        i16, zero = ir_builder.IntType(16), body.zero(_F32, 16)
        reduce = body.intrinsic(
            "llvm.x86.avx512.mask.reduce.ps.512", self.vector, [self.vector, _I32, self.vector, i16, _I32]
        )  # fmt: skip
        scale = body.intrinsic("llvm.x86.avx512.mask.scalef.ps.512", self.vector, [self.vector] * 3 + [i16, _I32])
        fraction = b.call(reduce, [x, _I32(_DOWNWARDS), zero, i16(-1), _I32(_AS_SET)])
        p = self._polynomial(fraction, _EXP2_FOR_PAIRS)
        mask = b.bitcast(b.fcmp_unordered(">=", x, self.constant(_LEAST_EXPONENT)), i16)
        return b.call(scale, [p, x, zero, mask, _I32(_AS_SET)])

    def _polynomial(self, f: Value, coefficients: tuple[float, ...]) -> Value:
        p = self.constant(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            p = self.body.fma(p, f, self.constant(c), _F32, self.lanes)
        return p

    def across(self, x: Value, combine: Callable[[Value, Value], Value]) -> Value:
        """All lanes combined, in every lane."""
        distance = self.lanes // 2
        while distance:
            x = combine(x, self.body.shuffle(x, x, [i ^ distance for i in range(self.lanes)]))
            distance //= 2
        return x

    def highest(self, x: Value) -> Value:
        return self.across(x, self.larger)

    def total(self, x: Value) -> Value:
        return self.across(x, self.body.b.fadd)

    def reference(self, highest: Value) -> Value:
        """The number subtracted before exp: the highest score, or zero while all scores are -infinity."""
        b = self.body.b
        return b.select(b.fcmp_ordered("==", highest, self.lowest), self.body.zero(_F32, self.lanes), highest)

    def is_far(self, x: Value) -> Value:
        """Where |x| is above `most_whole`."""
        b, most = self.body.b, self.most_whole
        return b.or_(b.fcmp_ordered(">", x, self.constant(most)), b.fcmp_ordered("<", x, self.constant(-most)))

    def whole(self, x: Value) -> Value:
        """x rounded; itself where it is far."""
        b, magic = self.body.b, self.constant(_MAGIC)
        return b.select(self.is_far(x), x, b.fsub(b.fadd(x, magic), magic))

    def reciprocal(self, total: Value) -> Value:
        """1 / total; infinity where the definition divides 0 by 0."""
        return self.body.b.fdiv(self.constant(1.0), total)

    def share(self, total: Value, masked: bool, keys: Value) -> Value:
        """The factor of sums of powers times values: 1 / total. Zero in a row without keys, because there are none or
        because all are masked; where all scores are -infinity without a mask, softmax is not a number, as in its definition.
        """
        b, zero = self.body.b, self.body.zero(_F32, self.lanes)
        if masked:
            return b.select(b.fcmp_ordered("==", total, zero), zero, self.reciprocal(total))
        return b.select(self.body.less(keys, 1), zero, self.reciprocal(total))

    def below(self, start: int, bound: Value) -> Any:
        """The lanes i with start + i < bound (a splat of i32)."""
        places = ir_builder.Constant(self.integers, [start + i for i in range(self.lanes)])
        return self.body.b.icmp_signed("<", places, bound)

    def bound(self, value: Value) -> Value:
        """A 64-bit bound as a splat of i32, cut to where no sum of it and a lane overflows."""
        body = self.body
        limit = 1 << 30
        return body.splat(body.b.trunc(body.min(body.max(value, -limit), limit), _I32), self.lanes)


def _single(value: float) -> float:
    import numpy as np

    return float(np.float32(value))


def _bits(value: float) -> int:
    import numpy as np

    return int(np.float32(value).view(np.int32))
