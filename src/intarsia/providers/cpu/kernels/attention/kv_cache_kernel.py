"""Writes rows into a cache of keys or values: earlier rows stay where they were, this call's follow them."""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Module
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.providers.cpu.kernels.common.nontemporal_copy import (
    CHUNK_NBYTES,
    copy_either,
    copy_function,
    fence,
    passes_caches,
)


@functools.cache
def cache_rows_text(target: Target) -> KernelText:
    """Addresses of the past [heads, past rows, row], of the new rows [heads, steps, row], of how many rows there are then
    (int64 [heads / groups]) and of the result [heads, capacity, row]; then heads, groups, past rows, steps, capacity, bytes
    of a row, and from how many bytes on the result passes by the caches.

    New rows end where the count says; before and behind them are those of the past, and where the past has none those of the
    new rows (zeros where there are none), which nobody reads. Where the result lies in the memory of the past, that is left as
    it is.
    """
    module = Module(target)
    past_caches = copy_function(module, target) if passes_caches(target) else None
    body = module.kernel()
    args, tid, nthreads = body.args
    past, new, counts, out = (body.load_pointer(args, i) for i in range(4))
    heads, groups, had, steps, capacity, row, streamed = (body.load_i64(args, 4 + i) for i in range(7))
    chunk = body.max(body.div(body.i(CHUNK_NBYTES), body.max(row, 1)), 1)
    chunks = body.div(body.add(capacity, body.sub(chunk, 1)), chunk)
    moves = body.b.icmp_unsigned("!=", past, out)
    first, last = body.share(body.mul(heads, chunks), tid, nthreads)
    large = body.b.icmp_signed(">=", body.mul(body.mul(heads, capacity), row), streamed)
    with body.loop(first, last) as unit:
        head, begin = body.div(unit, chunks), body.mul(body.rem(unit, chunks), chunk)
        end = body.min(body.add(begin, chunk), capacity)
        before = body.sub(body.load_i64(counts, body.div(head, groups)), steps)
        behind = body.add(before, steps)
        olds, news = body.at(past, body.mul(body.mul(head, had), row)), body.at(new, body.mul(body.mul(head, steps), row))
        to = body.at(out, body.mul(body.mul(head, capacity), row))
        retained = body.min(end, had)
        with body.when(moves):
            for low, high in ((begin, body.min(retained, before)), (body.max(begin, behind), retained)):
                with body.when(body.less(low, high)):
                    place, nbytes = body.mul(low, row), body.mul(body.sub(high, low), row)
                    copy_either(body, past_caches, large, body.at(olds, place), body.at(to, place), nbytes)
        low, high = body.max(begin, before), body.min(end, behind)
        with body.when(body.less(low, high)):
            source = body.at(news, body.mul(body.sub(low, before), row))
            body.copy(source, body.at(to, body.mul(low, row)), body.mul(body.sub(high, low), row))
        with body.loop(body.max(begin, had), end) as place:
            away = body.b.or_(body.less(place, before), body.b.icmp_signed(">=", place, behind))
            with body.when(away), body.either(body.less(0, steps)) as (some, none):
                with some:
                    source = body.at(news, body.mul(body.min(body.sub(place, had), body.sub(steps, 1)), row))
                    body.copy(source, body.at(to, body.mul(place, row)), row)
                with none:
                    body.fill(body.at(to, body.mul(place, row)), row)
    if past_caches is not None:
        with body.when(large):
            fence(body)
    body.b.ret_void()
    return module.text("cache_rows")
