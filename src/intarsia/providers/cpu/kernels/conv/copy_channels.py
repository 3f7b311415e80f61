"""Copies an image's channels among those of a wider one, channels-last."""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Module
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common.element_size import itemsize

_FOUR = 4  # vectors at once


@functools.cache
def copy_text(dtype: DType, target: Target) -> KernelText:
    """The kernel for FLOAT or DOUBLE; its arguments are `copy_args`."""
    module = Module(target)
    body = module.kernel()
    lanes, size = module.lanes(dtype), itemsize(dtype)
    args, tid, nthreads = body.args
    source, out = body.load_pointer(args, 0), body.load_pointer(args, 1)
    pixels, channels, source_pixel, out_pixel = (body.load_i64(args, 2 + i) for i in range(4))
    first, last = body.share(pixels, tid, nthreads)
    many = body.mul(body.div(channels, _FOUR * lanes), _FOUR * lanes)
    with body.loop(first, last) as i:
        read, written = body.at(source, body.mul(i, source_pixel)), body.at(out, body.mul(i, out_pixel))
        with body.loop(0, many, _FOUR * lanes) as c:
            at = [body.add(body.mul(c, size), j * lanes * size) for j in range(_FOUR)]
            for offset, value in [(offset, body.load(body.at(read, offset), dtype, lanes)) for offset in at]:
                body.store(value, body.at(written, offset), dtype)
        with body.loop(many, channels, lanes) as c:
            offset, mask = body.mul(c, size), body.mask(body.sub(channels, c), lanes)
            body.store_masked(
                body.load_masked(body.at(read, offset), mask, dtype, lanes), body.at(written, offset), mask, dtype
            )
    body.b.ret_void()
    return module.text("channels")


def copy_args(
    source: Address, out: Address, *, pixels: int, channels: int, source_pixel: int, out_pixel: int
) -> list[Argument]:
    """Addresses of the first channels, how many pixels of how many channels, and the bytes between pixels."""
    return [source, out, pixels, channels, source_pixel, out_pixel]
