"""Class indices by unnormalised log-probabilities: per row running sums of exponentials, in which numbers are looked up."""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.elementwise.element_types import storage_type
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType

SOURCES = frozenset((DType.FLOAT16, DType.BFLOAT16, DType.FLOAT, DType.DOUBLE))
TARGETS = frozenset((DType.INT32, DType.INT64))
FIELDS = ("x", "units", "y", "rows", "classes", "samples", "scratch")
_POINTERS = ("x", "units", "y", "scratch")
_LANES = 8
_DOUBLE = ir_builder.DoubleType()


def scratch_nbytes(classes: int) -> int:
    """Bytes for one thread."""
    return (classes + _LANES) * 8


@functools.cache
def kernel_text(source: DType, result: DType, target: Target) -> KernelText:
    """Arguments are FIELDS: x [rows, classes], units in [0, 1) (double) and y [rows, samples], scratch for every thread."""
    return _Multinomial(source, result, target).text()


class _Multinomial:
    def __init__(self, source: DType, result: DType, target: Target) -> None:
        self.source, self.result = source, result
        self.module = Module(target)
        self.body: Body = self.module.kernel()

    def text(self) -> KernelText:
        body = self.body
        args, tid, nthreads = body.args
        v = self.v = {n: (body.load_pointer if n in _POINTERS else body.load_i64)(args, i) for i, n in enumerate(FIELDS)}
        each = body.mul(body.add(v["classes"], _LANES), 8)
        sums = body.at(v["scratch"], body.mul(tid, each))
        first, last = body.share(v["rows"], tid, nthreads)
        with body.loop(first, last) as row:
            self._sums(body.at(v["x"], body.mul(body.mul(row, v["classes"]), self.source.bits // 8)), sums)
            total = body.load(body.at(sums, body.mul(body.max(body.sub(v["classes"], 1), 0), 8)), DType.DOUBLE, 1)
            with body.loop(0, v["samples"]) as i:
                place = body.add(body.mul(row, v["samples"]), i)
                unit = body.load(body.at(v["units"], body.mul(place, 8)), DType.DOUBLE, 1)
                found = self._first_above(sums, body.b.fmul(unit, total))
                narrow = body.b.trunc(found, storage_type(self.result)) if self.result.bits < 64 else found
                body.store(narrow, body.at(v["y"], body.mul(place, self.result.bits // 8)), self.result)
        body.b.ret_void()
        return self.module.text("multinomial")

    def _sums(self, x: Value, sums: Value) -> None:
        """exp(x - max x), then their running sums."""
        body, b, classes = self.body, self.body.b, self.v["classes"]
        largest: list[Value] = [ir_builder.Constant(_DOUBLE, float("-inf"))]
        with body.carry(0, classes, 1, largest) as i:
            value = self._element(x, i)
            body.store(value, body.at(sums, body.mul(i, 8)), DType.DOUBLE)
            largest[0] = b.select(b.fcmp_ordered(">", value, largest[0]), value, largest[0])
        many, vector = body.splat(largest[0], _LANES), Emitter(b, _LANES)
        with body.loop(0, classes, _LANES) as i:  # scratch has room behind the last class
            at = body.at(sums, body.mul(i, 8))
            difference = b.fsub(body.load(at, DType.DOUBLE, _LANES), many)
            body.store(vector.primitive("exp", [difference], DType.DOUBLE, DType.DOUBLE), at, DType.DOUBLE)
        total: list[Value] = [ir_builder.Constant(_DOUBLE, 0.0)]
        with body.carry(0, classes, 1, total) as i:
            at = body.at(sums, body.mul(i, 8))
            total[0] = b.fadd(total[0], body.load(at, DType.DOUBLE, 1))
            body.store(total[0], at, DType.DOUBLE)

    def _element(self, x: Value, i: Value) -> Value:
        scalar = Emitter(self.body.b)
        value = scalar.load(self.body.at(x, self.body.mul(i, self.source.bits // 8)), self.source)
        return value if self.source is DType.DOUBLE else self.body.b.fpext(value, _DOUBLE)

    def _first_above(self, sums: Value, point: Value) -> Value:
        """The first class whose running sum is above `point`, or the last class."""
        body, b = self.body, self.body.b
        low, high = body.cell(0), body.cell(self.v["classes"])
        with body.repeat_while(lambda: body.less(low.get(), high.get())):
            middle = body.div(body.add(low.get(), high.get()), 2)
            value = body.load(body.at(sums, body.mul(middle, 8)), DType.DOUBLE, 1)
            behind = b.fcmp_ordered("<=", value, point)
            low.set(body.select(behind, body.add(middle, 1), low.get()))
            high.set(body.select(behind, high.get(), middle))
        return body.max(body.min(low.get(), body.sub(self.v["classes"], 1)), 0)
