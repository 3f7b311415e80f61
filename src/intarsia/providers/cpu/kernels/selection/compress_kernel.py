"""Compress: copies elements, or blocks of bytes, whose condition holds, densely."""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType

_LANES = 8
_INTEGERS = {1: DType.UINT8, 2: DType.UINT16, 4: DType.UINT32, 8: DType.UINT64}


@functools.cache
def kernel_text(itemsize: int, target: Target) -> KernelText:
    """Arguments: x, condition (bytes), y, outer, length, stride, block, row.

    x is [outer, stride] bytes, of which the first `length` * `block` of each row are looked at: block i goes on to y where
    byte i of `condition` is not 0. `itemsize`: 1, 2, 4 or 8, which `block` then is; 0: `block` is any number of bytes.
    Each thread does some of the rows, each of which is `row` bytes in y.
    """
    module = Module(target)
    body = module.kernel()
    args, tid, nthreads = body.args
    x, condition, y = (body.load_pointer(args, i) for i in range(3))
    outer, length, stride, block, row_nbytes = (body.load_i64(args, i) for i in range(3, 8))
    first, last = body.share(outer, tid, nthreads)
    with body.loop(first, last) as row:
        source, target_row = body.at(x, body.mul(row, stride)), body.at(y, body.mul(row, row_nbytes))
        if itemsize:
            _elements(body, _INTEGERS[itemsize], source, condition, target_row, length)
        else:
            _blocks(body, source, condition, target_row, length, block)
    body.b.ret_void()
    return module.text("compress")


def _elements(body: Body, dtype: DType, x: Value, condition: Value, y: Value, length: Value) -> None:
    b, nbytes = body.b, dtype.bits // 8
    ends = [body.i(0)]

    def step(i: Value, mask: Value | None) -> None:
        here, source = body.at(condition, i), body.at(x, body.mul(i, nbytes))
        if mask is None:
            bits, values = body.load(here, DType.UINT8, _LANES), body.load(source, dtype, _LANES)
        else:
            bits = body.load_masked(here, mask, DType.UINT8, _LANES)
            values = body.load_masked(source, mask, dtype, _LANES)
        found = b.icmp_unsigned("!=", bits, body.zero(DType.UINT8, _LANES))
        stored = body.store_chosen(values, body.at(y, body.mul(ends[0], nbytes)), found, dtype)
        ends[0] = body.add(ends[0], stored)

    whole = body.sub(length, body.rem(length, _LANES))
    with body.carry(0, whole, _LANES, ends) as i:
        step(i, None)
    with body.carry(whole, length, _LANES, ends) as i:
        step(i, body.mask(body.sub(length, i), _LANES))


def _blocks(body: Body, x: Value, condition: Value, y: Value, length: Value, block: Value) -> None:
    to = body.cell(0)
    with body.loop(0, length) as i:
        byte = body.b.load(body.at(condition, i), typ=ir_builder.IntType(8))
        with body.when(body.b.icmp_unsigned("!=", byte, ir_builder.Constant(ir_builder.IntType(8), 0))):
            body.copy(body.at(x, body.mul(i, block)), body.at(y, to.get()), block)
            to.set(body.add(to.get(), block))
