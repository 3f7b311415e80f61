"""Transposes of a few long rows into neighbouring elements, and back: the channels of an image, groups of channels.

    join: y[outer, i, r] = x[outer, r, i]        part: y[outer, r, i] = x[outer, i, r]        r < FEW

where rows are contiguous on one side and pixels (the elements of all rows at one `i`) on the other. As many vectors as there
are rows are loaded, mixed by shuffles of two and stored; masks cut the last ones. A unit of work is a piece of the rows, for
some steps along the last outer axis.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, number_of, product
from intarsia.graph.trace import most
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.movement.transpose_kernel import (
    CARRIERS,
    MAX_OUTER,
    Moved,
    outer_axes,
    square_of,
    strides_of,
)

FEW = range(2, 9)  # rows: of more, squares waste little
_LEAST_NBYTES = 64  # of a row
_PIECE = 2048  # elements of a row in a unit of work, at most and about
_FIELDS = (
    "x y count long_nbytes pieces steps chunks units " + " ".join(f"size{i} x_stride{i} y_stride{i}" for i in range(MAX_OUTER))
).split()


@dataclass(frozen=True)
class Interleave:
    """Which transpose it is: `rows` rows of elements of `itemsize` bytes; `joins`: rows are the input's."""

    rows: int
    itemsize: int
    joins: bool


def interleave(shape: Sequence[Dim], perm: Sequence[int], how: Moved, itemsize: int) -> Interleave | None:
    """The transpose as one of these; None where it is none, or rows are shorter than a vector."""
    longer = [i for i, d in enumerate(shape) if d != 1]
    made = [p for p in perm if shape[p] != 1]
    row, column = (product(shape[axis] for axis in axes) for axes in (how.row, how.column))
    if row in FEW and made.index(how.row[0]) == made.index(how.column[-1]) + 1:
        found, count = Interleave(number_of(row), itemsize, True), column
    elif column in FEW and longer.index(how.column[0]) == longer.index(how.row[-1]) + 1:
        found, count = Interleave(number_of(column), itemsize, False), row
    else:
        return None
    return found if not isinstance(count, int) or count * itemsize >= _LEAST_NBYTES else None


