"""Kernels of loops and branches between the steps of their bodies: move values, count, test the condition."""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target

MOVE_FIELDS = 5
_LINE = 64  # bytes that one thread copies at least


@functools.cache
def move_text(target: Target) -> KernelText:
    """The step that copies blocks of bytes: arguments are their count, the address of a counter k or 0, then for each block

    target, target stride, source, source stride, bytes: so many bytes at source + k * stride go to target + k * stride.
    """
    module = Module(target)
    body = module.kernel()
    args, tid, nthreads = body.args
    k = _optional(body, body.load_i64(args, 1), body.load_pointer(args, 1), 0)
    with body.loop(0, body.load_i64(args)) as block:
        row = body.at(args, body.mul(block, 8 * MOVE_FIELDS), 16)
        target_stride, source_stride, nbytes = (body.load_i64(row, i) for i in (1, 3, 4))
        first, last = body.share(body.div(body.add(nbytes, _LINE - 1), _LINE), tid, nthreads)
        start, stop = body.mul(first, _LINE), body.min(body.mul(last, _LINE), nbytes)
        with body.when(body.less(start, stop)):
            to = body.at(body.load_pointer(row, 0), body.mul(k, target_stride), start)
            body.copy(body.at(body.load_pointer(row, 2), body.mul(k, source_stride), start), to, body.sub(stop, start))
    body.b.ret_void()
    return module.text("move")


@functools.cache
def count_text(target: Target) -> KernelText:
    """The serial step before and after each iteration.

    Arguments: 0 at the loop's beginning and 1 after an iteration; addresses of the int64 counter and of the byte that says
    whether to go on; address of the int64 limit or 0, and the limit where that is 0; address of a byte that is the loop's
    condition, or 0 where it always holds; address of the status words of the loop's steps, and how many: the loop also ends
    where one of them is set.
    """
    module = Module(target)
    body = module.kernel()
    args, _, _ = body.args
    counter, going = body.load_pointer(args, 1), body.load_pointer(args, 2)
    again = body.equal(body.load_i64(args), 1)
    k = body.select(again, body.add(body.load_i64(counter), 1), 0)
    body.b.store(k, counter)
    limit = _optional(body, body.load_i64(args, 3), body.load_pointer(args, 3), body.load_i64(args, 4))
    condition = body.cell(1)
    with body.when(_differs(body, body.load_i64(args, 5), 0)):
        byte = body.b.load(body.load_pointer(args, 5), typ=ir_builder.IntType(8))
        condition.set(body.b.zext(byte, ir_builder.IntType(64)))
    status, faults = body.load_pointer(args, 6), body.cell(0)
    with body.loop(0, body.load_i64(args, 7)) as i:
        faults.set(body.b.or_(faults.get(), body.load_i64(body.at(status, body.mul(i, 8)))))
    on = body.b.and_(_differs(body, condition.get(), 0), body.less(k, limit))
    on = body.b.and_(on, body.equal(faults.get(), 0))
    body.b.store(body.b.zext(on, ir_builder.IntType(8)), going)
    body.b.ret_void()
    return module.text("count")


def _optional(body: Body, address: Value, pointer: Value, default: Value | int) -> Value:
    """The int64 at an address that may be 0."""
    found = body.cell(0)
    found.set(default)
    with body.when(_differs(body, address, 0)):
        found.set(body.load_i64(pointer))
    return found.get()


def _differs(body: Body, a: Value, b: int) -> Value:
    return body.b.icmp_signed("!=", a, body.i(b))
