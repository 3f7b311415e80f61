"""Inverses of matrices by Gauss-Jordan elimination in place with partial pivoting, each thread its matrices."""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Value
from intarsia.codegen.elementwise.element_types import storage_type
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.linalg.determinant_kernel import Matrices
from intarsia.run_status import SINGULAR_MATRIX


@functools.cache
def kernel_text(dtype: DType, target: Target) -> KernelText:
    """Arguments: x and y [matrices, n, n], matrices, n, scratch (n integers per thread), status."""
    return _Inversion(dtype, target).text()


class _Inversion(Matrices):
    def text(self) -> KernelText:
        body = self.body
        args, tid, nthreads = body.args
        x, y, scratch, self.status = (body.load_pointer(args, i) for i in (0, 1, 4, 5))
        matrices, self.n = (body.load_i64(args, i) for i in (2, 3))
        self.pitch = body.mul(self.n, self.itemsize)
        self.rows = body.at(scratch, body.mul(tid, body.mul(self.n, 8)))
        nbytes = body.mul(self.pitch, self.n)
        first, last = body.share(matrices, tid, nthreads)
        with body.loop(first, last) as unit:
            self.work = body.at(y, body.mul(unit, nbytes))
            body.copy(body.at(x, body.mul(unit, nbytes)), self.work, nbytes)
            with body.loop(0, self.n) as k:
                self._eliminate(k)
            self._restore()
        body.b.ret_void()
        return self.module.text("inverse")

    def _number(self, value: float) -> Value:
        return ir_builder.Constant(storage_type(self.dtype), value)

    def _eliminate(self, k: Value) -> None:
        """Column k becomes one of the unit matrix, and its place takes what the unit matrix becomes."""
        body, b = self.body, self.body.b
        row = self._pivot(k)
        body.store(row, body.at(self.rows, body.mul(k, 8)), DType.INT64)
        with body.when(b.icmp_unsigned("!=", row, k)):
            self._exchange(self._at(row, body.i(0)), self._at(k, body.i(0)))
        pivot = self._element(k, k)
        with body.when(b.fcmp_ordered("==", pivot, self._number(0.0))):
            body.store(body.i(SINGULAR_MATRIX), self.status, DType.INT64)
        body.store(self._number(1.0), self._at(k, k), self.dtype)
        self._each(k, k, b.fdiv(self._number(1.0), pivot), None)
        for start, end in ((body.i(0), k), (body.add(k, 1), self.n)):
            with body.loop(start, end) as i:
                factor = b.fneg(self._element(i, k))
                body.store(self._number(0.0), self._at(i, k), self.dtype)
                self._each(i, k, factor, i)

    def _pivot(self, k: Value) -> Value:
        """The row, from k on, whose element of column k is largest; NaN counts as such."""
        body, b, e = self.body, self.body.b, Emitter(self.body.b)
        best = [k, e.intrinsic("fabs", [self._element(k, k)])]
        with body.carry(body.add(k, 1), self.n, 1, best) as i:
            size = e.intrinsic("fabs", [self._element(i, k)])
            larger = b.fcmp_unordered(">", size, best[1])
            best[:] = [b.select(larger, i, best[0]), b.select(larger, size, best[1])]
        return best[0]

    def _each(self, i: Value, source: Value, factor: Value, added: Value | None) -> None:
        """row i = factor * row source, plus row i itself where it is `added`."""
        body, dtype, lanes = self.body, self.dtype, self.lanes
        many = body.splat(factor, lanes)
        whole = body.mul(body.div(self.n, lanes), lanes)

        def value(x: Value, y: Value) -> Value:
            return body.b.fmul(many, x) if added is None else body.fma(many, x, y, dtype, lanes)

        with body.loop(0, whole, lanes) as j:
            x, y = (body.load(self._at(row, j), dtype, lanes) for row in (source, i))
            body.store(value(x, y), self._at(i, j), dtype)
        with body.when(body.less(whole, self.n)):
            mask = body.mask(body.sub(self.n, whole), lanes)
            x, y = (body.load_masked(self._at(row, whole), mask, dtype, lanes) for row in (source, i))
            body.store_masked(value(x, y), self._at(i, whole), mask, dtype)

    def _exchange(self, first: Value, second: Value) -> None:
        body, dtype = self.body, self.dtype
        with body.loop(0, self.pitch, self.itemsize) as offset:
            a, b = body.at(first, offset), body.at(second, offset)
            x, y = body.load(a, dtype, 1), body.load(b, dtype, 1)
            body.store(x, b, dtype)
            body.store(y, a, dtype)

    def _restore(self) -> None:
        """Rows that were exchanged are columns of the inverse, exchanged in reverse order."""
        body, dtype = self.body, self.dtype
        with body.loop(0, self.n) as step:
            k = body.sub(body.sub(self.n, 1), step)
            other = body.load_i64(self.rows, k)
            with body.when(body.b.icmp_unsigned("!=", other, k)), body.loop(0, self.n) as i:
                x, y = self._element(i, k), self._element(i, other)
                body.store(x, self._at(i, other), dtype)
                body.store(y, self._at(i, k), dtype)