def interleave_args(
    spec: Interleave, shape: Sequence[int], perm: Sequence[int], how: Moved, *, x: Address, y: Address
) -> list[Argument]:  # fmt: skip
    """The kernel's arguments: the addresses of the dense tensors, sizes, and strides in bytes."""
    x_strides, y_strides = strides_of(shape, perm, spec.itemsize)
    long = how.column if spec.joins else how.row
    count = math.prod(shape[axis] for axis in long)
    long_nbytes = x_strides[how.row[-1]] if spec.joins else y_strides[how.column[-1]]
    outer = outer_axes(shape, how, x_strides, y_strides)
    pieces = -(-count // _PIECE)
    last = outer[-1][0]
    steps = most(1, _PIECE // most(1, count))
    chunks = -(-last // steps)
    units = pieces * chunks * math.prod(size for size, _, _ in outer[:-1])
    return [x, y, count, long_nbytes, pieces, steps, chunks, units, *(n for axis in outer for n in axis)]


@functools.lru_cache(maxsize=64)
def kernel_text(spec: Interleave, target: Target) -> KernelText:
    """The kernel of a spec; its arguments are `interleave_args`."""
    return _Rows(spec, target).text()


class _Rows:
    def __init__(self, spec: Interleave, target: Target) -> None:
        self.spec, self.dtype = spec, CARRIERS[spec.itemsize]
        self.module = Module(target)
        self.lanes = square_of(spec.itemsize, target)
        self.body: Body = self.module.kernel()

    def text(self) -> KernelText:
        body, lanes = self.body, self.lanes
        args, tid, nthreads = body.args
        v = {name: body.load_i64(args, i) for i, name in enumerate(_FIELDS)}
        self.v = v
        rest = body.rem(v["count"], lanes)
        self.long_mask = body.mask(rest, lanes)
        self.masks = [body.mask(body.sub(body.mul(rest, self.spec.rows), i * lanes), lanes) for i in range(self.spec.rows)]
        first, last = body.share(v["units"], tid, nthreads)
        with body.loop(first, last) as unit:
            left, piece = body.div(unit, v["pieces"]), body.rem(unit, v["pieces"])
            left, chunk = body.div(left, v["chunks"]), body.rem(left, v["chunks"])
            x, y = body.pointer(v["x"]), body.pointer(v["y"])
            for i in reversed(range(MAX_OUTER - 1)):
                index = body.rem(left, v[f"size{i}"]) if i else left
                left = body.div(left, v[f"size{i}"])
                x, y = body.at(x, body.mul(index, v[f"x_stride{i}"])), body.at(y, body.mul(index, v[f"y_stride{i}"]))
            begin, inner = body.mul(piece, _PIECE), MAX_OUTER - 1
            end = body.min(body.add(begin, _PIECE), v["count"])
            step = body.mul(chunk, v["steps"])
            with body.loop(step, body.min(body.add(step, v["steps"]), v[f"size{inner}"])) as i:
                place = body.at(x, body.mul(i, v[f"x_stride{inner}"])), body.at(y, body.mul(i, v[f"y_stride{inner}"]))
                whole = body.sub(end, body.rem(body.sub(end, begin), lanes))
                with body.loop(begin, whole, lanes) as at:
                    self._vectors(*place, at, False)
                with body.when(body.less(whole, end)):
                    self._vectors(*place, whole, True)
        body.b.ret_void()
        return self.module.text("join" if self.spec.joins else "part")

    def _vectors(self, x: Value, y: Value, at: Value, masked: bool) -> None:
        """So many pixels from `at` on as a vector has lanes, or the last ones."""
        body, lanes, rows, size = self.body, self.lanes, range(self.spec.rows), self.spec.itemsize
        long, pixels = (x, y) if self.spec.joins else (y, x)
        along = [body.at(long, body.mul(self.v["long_nbytes"], r), body.mul(at, size)) for r in rows]
        across = [body.at(pixels, body.mul(at, self.spec.rows * size), i * lanes * size) for i in rows]
        sources, targets = (along, across) if self.spec.joins else (across, along)
        masks = [[self.long_mask] * len(rows), self.masks] if masked else [[None] * len(rows)] * 2
        reading, writing = masks if self.spec.joins else masks[::-1]
        loaded = [
            body.load(place, self.dtype, lanes) if mask is None else body.load_masked(place, mask, self.dtype, lanes)
            for place, mask in zip(sources, reading, strict=True)
        ]
        for index, (place, mask) in enumerate(zip(targets, writing, strict=True)):
            value = self._mixed(loaded, [self._origin(index, lane) for lane in range(lanes)])
            if mask is None:
                body.store(value, place, self.dtype)
            else:
                body.store_masked(value, place, mask, self.dtype)

    def _origin(self, vector: int, lane: int) -> tuple[int, int]:
        """Of a lane that is stored: the vector and lane that it was loaded in."""
        if self.spec.joins:
            pixel, row = divmod(vector * self.lanes + lane, self.spec.rows)
            return row, pixel
        return divmod(lane * self.spec.rows + vector, self.lanes)

    def _mixed(self, vectors: Sequence[Value], origins: Sequence[tuple[int, int]]) -> Value:
        used = sorted({vector for vector, _ in origins})
        value, there = vectors[used[0]], {i: lane for i, (v, lane) in enumerate(origins) if v == used[0]}
        for other in used[1:] or used:
            picks = [there[i] if i in there else self.lanes + lane if v == other else i for i, (v, lane) in enumerate(origins)]
            value = self.body.shuffle(value, vectors[other], picks)
            there = {i: i for i, (v, _) in enumerate(origins) if i in there or v == other}
        return value
