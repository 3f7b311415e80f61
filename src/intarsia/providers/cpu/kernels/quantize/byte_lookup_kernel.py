"""Bytes by a table: y[i] = table[x[i]].

Registers hold the table: four of 64 bytes with AVX512-VBMI; with AVX2 one after the other sixteen parts of 16 bytes, of which
VPSHUFB gives 0 for places of 128 and above. Elsewhere elements are loaded one by one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType

_UNROLL = 16
_LANES = 64
_QUARTER = "llvm.x86.avx512.vpermi2var.qi.512"  # bytes of 128 by seven bits of their places
_SHUFFLE, _SHUFFLED = "llvm.x86.avx2.pshuf.b", 32  # each half of 16 bytes by the last four bits of its places
_PART, _VECTORS = 16, 2
_TO_SIGN = 0x70  # makes 128 and more of 16 and more
_U8 = DType.UINT8


@functools.cache
def kernel_text(target: Target) -> KernelText:
    """Arguments: x (uint8[n]), table (uint8[256]), y (uint8[n]), n."""
    module = Module(target)
    body = module.kernel()
    args, tid, nthreads = body.args
    x, table, y = (body.load_pointer(args, i) for i in range(3))
    n = body.load_i64(args, 3)
    walk, step = _steps(target)
    edges = body.share(body.div(body.add(n, step - 1), step), tid, nthreads)
    first, last = (body.min(body.mul(edge, step), n) for edge in edges)
    whole = body.add(first, body.mul(body.div(body.sub(last, first), step), step))
    walk(body, x, table, y, first, whole)
    with body.loop(whole, last) as i:
        body.store(_entry(body, x, table, i), body.at(y, i), _U8)
    body.b.ret_void()
    return module.text("lookup")


def _steps(target: Target) -> tuple[Callable[[Body, Value, Value, Value, Value, Value], None], int]:
    """The function that writes elements from `first` to `last`, and the divisor of their number."""
    if target.has("avx512vbmi"):
        return _vectors, _LANES
    if target.arch == "x86_64" and target.has("avx2"):
        return _by_parts, _SHUFFLED * _VECTORS
    return _one_by_one, _UNROLL


def _one_by_one(body: Body, x: Value, table: Value, y: Value, first: Value, last: Value) -> None:
    with body.loop(first, last, _UNROLL) as i:
        values = [_entry(body, x, table, body.add(i, u)) for u in range(_UNROLL)]
        for u, value in enumerate(values):
            body.store(value, body.at(y, i, u), _U8)


def _by_parts(body: Body, x: Value, table: Value, y: Value, first: Value, last: Value) -> None:
    """Each part of the table gives what belongs to places within it, and 0 for others."""
    b = body.b
    kind = body.vector_type(_U8, _SHUFFLED)
    shuffle, to_sign = body.intrinsic(_SHUFFLE, kind, [kind] * 2), body.constant(_TO_SIGN, _U8, _SHUFFLED)
    add = body.intrinsic(f"llvm.uadd.sat.v{_SHUFFLED}i8", kind, [kind] * 2)
    with body.loop(first, last, _SHUFFLED * _VECTORS) as i:
        places = [body.load(body.at(x, i, _SHUFFLED * n), _U8, _SHUFFLED) for n in range(_VECTORS)]
        found = [body.zero(_U8, _SHUFFLED)] * _VECTORS
        for start in range(0, 256, _PART):
            part = body.load(body.at(table, start), _U8, _PART)
            twice = body.shuffle(part, part, [*range(_PART)] * 2)
            here = body.constant(start, _U8, _SHUFFLED)
            for n, place in enumerate(places):
                inside = b.call(add, [b.xor(place, here), to_sign])
                found[n] = b.or_(found[n], b.call(shuffle, [twice, inside]))
        for n, value in enumerate(found):
            body.store(value, body.at(y, i, _SHUFFLED * n), _U8)


def _vectors(body: Body, x: Value, table: Value, y: Value, first: Value, last: Value) -> None:
    """Sixty-four at a time: each from either half of the table, which are four registers, by the place's highest bit."""
    b = body.b
    parts = [body.load(body.at(table, _LANES * i), _U8, _LANES) for i in range(4)]
    kind = parts[0].type
    pick = b.module.globals.get(_QUARTER) or ir_builder.Function(b.module, ir_builder.FunctionType(kind, [kind] * 3), _QUARTER)
    with body.loop(first, last, _LANES) as i:
        places = body.load(body.at(x, i), _U8, _LANES)
        low, high = (b.call(pick, [parts[h], places, parts[h + 1]]) for h in (0, 2))
        upper = b.icmp_signed("<", places, body.zero(_U8, _LANES))
        body.store(b.select(upper, high, low), body.at(y, i), _U8)


def _entry(body: Body, x: Value, table: Value, i: Value) -> Value:
    place = body.b.zext(body.load(body.at(x, i), _U8, 1), ir_builder.IntType(64))
    return body.load(body.at(table, place), _U8, 1)
