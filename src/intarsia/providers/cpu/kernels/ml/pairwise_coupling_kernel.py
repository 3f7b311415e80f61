"""Class probabilities from those of pairs of classes, a vector of rows at a time: each lane is a row.

Rows stop by themselves; a row that has stopped takes steps of 0 until the last one of its vector has.
"""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType

_REAL = DType.DOUBLE
_NBYTES = 8
_LEAST = 1e-7  # of a pair's probability
_ROUNDS = 100  # or as many as there are classes


def lanes_of(target: Target) -> int:
    return target.vector_bytes // _NBYTES


def scratch_nbytes(classes: int, target: Target) -> int:
    """Of a thread: the matrix Q, its product with p, and p."""
    return classes * (classes + 2) * target.vector_bytes


@functools.cache
def kernel_text(target: Target) -> KernelText:
    """Arguments: raw [rows, pairs], a [pairs], b [pairs], out [rows, classes], scratch; rows, classes, all of double."""
    return _Pairs(target).text()


class _Pairs:
    def __init__(self, target: Target) -> None:
        self.module, self.lanes = Module(target), lanes_of(target)
        self.body: Body = self.module.kernel()
        self.e = Emitter(self.body.b, self.lanes)
        self.size = self.lanes * _NBYTES  # of a vector

    def text(self) -> KernelText:
        body = self.body
        args, tid, nthreads = body.args
        self.raw, self.a, self.b, out, scratch = (body.load_pointer(args, i) for i in range(5))
        rows, self.classes = (body.load_i64(args, i) for i in (5, 6))
        c = self.classes
        self.pairs = body.div(body.mul(c, body.sub(c, 1)), 2)
        self.pitch = body.mul(c, self.size)
        nbytes = body.mul(body.add(c, 2), self.pitch)
        self.q = body.at(scratch, body.mul(tid, nbytes))
        self.qp = body.at(self.q, body.mul(c, self.pitch))
        self.p = body.at(self.qp, self.pitch)
        count = body.div(body.add(rows, self.lanes - 1), self.lanes)
        first, last = body.share(count, tid, nthreads)
        with body.loop(first, last) as group:
            row = body.mul(group, self.lanes)
            self._matrix(row, rows)
            self._iterate()
            with body.loop(0, body.min(body.sub(rows, row), self.lanes)) as lane, body.loop(0, c) as t:
                value = body.load(body.at(self.p, body.mul(t, self.size), body.mul(lane, _NBYTES)), _REAL, 1)
                place = body.add(body.mul(body.add(row, lane), c), t)
                body.store(value, body.at(out, body.mul(place, _NBYTES)), _REAL)
        body.b.ret_void()
        return self.module.text("pair_probabilities")

    # --- vectors of rows ---

    def _at(self, table: Value, i: Value) -> Value:
        return self.body.at(table, self.body.mul(i, self.size))

    def _entry(self, i: Value, j: Value) -> Value:
        return self.body.at(self.q, self.body.mul(i, self.pitch), self.body.mul(j, self.size))

    def _load(self, place: Value) -> Value:
        return self.body.load(place, _REAL, self.lanes)

    def _store(self, value: Value, place: Value) -> None:
        self.body.store(value, place, _REAL)

    def _fma(self, x: Value, y: Value, z: Value) -> Value:
        return self.body.fma(x, y, z, _REAL, self.lanes)

    def _number(self, value: float) -> Value:
        return self.body.constant(value, _REAL, self.lanes)

    # --- the method ---

    def _matrix(self, row: Value, rows: Value) -> None:
        """Q[t, t] = sum of r[s, t]^2 over s, Q[s, t] = -r[t, s] r[s, t], where r[s, t] is what the pair says of s."""
        body, b, one = self.body, self.body.b, self._number(1.0)
        lines = []
        for lane in range(self.lanes):  # rows beyond the last are the last one again
            mine = body.min(body.add(row, lane), body.sub(rows, 1))
            lines.append(body.at(self.raw, body.mul(body.mul(mine, self.pairs), _NBYTES)))
        body.fill_zero(self.q, body.mul(self.pitch, self.classes))
        pair = body.cell(0, "pair")
        with body.loop(0, self.classes) as i, body.loop(body.add(i, 1), self.classes) as j:
            offset = body.mul(pair.get(), _NBYTES)
            raw = self._gathered([body.at(line, offset) for line in lines])
            steepness, shift = (body.broadcast(body.at(t, offset), _REAL, self.lanes) for t in (self.a, self.b))
            power = self.e.primitive("exp", [b.fadd(b.fmul(raw, steepness), shift)], _REAL, _REAL)
            p = b.fdiv(one, b.fadd(one, power))
            p = self.e.extremum("min", self.e.extremum("max", p, self._number(_LEAST)), self._number(1 - _LEAST))
            rest = b.fsub(one, p)
            product = b.fneg(b.fmul(p, rest))
            self._store(product, self._entry(i, j))
            self._store(product, self._entry(j, i))
            for t, r in ((i, rest), (j, p)):
                place = self._entry(t, t)
                self._store(self._fma(r, r, self._load(place)), place)
            pair.add(1)

    def _gathered(self, places: list[Value]) -> Value:
        b, body = self.body.b, self.body
        vector: Value = ir_builder.Constant(body.vector_type(_REAL, self.lanes), ir_builder.Undefined)
        for lane, place in enumerate(places):
            vector = b.insert_element(vector, body.load(place, _REAL, 1), body.const32(lane))
        return vector

    def _iterate(self) -> None:
        body, b, c = self.body, self.body.b, self.classes
        wide = b.uitofp(c, ir_builder.DoubleType())
        share = body.splat(b.fdiv(ir_builder.Constant(ir_builder.DoubleType(), 1.0), wide), self.lanes)
        enough = b.fmul(share, self._number(0.005))
        with body.loop(0, c) as t:
            self._store(share, self._at(self.p, t))
        bits, mask = ir_builder.IntType(self.lanes), ir_builder.VectorType(ir_builder.IntType(1), self.lanes)
        active = body.cell(ir_builder.Constant(bits, -1), "active")
        left = body.cell(body.max(c, _ROUNDS), "left")

        def more() -> Value:
            some = b.icmp_unsigned("!=", active.get(), ir_builder.Constant(bits, 0))
            return b.and_(some, body.less(0, left.get()))

        with body.repeat_while(more):
            left.add(-1)
            pqp = self._products()
            worst = [self._number(0.0)]
            with body.carry(0, c, 1, worst) as t:
                error = self.e.intrinsic("fabs", [b.fsub(self._load(self._at(self.qp, t)), pqp)])
                worst[0] = self.e.extremum("max", worst[0], error)  # NaN stays, and stops its row
            moving = b.fcmp_ordered(">=", worst[0], enough)
            active.set(b.and_(active.get(), b.bitcast(moving, bits)))
            with body.when(b.icmp_unsigned("!=", active.get(), ir_builder.Constant(bits, 0))):
                self._sweep(pqp, b.bitcast(active.get(), mask))

    def _products(self) -> Value:
        """Q p, and p Q p."""
        body, c = self.body, self.classes
        total = [self._number(0.0)]
        with body.carry(0, c, 1, total) as t:
            inner = [self._number(0.0)]
            with body.carry(0, c, 1, inner) as j:
                inner[0] = self._fma(self._load(self._entry(t, j)), self._load(self._at(self.p, j)), inner[0])
            self._store(inner[0], self._at(self.qp, t))
            total[0] = self._fma(self._load(self._at(self.p, t)), inner[0], total[0])
        return total[0]

    def _sweep(self, pqp: Value, active: Value) -> None:
        """Each probability of the rows that are active is moved to its minimum, and all are scaled to add up to 1."""
        body, b, c, one = self.body, self.body.b, self.classes, self._number(1.0)
        total = [pqp]
        with body.carry(0, c, 1, total) as t:
            qtt, qpt = self._load(self._entry(t, t)), self._load(self._at(self.qp, t))
            step = b.select(active, b.fdiv(b.fsub(total[0], qpt), qtt), self._number(0.0))
            scale = b.fdiv(one, b.fadd(one, step))
            place = self._at(self.p, t)
            self._store(b.fadd(self._load(place), step), place)
            moved = self._fma(step, self._fma(step, qtt, b.fadd(qpt, qpt)), total[0])
            total[0] = b.fmul(b.fmul(moved, scale), scale)
            with body.loop(0, c) as j:
                at_qp, at_p = self._at(self.qp, j), self._at(self.p, j)
                shifted = self._fma(step, self._load(self._entry(t, j)), self._load(at_qp))
                self._store(b.fmul(shifted, scale), at_qp)
                self._store(b.fmul(self._load(at_p), scale), at_p)
