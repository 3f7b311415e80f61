"""NonZero: indices of elements that are not zero, counted by whole vectors, then written compressed, a row of the last axis at
a time."""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType

_LANES = 8  # of indices
_I64 = ir_builder.IntType(64)
_INTEGERS = {1: DType.UINT8, 2: DType.UINT16, 4: DType.UINT32, 8: DType.UINT64}


@functools.cache
def kernel_text(itemsize: int, floating: bool, target: Target) -> KernelText:
    """Arguments: x, shape (int64[rank]), y, count (an int64), rank, elements.

    Where y is 0 the number of elements that are not zero is stored at `count`; else y is int64[rank, that number]. Both
    zeros of `floating` elements are zero. Thread 0 does it all.
    """
    return _NonZero(_INTEGERS[itemsize], floating, target).text()


class _NonZero:
    def __init__(self, dtype: DType, floating: bool, target: Target) -> None:
        self.dtype, self.floating = dtype, floating
        self.module = Module(target)
        self.body: Body = self.module.kernel()

    def text(self) -> KernelText:
        body = self.body
        args, tid, _ = body.args
        x, shape, y, count = (body.load_pointer(args, i) for i in range(4))
        rank, size = (body.load_i64(args, i) for i in range(4, 6))
        size = body.select(body.equal(tid, 0), size, 0)
        with body.either(body.equal(body.load_i64(args, 2), 0)) as (counted, written):
            with counted:
                body.store(self._count(x, size), count, DType.INT64)
            with written:
                self._write(x, shape, y, body.load_i64(count), rank, size)
        body.b.ret_void()
        return self.module.text("nonzero")

    def _found(self, pointer: Value, lanes: int, mask: Value | None = None) -> Value:
        """Which of `lanes` elements are not zero."""
        body, b = self.body, self.body.b
        if mask is None:
            bits = body.load(pointer, self.dtype, lanes)
        else:
            bits = body.load_masked(pointer, mask, self.dtype, lanes)
        if self.floating:
            bits = b.shl(bits, body.splat(ir_builder.IntType(self.dtype.bits)(1), lanes))
        return b.icmp_unsigned("!=", bits, body.zero(self.dtype, lanes))

    def _number(self, found: Value, lanes: int) -> Value:
        b = self.body.b
        bits = b.bitcast(found, ir_builder.IntType(lanes))
        wide = bits if lanes == 64 else b.zext(bits, _I64)
        return b.call(self.body.intrinsic("llvm.ctpop.i64", _I64, [_I64]), [wide])

    def _at(self, x: Value, index: Value) -> Value:
        return self.body.at(x, self.body.mul(index, self.dtype.bits // 8))

    def _count(self, x: Value, size: Value) -> Value:
        body, lanes = self.body, min(self.module.lanes(self.dtype), 64)
        total = [body.i(0)]
        whole = body.sub(size, body.rem(size, lanes))
        with body.carry(0, whole, lanes, total) as i:
            total[0] = body.add(total[0], self._number(self._found(self._at(x, i), lanes), lanes))
        mask = body.mask(body.sub(size, whole), lanes)
        return body.add(total[0], self._number(self._found(self._at(x, whole), lanes, mask), lanes))

    def _write(self, x: Value, shape: Value, y: Value, total: Value, rank: Value, size: Value) -> None:
        body = self.body
        last = body.sub(rank, 1)
        inner = body.load_i64(shape, last)
        outer = body.div(size, body.max(inner, 1))
        row_nbytes = body.mul(total, 8)
        columns = body.at(y, body.mul(last, row_nbytes))
        done = [body.i(0)]
        with body.carry(0, outer, 1, done) as row:
            before = done[0]
            end = self._columns(self._at(x, body.mul(row, inner)), columns, inner, before)
            left = body.cell(row)
            with body.loop(0, last) as i:
                axis = body.sub(body.sub(last, 1), i)
                extent = body.load_i64(shape, axis)
                self._fill(body.at(y, body.mul(axis, row_nbytes)), before, end, body.rem(left.get(), extent))
                left.set(body.div(left.get(), extent))
            done[0] = end

    def _columns(self, x: Value, columns: Value, inner: Value, place: Value) -> Value:
        """Write the places of one row from `place` on; returns the place behind them."""
        body, b = self.body, self.body.b
        vector = ir_builder.VectorType(_I64, _LANES)
        lanes = ir_builder.Constant(vector, list(range(_LANES)))
        ends = [place]

        def step(i: Value, mask: Value | None) -> None:
            found = self._found(self._at(x, i), _LANES, mask)
            indices = b.add(body.splat(i, _LANES), lanes)
            stored = body.store_chosen(indices, body.at(columns, body.mul(ends[0], 8)), found, DType.INT64)
            ends[0] = body.add(ends[0], stored)

        whole = body.sub(inner, body.rem(inner, _LANES))
        with body.carry(0, whole, _LANES, ends) as i:
            step(i, None)
        with body.carry(whole, inner, _LANES, ends) as i:
            step(i, body.mask(body.sub(inner, i), _LANES))
        return ends[0]

    def _fill(self, row: Value, start: Value, end: Value, value: Value) -> None:
        body = self.body
        repeated = body.splat(value, _LANES)
        whole = body.add(start, body.sub(body.sub(end, start), body.rem(body.sub(end, start), _LANES)))
        with body.loop(start, whole, _LANES) as i:
            body.store(repeated, body.at(row, body.mul(i, 8)), DType.INT64)
        with body.when(body.less(whole, end)):
            mask = body.mask(body.sub(end, whole), _LANES)
            body.store_masked(repeated, body.at(row, body.mul(whole, 8)), mask, DType.INT64)
