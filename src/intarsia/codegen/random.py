"""Random numbers from Philox4x32-10, a counter-based generator.

(Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.)

Block i of 64 elements comes from the counters 16 i + lane, lane 0 to 15: word w of a counter becomes element 16 w + lane. So
what element e is follows from the key, the stream and e alone, whatever the machine's vectors and the number of threads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from intarsia.codegen import ir
from intarsia.codegen.body import Module, Value
from intarsia.codegen.elementary import sine_and_cosine
from intarsia.codegen.emit import Emitter, compute_type, storage_type
from intarsia.codegen.engine import KernelText
from intarsia.codegen.target import Target
from intarsia.graph.dtypes import DType
from intarsia.records import dataclass

LANES = 16
BLOCK = 4 * LANES
KINDS = ("uniform", "normal", "below", "drop")
_F32, _F64 = DType.FLOAT, DType.DOUBLE
_I32, _I64, _FLOAT, _DOUBLE = ir.IntType(32), ir.IntType(64), ir.FloatType(), ir.DoubleType()
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_CARRIERS = {8: DType.UINT8, 16: DType.UINT16, 32: DType.UINT32, 64: DType.UINT64}
_FIELDS = ("y", "n", "state", "bounds", "source", "mask")


@dataclass(frozen=True)
class Form:
    """What is drawn: "uniform", a + (b - a) u with u in [0, 1); "normal", a + b z (Box and Muller); "below", 1 where u is less
    than the source's element, else 0; "drop", the source's elements times 1 / (1 - a) where u >= a, else 0, and which they are.

    u has 24 bits; 53 where `dtype`, of the result, is double (not for "below" and "drop").
    """

    kind: str
    dtype: DType = DType.FLOAT
    source: DType = DType.FLOAT

    @property
    def wide(self) -> bool:
        return self.dtype is DType.DOUBLE and self.kind in ("uniform", "normal")

    @property
    def bounds(self) -> type:
        """The type of a and b."""
        return np.float64 if self.wide else np.float32


@functools.cache
def kernel_text(form: Form, target: Target) -> KernelText:
    """Arguments: y, n, two 64-bit integers in memory (key and stream), two numbers in memory (a, b), source, mask (bytes)."""
    return _Random(form, target).text()


@functools.cache
def draw_text(target: Target) -> KernelText:
    """Arguments: the shared state (key, streams drawn), and where to write the key and the number of a new stream."""
    module = Module(target)
    body = module.kernel()
    args, tid, _ = body.args
    shared, state = (body.load_pointer(args, i) for i in range(2))
    with body.when(body.equal(tid, 0)):
        body.store(body.load_i64(shared), state, DType.INT64)
        before = body.b.atomic_rmw("add", body.at(shared, 8), body.i(1), "monotonic")
        body.store(body.add(before, 1), body.at(state, 8), DType.INT64)
    body.b.ret_void()
    return module.text("draw")


class _Random:
    def __init__(self, form: Form, target: Target) -> None:
        self.form = form
        self.module = Module(target)
        self.body = self.module.kernel()
        self.vector = ir.VectorType(_I32, LANES)
        self.e = Emitter(self.body.b, LANES)
        self.number = _F64 if form.wide else _F32

    def text(self) -> KernelText:
        body, form = self.body, self.form
        args, tid, nthreads = body.args
        v = {name: body.load_i64(args, i) if name == "n" else body.load_pointer(args, i) for i, name in enumerate(_FIELDS)}
        key, stream = (body.load_i64(v["state"], i) for i in range(2))
        itemsize = self.number.bits // 8
        low, high = (body.broadcast(body.at(v["bounds"], itemsize * i), self.number, LANES) for i in range(2))
        block_size = BLOCK // 2 if form.wide else BLOCK
        first, last = body.share(body.div(body.add(v["n"], block_size - 1), block_size), tid, nthreads)
        with body.loop(first, last) as block:
            for i, value in enumerate(self._numbers(self._words(block, key, stream), low, high)):
                place = body.add(body.mul(block, block_size), i * LANES)
                mask = body.mask(body.sub(v["n"], place), LANES)
                if form.kind in ("below", "drop"):
                    value = self._chosen(value, low, v, place, mask)
                else:
                    value = self.e.cast(value, self.number, form.dtype)
                self._store(value, v["y"], place, mask, form.dtype)
        body.b.ret_void()
        return self.module.text(f"random_{form.kind}")

    def _chosen(self, u: Value, low: Value, v: dict[str, Value], place: Value, mask: Value) -> Value:
        b, e, form = self.body.b, self.e, self.form
        given = self._load(v["source"], place, mask)
        kind = compute_type(form.source)
        if form.kind == "below":
            found = b.fcmp_ordered("<", e.cast(u, _F32, form.source) if kind is _DOUBLE else u, given)
            return e.cast(b.select(found, e.constant(1.0, _FLOAT), e.constant(0.0, _FLOAT)), _F32, form.dtype)
        kept = b.fcmp_ordered(">=", u, low)
        self._store(kept, v["mask"], place, mask, DType.BOOL)
        scale = b.fdiv(e.constant(1.0, _FLOAT), b.fsub(e.constant(1.0, _FLOAT), low))
        scaled = b.fmul(given, b.fpext(scale, e.shaped(_DOUBLE)) if kind is _DOUBLE else scale)
        return b.select(kept, scaled, e.constant(0.0, kind))

    def _load(self, pointer: Value, place: Value, mask: Value) -> Value:
        dtype, body = self.form.source, self.body
        at = body.at(pointer, body.mul(place, dtype.bits // 8))
        bits = body.load_masked(at, mask, _CARRIERS[dtype.bits], LANES)
        return self.e.from_storage(body.b.bitcast(bits, self.e.shaped(storage_type(dtype))), dtype)

    def _store(self, value: Value, pointer: Value, place: Value, mask: Value, dtype: DType) -> None:
        body, size = self.body, 8 if dtype is DType.BOOL else dtype.bits
        bits = body.b.bitcast(self.e.to_storage(value, dtype), self.e.shaped(ir.IntType(size)))
        body.store_masked(bits, body.at(pointer, body.mul(place, size // 8)), mask, _CARRIERS[size])

    def _words(self, block: Value, key: Value, stream: Value) -> list[Value]:
        """Four vectors of 32 random bits; the stream's number is the upper half of the counter."""
        body, b, e = self.body, self.body.b, self.e
        start = body.mul(block, LANES)
        lane = ir.Constant(self.vector, list(range(LANES)))
        halves = [[e.splat(b.trunc(x, _I32)), e.splat(b.trunc(b.lshr(x, _I64(32)), _I32))] for x in (start, stream, key)]
        counter, keys = [b.add(halves[0][0], lane), halves[0][1], *halves[1]], halves[2]
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
        b, e, form = self.body.b, self.e, self.form
        if form.wide:
            units = [self._wide_unit(*words[:2]), self._wide_unit(*words[2:])]
            drawn = units if form.kind == "uniform" else list(self._wide_normal(*units))
        elif form.kind == "normal":
            drawn = [z for pair in (words[:2], words[2:]) for z in self._normal(*pair)]
        else:
            drawn = [self._unit(b.lshr(word, e.constant(8, _I32))) for word in words]
        if form.kind in ("below", "drop"):
            return drawn
        factor = b.fsub(high, low) if form.kind == "uniform" else high
        return [self.body.fma(x, factor, low, self.number, LANES) for x in drawn]

    def _wide_unit(self, first: Value, second: Value) -> Value:
        """53 bits, the upper ones of the first word, as multiples of 2^-53."""
        b, e = self.body.b, self.e
        wide = e.shaped(_I64)
        upper = b.shl(b.zext(first, wide), e.constant(21, _I64))
        bits = b.or_(upper, b.zext(b.lshr(second, e.constant(11, _I32)), wide))
        return b.fmul(b.sitofp(bits, e.shaped(_DOUBLE)), e.constant(2.0**-53, _DOUBLE))

    def _wide_normal(self, first: Value, second: Value) -> tuple[Value, Value]:
        """sqrt(-2 ln(1 - u)) times cosine and sine of 2 pi v."""
        b, e = self.body.b, self.e
        logarithm = e.primitive("log", [b.fsub(e.constant(1.0, _DOUBLE), first)], _F64, _F64)
        radius = e.intrinsic("sqrt", [b.fmul(logarithm, e.constant(-2.0, _DOUBLE))])
        angle = b.fmul(second, e.constant(2 * math.pi, _DOUBLE))
        cos, sin = (b.fmul(radius, e.primitive(f, [angle], _F64, _F64)) for f in ("cos", "sin"))
        return cos, sin

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
