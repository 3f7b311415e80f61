"""Bytes by a table: y[i] = table[x[i]]."""

from __future__ import annotations

import functools

from intarsia.codegen import ir
from intarsia.codegen.body import Body, Module, Value
from intarsia.codegen.engine import KernelText
from intarsia.codegen.target import Target
from intarsia.graph.dtypes import DType

_UNROLL = 16
_LANES = 64
_QUARTER = "llvm.x86.avx512.vpermi2var.qi.512"  # bytes of 128 by seven bits of their places
_U8 = DType.UINT8


@functools.cache
def kernel_text(target: Target) -> KernelText:
    """Arguments: x (uint8[n]), table (uint8[256]), y (uint8[n]), n."""
    module = Module(target)
    body = module.kernel()
    args, tid, nthreads = body.args
    x, table, y = (body.load_pointer(args, i) for i in range(3))
    n = body.load_i64(args, 3)
    step = _LANES if target.has("avx512vbmi") else _UNROLL
    edges = body.share(body.div(body.add(n, step - 1), step), tid, nthreads)
    first, last = (body.min(body.mul(edge, step), n) for edge in edges)
    whole = body.add(first, body.mul(body.div(body.sub(last, first), step), step))
    if target.has("avx512vbmi"):
        _vectors(body, x, table, y, first, whole)
    else:
        with body.loop(first, whole, _UNROLL) as i:
            values = [_entry(body, x, table, body.add(i, u)) for u in range(_UNROLL)]
            for u, value in enumerate(values):
                body.store(value, body.at(y, i, u), _U8)
    with body.loop(whole, last) as i:
        body.store(_entry(body, x, table, i), body.at(y, i), _U8)
    body.b.ret_void()
    return module.text("lookup")


def _vectors(body: Body, x: Value, table: Value, y: Value, first: Value, last: Value) -> None:
    """Sixty-four at a time: each from either half of the table, which are four registers, by the place's highest bit."""
    b = body.b
    parts = [body.load(body.at(table, _LANES * i), _U8, _LANES) for i in range(4)]
    kind = parts[0].type
    pick = b.module.globals.get(_QUARTER) or ir.Function(b.module, ir.FunctionType(kind, [kind] * 3), _QUARTER)
    with body.loop(first, last, _LANES) as i:
        places = body.load(body.at(x, i), _U8, _LANES)
        low, high = (b.call(pick, [parts[h], places, parts[h + 1]]) for h in (0, 2))
        upper = b.icmp_signed("<", places, body.zero(_U8, _LANES))
        body.store(b.select(upper, high, low), body.at(y, i), _U8)


def _entry(body: Body, x: Value, table: Value, i: Value) -> Value:
    place = body.b.zext(body.load(body.at(x, i), _U8, 1), ir.IntType(64))
    return body.load(body.at(table, place), _U8, 1)
