"""Packs dynamic filters of a convolution in the run: ONNX's [M, C / group, *kernel] as panels.

Each vector of filters is a transposition in registers whose rows go where a table says: the same step serves
`pointwise_kernel.rows_text`, `line_buffer_kernel.window_text` and `depthwise`.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from intarsia.codegen.builder.kernel_body import Module
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common.pack_b import transposed
from intarsia.providers.cpu.kernels.common.panels import packed_nbytes
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.conv.line_buffer_kernel import padded_channels
from intarsia.providers.cpu.kernels.conv.pointwise_kernel import LINE

_FIELDS = "source packed places depth steps filters groups width group_nbytes".split()


@functools.lru_cache(maxsize=256)
def window_places(channels: int, taps: int, itemsize: int) -> np.ndarray:
    """Which step of a panel of `line_buffer_kernel.pack_windows` each number of a filter [channels, taps] is, int64."""
    each, padded = LINE // itemsize, padded_channels(channels)
    channel, tap = np.arange(channels)[:, None], np.arange(taps)
    first = channel // each * each
    return (first * taps + tap * np.minimum(each, padded - first) + channel - first).reshape(-1)


@functools.lru_cache(maxsize=256)
def same_places(depth: int) -> np.ndarray:
    """As they are: `depth` numbers of each filter, int64."""
    return np.arange(depth)


@functools.cache
def pack_filters_text(dtype: DType, target: Target) -> KernelText:
    """The step that packs; see `pack_filters_args`."""
    module = Module(target)
    body = module.kernel()
    lanes, size = module.lanes(dtype), dtype.bits // 8
    args, tid, nthreads = body.args
    pointers = ("source", "packed", "places")
    v = {n: body.load_pointer(args, i) if n in pointers else body.load_i64(args, i) for i, n in enumerate(_FIELDS)}
    vectors = body.div(body.add(v["filters"], lanes - 1), lanes)
    ld, whole = body.mul(v["depth"], size), body.mul(body.div(v["depth"], lanes), lanes)
    first, last = body.share(body.mul(v["groups"], vectors), tid, nthreads)
    with body.loop(first, last) as unit:
        group, vector = body.div(unit, vectors), body.rem(unit, vectors)
        filter_ = body.mul(vector, lanes)
        panel = body.div(filter_, v["width"])
        column = body.mul(panel, v["width"])
        row_nbytes = body.mul(body.min(v["width"], body.sub(body.mul(vectors, lanes), column)), size)
        out = body.at(v["packed"], body.mul(group, v["group_nbytes"]), body.mul(column, body.mul(v["steps"], size)))
        out = body.at(out, body.mul(body.sub(filter_, column), size))
        with body.when(body.less(v["depth"], v["steps"])), body.loop(0, v["steps"]) as step:
            body.store(body.zero(dtype, lanes), body.at(out, body.mul(step, row_nbytes)), dtype)
        base = body.mul(group, v["filters"])
        last_filter = body.sub(v["filters"], 1)  # columns beyond it repeat it: nothing is stored of their sums
        rows = [
            body.at(v["source"], body.mul(body.add(base, body.min(body.add(filter_, i), last_filter)), ld))
            for i in range(lanes)
        ]
        with body.loop(0, whole, lanes) as p:
            block = transposed(body, [body.load(body.at(row, body.mul(p, size)), dtype, lanes) for row in rows])
            for i, value in enumerate(block):
                place = body.load_i64(v["places"], body.add(p, i))
                body.store(value, body.at(out, body.mul(place, row_nbytes)), dtype)
        with body.loop(whole, v["depth"]) as p:
            to = body.at(out, body.mul(body.load_i64(v["places"], p), row_nbytes))
            for i, row in enumerate(rows):
                body.store(body.load(body.at(row, body.mul(p, size)), dtype, 1), body.at(to, i * size), dtype)
    body.b.ret_void()
    return module.text("pack_filters")


def pack_filters_args(
    *, source: Address, packed: Address, places: np.ndarray, steps: int, filters: int, groups: int, width: int, tile: Tile
) -> list[Argument]:
    """The step's arguments. `filters` of each of `groups`, numbers of each filter as many as `places` has, in panels of `width`
    columns and so many `steps`, of which those that no place names are zeros."""
    nbytes = packed_nbytes(steps, filters, tile)
    return [source, packed, places, len(places), steps, filters, groups, width, nbytes]


def packed_elements(steps: int, filters: int, groups: int, tile: Tile) -> int:
    return groups * packed_nbytes(steps, filters, tile) // tile.itemsize


def window_steps(channels: int, kernel: tuple[int, ...]) -> int:
    """Steps of a panel of `line_buffer_kernel.pack_windows`."""
    return padded_channels(channels) * math.prod(kernel)
