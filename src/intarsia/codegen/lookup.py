"""Bytes by a table: y[i] = table[x[i]]."""

from __future__ import annotations

import functools

import llvmlite.ir as ir

from intarsia.codegen.body import Body, Module, Value
from intarsia.codegen.engine import KernelText
from intarsia.codegen.target import Target
from intarsia.graph.dtypes import DType

_UNROLL = 16
_U8 = DType.UINT8


@functools.cache
def kernel_text(target: Target) -> KernelText:
    """Arguments: x (uint8[n]), table (uint8[256]), y (uint8[n]), n."""
    module = Module(target)
    body = module.kernel()
    args, tid, nthreads = body.args
    x, table, y = (body.load_pointer(args, i) for i in range(3))
    n = body.load_i64(args, 3)
    first, last = (
        body.min(body.mul(edge, _UNROLL), n) for edge in body.share(body.div(body.add(n, _UNROLL - 1), _UNROLL), tid, nthreads)
    )
    whole = body.add(first, body.mul(body.div(body.sub(last, first), _UNROLL), _UNROLL))
    with body.loop(first, whole, _UNROLL) as i:
        values = [_entry(body, x, table, body.add(i, u)) for u in range(_UNROLL)]
        for u, value in enumerate(values):
            body.store(value, body.at(y, i, u), _U8)
    with body.loop(whole, last) as i:
        body.store(_entry(body, x, table, i), body.at(y, i), _U8)
    body.b.ret_void()
    return module.text("lookup")


def _entry(body: Body, x: Value, table: Value, i: Value) -> Value:
    place = body.b.zext(body.load(body.at(x, i), _U8, 1), ir.IntType(64))
    return body.load(body.at(table, place), _U8, 1)
