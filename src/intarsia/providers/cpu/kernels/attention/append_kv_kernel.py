"""Appends this call's keys and values to those of earlier calls, for each head."""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Module
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.providers.cpu.kernels.common.nontemporal_copy import copy_either, copy_function, fence, passes_caches


@functools.cache
def kernel_text(target: Target) -> KernelText:
    """The step out[b, h] = past[b, h] rows, then fresh[b, h] rows, for dense `past` and `out`; see
    `attention_arguments.append_args`."""
    module = Module(target)
    past_caches = copy_function(module, target) if passes_caches(target) else None
    body = module.kernel()
    args, tid, nthreads = body.args
    past, fresh, out = (body.load_pointer(args, i) for i in range(3))
    batch, heads, past_nbytes, rows, row_nbytes = (body.load_i64(args, i) for i in range(3, 8))
    fresh_batch, fresh_head, fresh_row = (body.load_i64(args, i) for i in range(8, 11))
    total = body.mul(body.mul(batch, heads), body.add(past_nbytes, body.mul(rows, row_nbytes)))
    large = body.b.icmp_signed(">=", total, body.load_i64(args, 11))
    first, last = body.share(body.mul(batch, heads), tid, nthreads)
    with body.loop(first, last) as unit:
        entry, head = body.div(unit, heads), body.rem(unit, heads)
        target_rows = body.at(out, body.mul(unit, body.add(past_nbytes, body.mul(rows, row_nbytes))))
        given = body.at(past, body.mul(unit, past_nbytes))
        copy_either(body, past_caches, large, given, target_rows, past_nbytes)
        source = body.at(fresh, body.mul(entry, fresh_batch), body.mul(head, fresh_head))
        target_rows = body.at(target_rows, past_nbytes)
        with body.loop(0, rows) as i:
            body.copy(body.at(source, body.mul(i, fresh_row)), body.at(target_rows, body.mul(i, row_nbytes)), row_nbytes)
    if past_caches is not None:
        with body.when(large):
            fence(body)
    body.b.ret_void()
    return module.text("append")
