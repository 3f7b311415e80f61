"""Determinants by Gaussian elimination with partial pivoting, each thread its matrices."""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.elementwise.element_types import storage_type
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType

DTYPES = frozenset((DType.FLOAT, DType.DOUBLE))


class Matrices:
    """Elements of the square matrix at `work`: `n` rows that are `pitch` bytes apart."""

    work: Value
    n: Value
    pitch: Value

    def __init__(self, dtype: DType, target: Target) -> None:
        self.dtype, self.module = dtype, Module(target)
        self.lanes, self.itemsize = self.module.lanes(dtype), dtype.bits // 8
        self.body: Body = self.module.kernel()

    def _at(self, i: Value, j: Value) -> Value:
        return self.body.at(self.work, self.body.mul(i, self.pitch), self.body.mul(j, self.itemsize))

    def _element(self, i: Value, j: Value) -> Value:
        return self.body.load(self._at(i, j), self.dtype, 1)


@functools.cache
def kernel_text(dtype: DType, target: Target) -> KernelText:
    """Arguments: x [matrices, n, n], y [matrices], matrices, n, scratch (room for a matrix per thread)."""
    return _Elimination(dtype, target).text()


class _Elimination(Matrices):
    def text(self) -> KernelText:
        body = self.body
        args, tid, nthreads = body.args
        x, y, scratch = (body.load_pointer(args, i) for i in (0, 1, 4))
        matrices, self.n = (body.load_i64(args, i) for i in (2, 3))
        self.pitch = body.mul(self.n, self.itemsize)
        nbytes = body.mul(self.pitch, self.n)
        self.work = body.at(scratch, body.mul(tid, nbytes))
        first, last = body.share(matrices, tid, nthreads)
        with body.loop(first, last) as unit:
            body.copy(body.at(x, body.mul(unit, nbytes)), self.work, nbytes)
            body.store(self._determinant(), body.at(y, body.mul(unit, self.itemsize)), self.dtype)
        body.b.ret_void()
        return self.module.text("det")

    def _determinant(self) -> Value:
        """The product of the pivots, negated by each exchange of rows."""
        body, b = self.body, self.body.b
        determinant: list[Value] = [ir_builder.Constant(storage_type(self.dtype), 1.0)]
        with body.carry(0, self.n, 1, determinant) as k:
            row = self._pivot(k)
            moved = b.icmp_unsigned("!=", row, k)
            with body.when(moved):
                self._swap(k, row)
            pivot = self._element(k, k)
            product = b.fmul(determinant[0], pivot)
            determinant[0] = b.select(moved, b.fneg(product), product)
            below = body.add(k, 1)
            with body.when(b.fcmp_unordered("!=", pivot, ir_builder.Constant(storage_type(self.dtype), 0.0))):
                inverse = b.fdiv(ir_builder.Constant(storage_type(self.dtype), -1.0), pivot)
                with body.loop(below, self.n) as i:
                    self._add(i, k, b.fmul(self._element(i, k), inverse), below)
        return determinant[0]

    def _pivot(self, k: Value) -> Value:
        """The row, from k on, whose element of column k is largest."""
        body, b, e = self.body, self.body.b, Emitter(self.body.b)
        best = [k, e.intrinsic("fabs", [self._element(k, k)])]
        with body.carry(body.add(k, 1), self.n, 1, best) as i:
            size = e.intrinsic("fabs", [self._element(i, k)])
            larger = b.fcmp_ordered(">", size, best[1])
            best[:] = [b.select(larger, i, best[0]), b.select(larger, size, best[1])]
        return best[0]

    def _swap(self, i: Value, j: Value) -> None:
        body, dtype = self.body, self.dtype
        with body.loop(0, self.n) as column:
            x, y = self._element(i, column), self._element(j, column)
            body.store(x, self._at(j, column), dtype)
            body.store(y, self._at(i, column), dtype)

    def _add(self, i: Value, source: Value, factor: Value, start: Value) -> None:
        """row i += factor * row source, from column `start` on."""
        body, dtype, lanes = self.body, self.dtype, self.lanes
        many = body.splat(factor, lanes)
        whole = body.add(start, body.mul(body.div(body.sub(self.n, start), lanes), lanes))
        with body.loop(start, whole, lanes) as j:
            x, y = (body.load(self._at(row, j), dtype, lanes) for row in (source, i))
            body.store(body.fma(many, x, y, dtype, lanes), self._at(i, j), dtype)
        with body.when(body.less(whole, self.n)):
            mask = body.mask(body.sub(self.n, whole), lanes)
            x, y = (body.load_masked(self._at(row, whole), mask, dtype, lanes) for row in (source, i))
            body.store_masked(body.fma(many, x, y, dtype, lanes), self._at(i, whole), mask, dtype)
