"""Copies an image of an odd number of channels, as bfloat16, into one with a border and a channel of zeros more.

So its pixels are whole words of two bfloat16, whatever the windows that read them (`kernels.matmul.bfloat16_rows`).
"""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.conv.implicit_gemm import border_args
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape
from intarsia.providers.cpu.kernels.matmul.vnni_layout import LINE_WORDS, rounded_pairs

_FIELDS = (
    "batch planes height width channels plane0 line0 column0 out_planes out_height out_width".split()
)  # of `conv.border_args`, behind both addresses


@functools.cache
def pair_border_text(source: DType, target: Target) -> KernelText:
    """The step for an image [N, spatial..., C] of FLOAT or BFLOAT16; its arguments are `pair_border_args`."""
    module = Module(target)
    body = module.kernel()
    args, tid, nthreads = body.args
    image, out = body.load_pointer(args, 0), body.load_pointer(args, 1)
    v = {name: body.load_i64(args, 2 + i) for i, name in enumerate(_FIELDS)}
    even = body.mul(body.div(body.add(v["channels"], 1), 2), 2)
    pixel, out_pixel = body.mul(v["channels"], itemsize(source)), body.mul(even, 2)
    line_nbytes = body.mul(v["out_width"], out_pixel)
    planes, lines = v["out_planes"], v["out_height"]
    first, last = body.share(body.mul(body.mul(v["batch"], planes), lines), tid, nthreads)
    with body.loop(first, last) as unit:
        to = body.at(out, body.mul(unit, line_nbytes))
        line = body.sub(body.rem(unit, lines), v["line0"])
        above = body.div(unit, lines)
        plane = body.sub(body.rem(above, planes), v["plane0"])
        body.fill_zero(to, line_nbytes)
        inside = body.b.and_(body.b.icmp_unsigned("<", plane, v["planes"]), body.b.icmp_unsigned("<", line, v["height"]))
        with body.when(inside):
            row = body.add(body.mul(body.add(body.mul(body.div(above, planes), v["planes"]), plane), v["height"]), line)
            here = body.at(image, body.mul(body.mul(row, v["width"]), pixel))
            there = body.at(to, body.mul(v["column0"], out_pixel))
            with body.loop(0, v["channels"], LINE_WORDS) as c:
                found = body.mask(body.sub(v["channels"], c), LINE_WORDS)
                written = body.mask(body.sub(even, c), LINE_WORDS)
                with body.loop(0, v["width"]) as w:
                    place = body.at(here, body.mul(w, pixel), body.mul(c, itemsize(source)))
                    numbers = _rounded(body, body.load_masked(place, found, source, LINE_WORDS), source)
                    place = body.at(there, body.mul(w, out_pixel), body.mul(c, 2))
                    body.store_masked(numbers, place, written, DType.BFLOAT16)
    body.b.ret_void()
    return module.text("pair_border")


def _rounded(body: Body, numbers: Value, source: DType) -> Value:
    if source is DType.BFLOAT16:
        return numbers
    both = rounded_pairs(body, numbers, numbers)
    return body.shuffle(both, both, range(LINE_WORDS))


def pair_border_args(shape: ConvShape, source: Address, out: Address) -> list[Argument]:
    """Addresses of the input and of its copy, dense [N, *shape.padded, C + 1], for `shape` of C channels."""
    return border_args(shape, source, out)
