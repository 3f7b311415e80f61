"""Softmax and log-softmax of contiguous float32 rows: highest score, powers and their sum, and what is left to do.

A row takes three passes, in whole vectors four (or two) at a time, then one at a time, and a last one under a mask. A row with
a NaN or an infinity on top is NaN, since differences to its highest score are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from intarsia.codegen.builder.kernel_body import Module, Value
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.attention.online_softmax import Rows

_F32 = DType.FLOAT
_UNROLL = 4
_UNROLLED_POWERS = 2  # where four of them, and the polynomial, are more than the registers hold

Step = Callable[[Value, Value | None, Value], Value]  # (byte offset, mask, carried) -> carried


@functools.cache
def kernel_text(log: bool, target: Target) -> KernelText:
    """The step y[i, :] = softmax(x[i, :]), or its logarithm; arguments: x, y (addresses), rows, elements of a row."""
    module = Module(target)
    lanes = module.lanes(_F32)
    body = module.kernel()
    args, tid, nthreads = body.args
    x, y = (body.load_pointer(args, i) for i in range(2))
    count, n = (body.load_i64(args, i) for i in range(2, 4))
    count = body.b.select(body.b.icmp_signed("==", n, body.i(0)), body.i(0), count)  # rows of nothing are not walked
    first, last = body.share(count, tid, nthreads)
    rows = Rows(body, lanes)
    with body.loop(first, last) as row:
        start = body.mul(body.mul(row, n), 4)
        _row(rows, body.at(x, start), body.at(y, start), n, log)
    body.b.ret_void()
    return module.text("log_softmax" if log else "softmax")


def _row(rows: Rows, source: Value, target: Value, n: Value, log: bool) -> None:
    body, b, lanes = rows.body, rows.body.b, rows.lanes

    def load(pointer: Value, offset: Value, mask: Value | None) -> Value:
        where = body.at(pointer, offset)
        return body.load(where, _F32, lanes) if mask is None else body.load_masked(where, mask, _F32, lanes)

    def store(value: Value, offset: Value, mask: Value | None) -> None:
        where = body.at(target, offset)
        body.store(value, where, _F32) if mask is None else body.store_masked(value, where, mask, _F32)

    def raise_highest(offset: Value, mask: Value | None, highest: Value) -> Value:
        value = load(source, offset, mask)
        return rows.larger(value if mask is None else b.select(mask, value, rows.lowest), highest)

    def add_power(offset: Value, mask: Value | None, total: Value) -> Value:
        power = rows.exp(b.fsub(load(source, offset, mask), highest))
        if not log:
            store(power, offset, mask)
        return b.fadd(total, power if mask is None else b.select(mask, power, body.zero(_F32, lanes)))

    def finish(offset: Value, mask: Value | None, _: Value) -> Value:
        if log:
            store(b.fsub(b.fsub(load(source, offset, mask), highest), rest), offset, mask)
        else:
            store(b.fmul(load(target, offset, mask), rest), offset, mask)
        return _

    highest = rows.highest(_fold(rows, n, rows.lowest, raise_highest, rows.larger))
    unroll = _UNROLL if body.module.target.vector_registers == 32 else _UNROLLED_POWERS
    total = rows.total(_fold(rows, n, body.zero(_F32, lanes), add_power, b.fadd, unroll))
    rest = Emitter(b, lanes).logarithm(total) if log else rows.reciprocal(total)
    _fold(rows, n, body.zero(_F32, lanes), finish, None)


def _fold(
    rows: Rows, n: Value, initial: Value, step: Step, combine: Callable[[Value, Value], Value] | None, unroll: int = _UNROLL
) -> Value:
    """Take `step` over all of a row's vectors; what it carries starts as `initial` in each of `unroll`, then combined."""
    body, lanes = rows.body, rows.lanes
    block = unroll * lanes
    carried: list[Value] = [initial] * unroll
    whole = body.sub(n, body.rem(n, block))
    with body.carry(0, whole, block, carried) as i:
        offsets = [body.mul(body.add(i, part * lanes), 4) for part in range(unroll)]
        carried[:] = [step(offset, None, value) for offset, value in zip(offsets, carried, strict=True)]
    value = [functools.reduce(combine, carried) if combine else carried[0]]
    single = body.sub(n, body.rem(n, lanes))
    with body.carry(whole, single, lanes, value) as i:
        value[:] = [step(body.mul(i, 4), None, value[0])]
    with body.carry(single, n, lanes, value) as i:
        value[:] = [step(body.mul(i, 4), body.mask(body.sub(n, i), lanes), value[0])]
    return value[0]


def softmax_args(x: Address, y: Address, *, rows: int, n: int) -> Sequence[Argument]:
    """The step's arguments: addresses, and sizes of float32 [rows, n]."""
    return [x, y, rows, n]
