"""Convolutions in channels-last layout as products with displaced rows: X [N, (D, H,) W, C], Y [N, (OD, OH,) OW, M].

Row (n, d, h, w) of the product is output pixel (n, d, h, w). Its A row begins at the window's first input pixel; the window's
other pixels are the product's taps. Along W the window's `kw * C` numbers are contiguous (dilation 1, one group), so they are
one long row and only `kd * kh` taps remain. Nothing is copied but an input that needs a border, which a padding step writes.

The kernel is `gemm.kernel_text(GemmSpec(dtype, "packed", epilogue), target)`: sizes, kernel shapes, strides and dilations are
all arguments. Groups are batches; narrow groups are merged into block-diagonal ones until they fill a vector.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from intarsia.codegen.builder.kernel_body import Module
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.conv.window_products import (
    ConvShape,
    dense_groups,
    merged_groups,
)
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import BYTES
from intarsia.providers.cpu.kernels.matmul_int8.pack_int8 import pack_byte_pairs, pack_bytes


def pack_byte_weights(weights: np.ndarray, group: int, tile: Tile, long_rows: bool, in_words: bool = False) -> np.ndarray:
    """As `pack_weights`, of int8 [parts, M, C / group, *kernel], whose parts are added; `long_rows` and `in_words`: see
    `displacements`."""
    parts, filters, depth = weights.shape[:3]
    merge = merged_groups(filters, group, tile)
    each, groups, count = filters // group, group // merge, math.prod(weights.shape[3:])
    taps = count // weights.shape[-1] if long_rows else count
    dense = np.stack([dense_groups(part, group, merge) for part in weights], 1)
    pack = pack_byte_pairs if in_words else pack_bytes
    return pack(dense.reshape(groups, parts * taps, count // taps * merge * depth, merge * each), tile)


def byte_matrix(weights: np.ndarray, long_rows: bool) -> np.ndarray:
    """Weights [M, C, *kernel] of one group as [taps, K, M]; `long_rows`: see `displacements`."""
    filters, count = len(weights), math.prod(weights.shape[2:])
    taps = count // weights.shape[-1] if long_rows else count
    return dense_groups(weights, 1, 1).reshape(taps, -1, filters)


# --- the border ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BorderSpec:
    """Copy an image into one with a border of zeros, or for bytes of any number.

    `channels_first`: the source is [N, C, ...], the copy channels-last.
    """

    dtype: DType
    channels_first: bool = False


@functools.cache
def border_text(spec: BorderSpec, target: Target) -> KernelText:
    """The step that writes an input with its border; see `border_args`."""
    module = Module(target)
    body = module.kernel()
    args, tid, nthreads = body.args
    size = itemsize(spec.dtype)
    source, out = body.load_pointer(args, 0), body.load_pointer(args, 1)
    batch, planes, height, width, channels, plane0, line0, column0, out_planes, out_height, out_width = (
        body.load_i64(args, 2 + i) for i in range(11)
    )
    pixel = body.mul(channels, size)
    number = body.b.load(body.load_pointer(args, 13), typ=ir_builder.IntType(8)) if spec.dtype in BYTES else None
    line_nbytes = body.mul(width, pixel)
    out_line_nbytes = body.mul(out_width, pixel)
    left = body.mul(column0, pixel)
    right = body.sub(body.sub(out_line_nbytes, left), line_nbytes)
    first, last = body.share(body.mul(body.mul(batch, out_planes), out_height), tid, nthreads)
    with body.loop(first, last) as unit:
        target_line = body.at(out, body.mul(unit, out_line_nbytes))
        image, within = body.div(unit, body.mul(out_planes, out_height)), body.rem(unit, body.mul(out_planes, out_height))
        plane = body.sub(body.div(within, out_height), plane0)
        line = body.sub(body.rem(within, out_height), line0)
        inside = body.b.and_(body.b.icmp_unsigned("<", plane, planes), body.b.icmp_unsigned("<", line, height))
        with body.either(inside) as (copied, empty):
            with copied:
                body.fill(target_line, left, number)
                begin = body.at(target_line, left)
                if spec.channels_first:
                    area = body.mul(body.mul(planes, height), width)
                    origin = body.add(
                        body.mul(body.mul(image, channels), area), body.mul(body.add(body.mul(plane, height), line), width)
                    )
                    with body.loop(0, channels) as c:
                        row = body.at(source, body.mul(body.add(origin, body.mul(c, area)), size))
                        to = body.at(begin, body.mul(c, size))
                        with body.loop(0, width) as w:
                            value = body.load(body.at(row, body.mul(w, size)), spec.dtype, 1)
                            body.store(value, body.at(to, body.mul(w, pixel)), spec.dtype)
                else:
                    row_index = body.add(body.mul(body.add(body.mul(image, planes), plane), height), line)
                    body.copy(body.at(source, body.mul(row_index, line_nbytes)), begin, line_nbytes)
                body.fill(body.at(begin, line_nbytes), right, number)
            with empty:
                body.fill(target_line, out_line_nbytes, number)
    body.b.ret_void()
    return module.text("border")


def border_args(shape: ConvShape, source: Address, out: Address, number: Address = 0) -> list[Argument]:
    """The border step's arguments: addresses of the input and of its copy, dense [N, *shape.padded, C].

    `number` is the address of the byte that fills the border of an image of bytes.
    """
    s = shape.as_3d()
    return [source, out, s.batch, *s.spatial, s.channels, *s.pads[:3], *s.padded, number]


# --- pixels that strides meet -------------------------------------------------------------------------------------


@functools.cache
def picking_text(target: Target) -> KernelText:
    """The step that copies the pixels that a pointwise convolution with strides sees; see `picking_args`."""
    module = Module(target)
    body = module.kernel()
    args, tid, nthreads = body.args
    source, out = body.load_pointer(args, 0), body.load_pointer(args, 1)
    batch, planes, lines, pixels, image, plane, line, step, nbytes = (body.load_i64(args, 2 + i) for i in range(9))
    first, last = body.share(body.mul(body.mul(batch, planes), lines), tid, nthreads)
    with body.loop(first, last) as unit:
        rest, at = body.div(unit, lines), body.rem(unit, lines)
        moved = (body.div(rest, planes), image), (body.rem(rest, planes), plane), (at, line)
        begin = body.at(source, *(body.mul(number, each) for number, each in moved))
        target_line = body.at(out, body.mul(unit, body.mul(pixels, nbytes)))
        with body.loop(0, pixels) as pixel:
            body.copy(body.at(begin, body.mul(pixel, step)), body.at(target_line, body.mul(pixel, nbytes)), nbytes)
    body.b.ret_void()
    return module.text("picking")


def picking_args(shape: ConvShape, dtype: DType, source: Address, out: Address) -> list[Argument]:
    """The arguments of `picking_text`: addresses of the input and of its copy, dense [N, *shape.output, C]."""
    s = shape.as_3d()
    nbytes = s.channels * itemsize(dtype)
    line = nbytes * s.spatial[2]
    plane = line * s.spatial[1]
    steps = plane * s.strides[0], line * s.strides[1], nbytes * s.strides[2]
    return [source, out, s.batch, *s.output, plane * s.spatial[0], *steps, nbytes]
