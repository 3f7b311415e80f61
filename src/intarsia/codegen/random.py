"""Random numbers from Philox4x32-10, a counter-based generator.

(Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.)

Block i of 64 elements comes from the counters 16 i + lane, lane 0 to 15: word w of a counter becomes element 16 w + lane. So
what element e is follows from the key and e alone, whatever the machine's vectors and the number of threads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import llvmlite.ir as ir

from intarsia.codegen.body import Module, Value
from intarsia.codegen.elementary import sine_and_cosine
from intarsia.codegen.emit import Emitter
from intarsia.codegen.engine import KernelText
from intarsia.codegen.target import Target
from intarsia.graph.dtypes import DType

LANES = 16
BLOCK = 4 * LANES
KINDS = ("uniform", "normal", "below")
_F32 = DType.FLOAT
_I32, _I64, _FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


@functools.cache
def kernel_text(kind: str, target: Target) -> KernelText:
    """Arguments: y (float[n]), n, key, two floats in a vector's memory (a, b), p.

    "uniform": a + (b - a) u with u in [0, 1); "normal": a + b z (Box and Muller); "below": 1 where u < p[i] (float[n]), else 0.
    """
    return _Random(kind, target).text()


class _Random:
    def __init__(self, kind: str, target: Target) -> None:
        self.kind = kind
        self.module = Module(target)
        self.body = self.module.kernel()
        self.vector = ir.VectorType(_I32, LANES)
        self.e = Emitter(self.body.b, LANES)

    def text(self) -> KernelText:
        body = self.body
        args, tid, nthreads = body.args
        y, bounds, p = (body.load_pointer(args, i) for i in (0, 3, 4))
        n, key = (body.load_i64(args, i) for i in (1, 2))
        low, high = (body.broadcast(body.at(bounds, 4 * i), _F32, LANES) for i in range(2))
        first, last = body.share(body.div(body.add(n, BLOCK - 1), BLOCK), tid, nthreads)
        with body.loop(first, last) as block:
            numbers = self._numbers(self._words(block, key), low, high)
            for word, value in enumerate(numbers):
                place = body.add(body.mul(block, BLOCK), word * LANES)
                mask = body.mask(body.sub(n, place), LANES)
                if self.kind == "below":
                    chance = body.load_masked(body.at(p, body.mul(place, 4)), mask, _F32, LANES)
                    found = body.b.fcmp_ordered("<", value, chance)
                    value = body.b.select(found, self.e.constant(1.0, _FLOAT), self.e.constant(0.0, _FLOAT))
                body.store_masked(value, body.at(y, body.mul(place, 4)), mask, _F32)
        body.b.ret_void()
        return self.module.text(f"random_{self.kind}")

    def _words(self, block: Value, key: Value) -> list[Value]:
        """Four vectors of 32 random bits."""
        body, b, e = self.body, self.body.b, self.e
        start = body.mul(block, LANES)
        lane = ir.Constant(self.vector, list(range(LANES)))
        counter = [
            b.add(e.splat(b.trunc(start, _I32)), lane), e.splat(b.trunc(b.lshr(start, _I64(32)), _I32)),
            e.constant(0, _I32), e.constant(0, _I32),
        ]  # fmt: skip
        keys = [e.splat(b.trunc(key, _I32)), e.splat(b.trunc(b.lshr(key, _I64(32)), _I32))]
        for _ in range(_ROUNDS):
            (high0, low0), (high1, low1) = (self._product(c, m) for c, m in zip(counter[::2], _MULTIPLIERS, strict=True))
            counter = [b.xor(b.xor(high1, counter[1]), keys[0]), low1, b.xor(b.xor(high0, counter[3]), keys[1]), low0]
            keys = [b.add(k, e.constant(w, _I32)) for k, w in zip(keys, _WEYL, strict=True)]
        return counter

    def _product(self, x: Value, factor: int) -> tuple[Value, Value]:
        """Upper and lower half of 32 by 32 bits."""
        b, e = self.body.b, self.e
        wide = b.mul(b.zext(x, e.shaped(_I64)), e.constant(factor, _I64))
        return b.trunc(b.lshr(wide, e.constant(32, _I64)), e.shaped(_I32)), b.trunc(wide, e.shaped(_I32))

    def _numbers(self, words: Sequence[Value], low: Value, high: Value) -> list[Value]:
        b, e = self.body.b, self.e
        if self.kind == "normal":
            pairs = [self._normal(*pair) for pair in (words[:2], words[2:])]
            return [self.body.fma(z, high, low, _F32, LANES) for pair in pairs for z in pair]
        units = [self._unit(b.lshr(word, e.constant(8, _I32))) for word in words]
        if self.kind == "below":
            return units
        return [self.body.fma(u, b.fsub(high, low), low, _F32, LANES) for u in units]

    def _unit(self, bits: Value) -> Value:
        """24 bits as multiples of 2^-24."""
        return self.body.b.fmul(self.body.b.uitofp(bits, self.e.shaped(_FLOAT)), self.e.constant(2.0**-24, _FLOAT))

    def _normal(self, first: Value, second: Value) -> tuple[Value, Value]:
        """sqrt(-2 ln u) times cosine and sine of an angle: u in (0, 1], the angle by two bits of quarter and 30 of fraction."""
        b, e = self.body.b, self.e
        u = self._unit(b.add(b.lshr(first, e.constant(8, _I32)), e.constant(1, _I32)))
        radius = e.intrinsic("sqrt", [b.fmul(e.logarithm(u), e.constant(-2.0, _FLOAT))])
        quarter = b.lshr(second, e.constant(30, _I32))
        part = b.sub(b.and_(second, e.constant((1 << 30) - 1, _I32)), e.constant(1 << 29, _I32))
        angle = b.fmul(b.sitofp(part, e.shaped(_FLOAT)), e.constant(math.pi / 4 * 2.0**-29, _FLOAT))
        sin, cos = sine_and_cosine(e, angle)
        odd = b.icmp_unsigned("!=", b.and_(quarter, e.constant(1, _I32)), e.constant(0, _I32))
        sign = b.shl(b.and_(quarter, e.constant(2, _I32)), e.constant(30, _I32))
        x, y = b.select(odd, b.fneg(sin), cos), b.select(odd, cos, sin)
        turned = [b.bitcast(b.xor(b.bitcast(v, e.shaped(_I32)), sign), e.shaped(_FLOAT)) for v in (x, y)]
        return b.fmul(radius, turned[0]), b.fmul(radius, turned[1])
