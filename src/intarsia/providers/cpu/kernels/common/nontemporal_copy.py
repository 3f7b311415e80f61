"""Non-temporal copies, for results that are too large to stay in the caches until they are read.

A store into a line that no cache has makes the core read the line first, and puts something else out of the cache: of a copy
of some megabytes a third of what is moved is moved for nothing. Stores that are marked so write whole lines into memory.
"""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target

CHUNK_NBYTES = 1 << 15
_TOGETHER = 4  # vectors between two looks at the count


def passes_caches(target: Target) -> bool:
    """Whether such stores are worth a kernel of their own."""
    return target.arch == "x86_64"


def copy_either(body: Body, past_caches: Value | None, large: Value, source: Value, to: Value, nbytes: Value) -> None:
    """Copy past the caches by `copy_function` where that is there and `large`, else through them; the former requires a `fence`
    behind all of them."""
    if past_caches is None:
        body.copy(source, to, nbytes)
        return
    with body.either(large) as (around, through):
        with around:
            body.b.call(past_caches, [source, to, nbytes])
        with through:
            body.copy(source, to, nbytes)


def copy_function(module: Module, target: Target) -> Value:
    """An internal function (ptr source, ptr target, i64 nbytes); behind the last one `fence` is needed."""
    body = module.function("copy_past_caches", ("p", "p", "i"))
    source, to, nbytes = body.args
    lanes = target.vector_bytes // 4
    vector, mark = ir_builder.VectorType(ir_builder.FloatType(), lanes), module.ir.node("!{i32 1}")
    misaligned = body.b.and_(body.b.ptrtoint(to, ir_builder.IntType(64)), body.i(target.vector_bytes - 1))
    head = body.min(body.select(body.equal(misaligned, 0), 0, body.sub(target.vector_bytes, misaligned)), nbytes)
    body.copy(source, to, head)
    rest = body.sub(nbytes, head)
    step = _TOGETHER * target.vector_bytes
    whole = body.sub(rest, body.rem(rest, step))
    first, aligned = body.at(source, head), body.at(to, head)
    with body.loop(0, whole, step) as i:
        places = [body.add(i, k * target.vector_bytes) for k in range(_TOGETHER)]
        values = [body.b.load(body.at(first, place), typ=vector, align=1) for place in places]
        for place, value in zip(places, values, strict=True):
            body.b.store(value, body.at(aligned, place), align=target.vector_bytes, nontemporal=mark)
    body.copy(body.at(first, whole), body.at(aligned, whole), body.sub(rest, whole))
    body.b.ret_void()
    return body.function


def fence(body: Body) -> None:
    """Nothing that is written later is seen before what was written past the caches."""
    body.b.call(body.intrinsic("llvm.x86.sse.sfence", ir_builder.VoidType(), []), [])


@functools.cache
def joined_text(target: Target, parts: int) -> KernelText:
    """Dense rows of some tensors one behind the other: addresses of the parts, of the result; then rows, bytes of all of it,
    from how many on it passes by the caches, and the bytes of a row of each part.

    A thread has some whole rows and parts of rows that follow each other, as those have who read them by heads.
    """
    module = Module(target)
    past_caches = copy_function(module, target)
    body = module.kernel()
    args, tid, nthreads = body.args
    sources = [body.load_pointer(args, i) for i in range(parts)]
    out = body.load_pointer(args, parts)
    rows, total, least = (body.load_i64(args, parts + 1 + i) for i in range(3))
    widths = [body.load_i64(args, parts + 4 + i) for i in range(parts)]
    pitch = functools.reduce(body.add, widths)
    large = body.b.icmp_signed(">=", total, least)
    offset: Value = body.i(0)
    for source, width in zip(sources, widths, strict=True):
        chunks = body.div(body.add(width, CHUNK_NBYTES - 1), CHUNK_NBYTES)
        first, last = body.share(body.mul(rows, chunks), tid, nthreads)
        with body.loop(first, last) as unit:
            row, begin = body.div(unit, chunks), body.mul(body.rem(unit, chunks), CHUNK_NBYTES)
            count = body.min(body.sub(width, begin), CHUNK_NBYTES)
            given = body.at(source, body.mul(row, width), begin)
            to = body.at(out, body.mul(row, pitch), offset, begin)
            with body.either(large) as (around, through):
                with around:
                    body.b.call(past_caches, [given, to, count])
                with through:
                    body.copy(given, to, count)
        offset = body.add(offset, width)
    with body.when(large):
        fence(body)
    body.b.ret_void()
    return module.text("joined")
