"""Transposes that move the innermost axis, in squares of vectors.

After merging axes that stay neighbours, an element is at [outer..., row, column] where columns are contiguous in the input
and rows in the output. A unit of work is a block of rows and columns, small enough for its lines of both tensors to stay in
the first-level cache; inside it a square of vectors is loaded, transposed in registers and stored. The last square of a
block's row or column is moved back so that it ends at the edge; where an axis is shorter than a square, masks cut it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common.pack_b import transposed

MAX_OUTER = 4
ITEMSIZES = (1, 2, 4, 8)
CARRIERS = {1: DType.UINT8, 2: DType.UINT16, 4: DType.UINT32, 8: DType.UINT64}
_MAX_SQUARE = 16
_BLOCK_NBYTES = 256  # of a block along both axes
_FIELDS = (
    "x y rows columns row_stride column_stride row_blocks column_blocks units "
    + " ".join(f"size{i} x_stride{i} y_stride{i}" for i in range(MAX_OUTER))
).split()


@dataclass(frozen=True)
class Moved:
    """A transpose with merged axes, as tuples of axes of its input.

    Attributes:
        row: axes that become the output's innermost one.
        column: axes that are the input's innermost one.
        outer: the others, in the output's order.
    """

    row: tuple[int, ...]
    column: tuple[int, ...]
    outer: tuple[tuple[int, ...], ...]


def moved(shape: Sequence[Dim], perm: Sequence[int]) -> Moved | None:
    """How the innermost axis moves, or None where it stays (axes of size 1 aside) or more than MAX_OUTER others are left."""
    longer = [i for i, d in enumerate(shape) if d != 1]
    runs: list[tuple[int, ...]] = []
    for axis in (p for p in perm if shape[p] != 1):
        if runs and longer.index(axis) == longer.index(runs[-1][-1]) + 1:
            runs[-1] = (*runs[-1], axis)
        else:
            runs.append((axis,))
    if not runs or runs[-1][-1] == longer[-1] or len(runs) > MAX_OUTER + 2:
        return None
    column = next(r for r in runs if r[-1] == longer[-1])
    return Moved(runs[-1], column, tuple(r for r in runs[:-1] if r is not column))


def square_of(itemsize: int, target: Target) -> int:
    """Elements along a side of the square that is transposed in registers."""
    return min(_MAX_SQUARE, target.vector_bytes // itemsize)


def transpose_args(
    target: Target, itemsize: int, shape: Sequence[int], perm: Sequence[int], how: Moved, *, x: Address, y: Address
) -> list[Argument]:
    """The kernel's arguments: addresses of the dense tensors, and sizes and strides in bytes for the merged axes."""
    x_strides, y_strides = strides_of(shape, perm, itemsize)
    rows, columns = (math.prod(shape[axis] for axis in axes) for axes in (how.row, how.column))
    block = max(square_of(itemsize, target), _BLOCK_NBYTES // itemsize)
    row_blocks, column_blocks = -(-rows // block), -(-columns // block)
    outer = outer_axes(shape, how, x_strides, y_strides)
    units = row_blocks * column_blocks
    for count, _, _ in outer:
        units *= count
    flat = [n for axis in outer for n in axis]
    return [x, y, rows, columns, x_strides[how.row[-1]], y_strides[how.column[-1]], row_blocks, column_blocks, units, *flat]


def strides_of(shape: Sequence[int], perm: Sequence[int], itemsize: int) -> tuple[list[int], list[int]]:
    """Bytes between elements along the input's axes, in the input and in the output."""
    x_strides, y_strides = _strides(shape, itemsize), [0] * len(perm)
    for axis, stride in zip(perm, _strides([shape[p] for p in perm], itemsize), strict=True):
        y_strides[axis] = stride
    return x_strides, y_strides


def outer_axes(
    shape: Sequence[int], how: Moved, x_strides: Sequence[int], y_strides: Sequence[int]
) -> list[tuple[int, int, int]]:
    """MAX_OUTER axes around, as sizes and strides; those in front are of size 1."""
    outer = [(math.prod(shape[axis] for axis in axes), x_strides[axes[-1]], y_strides[axes[-1]]) for axes in how.outer]
    return [(1, 0, 0)] * (MAX_OUTER - len(outer)) + outer


def _strides(shape: Sequence[int], itemsize: int) -> list[int]:
    strides, step = [], itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return strides[::-1]


@functools.lru_cache(maxsize=32)
def kernel_text(itemsize: int, target: Target) -> KernelText:
    """The kernel for elements of `itemsize` bytes (1, 2, 4 or 8); its arguments are `transpose_args`."""
    if itemsize not in ITEMSIZES:
        raise ValueError(f"itemsize is one of 1, 2, 4, 8; got {itemsize}")
    return _Transpose(itemsize, target).text()


class _Transpose:
    def __init__(self, itemsize: int, target: Target) -> None:
        self.itemsize, self.dtype = itemsize, CARRIERS[itemsize]
        self.module = Module(target)
        self.side = square_of(itemsize, target)
        self.block = max(self.side, _BLOCK_NBYTES // itemsize)
        self.square = self._square()
        self.cut = self._cut()
        self.body: Body = self.module.kernel()

    def _square(self) -> Any:
        """An internal function (ptr x, i64 row_stride, ptr y, i64 column_stride) for one whole square."""
        body = self.module.function("square", ("p", "i", "p", "i"))
        x, row_stride, y, column_stride = body.args
        rows = [body.load(body.at(x, body.mul(row_stride, i)), self.dtype, self.side) for i in range(self.side)]
        for j, column in enumerate(transposed(body, rows)):
            body.store(column, body.at(y, body.mul(column_stride, j)), self.dtype)
        body.b.ret_void()
        return body.function

    def _cut(self) -> Any:
        """The same with (i64 rows, i64 columns) behind: the part of a square that there is, at least 1 x 1."""
        body = self.module.function("cut_square", ("p", "i", "p", "i", "i", "i"))
        x, row_stride, y, column_stride, rows, columns = body.args
        across, down = body.mask(columns, self.side), body.mask(rows, self.side)
        last = body.sub(rows, 1)
        lines = [body.at(x, body.mul(row_stride, body.min(last, i))) for i in range(self.side)]
        values = transposed(body, [body.load_masked(line, across, self.dtype, self.side) for line in lines])
        for j, value in enumerate(values):
            with body.when(body.less(j, columns)):
                body.store_masked(value, body.at(y, body.mul(column_stride, j)), down, self.dtype)
        body.b.ret_void()
        return body.function

    def text(self) -> KernelText:
        body = self.body
        args, tid, nthreads = body.args
        v = {name: body.load_i64(args, i) for i, name in enumerate(_FIELDS)}
        self.v = v
        first, last = body.share(v["units"], tid, nthreads)
        whole = body.b.and_(body.less(self.side - 1, v["rows"]), body.less(self.side - 1, v["columns"]))
        with body.loop(first, last) as unit:
            rest, row_block = body.div(unit, v["row_blocks"]), body.rem(unit, v["row_blocks"])
            rest, column_block = body.div(rest, v["column_blocks"]), body.rem(rest, v["column_blocks"])
            x, y = body.pointer(v["x"]), body.pointer(v["y"])
            for i in reversed(range(MAX_OUTER)):
                index = body.rem(rest, v[f"size{i}"]) if i else rest
                rest = body.div(rest, v[f"size{i}"])
                x, y = body.at(x, body.mul(index, v[f"x_stride{i}"])), body.at(y, body.mul(index, v[f"y_stride{i}"]))
            self._unit(x, y, body.mul(row_block, self.block), body.mul(column_block, self.block), whole)
        body.b.ret_void()
        return self.module.text(f"transpose{self.itemsize}")

    def _unit(self, x: Value, y: Value, row: Value, column: Value, whole: Value) -> None:
        body, v = self.body, self.v
        end_row, end_column = (
            body.min(body.add(row, self.block), v["rows"]),
            body.min(body.add(column, self.block), v["columns"]),
        )
        last_row, last_column = body.sub(v["rows"], self.side), body.sub(v["columns"], self.side)
        with (
            body.loop(column, end_column, self.side) as c,
            body.loop(row, end_row, self.side) as r,
            body.either(whole) as paths,
        ):
            inside, edge = paths
            with inside:
                place = self._place(x, y, body.min(r, last_row), body.min(c, last_column))
                body.b.call(self.square, place)
            with edge:
                counts = [body.sub(v["rows"], r), body.sub(v["columns"], c)]
                body.b.call(self.cut, [*self._place(x, y, r, c), *counts])

    def _place(self, x: Value, y: Value, row: Value, column: Value) -> list[Value]:
        body, v = self.body, self.v
        source = body.at(x, body.mul(row, v["row_stride"]), body.mul(column, self.itemsize))
        target = body.at(y, body.mul(column, v["column_stride"]), body.mul(row, self.itemsize))
        return [source, v["row_stride"], target, v["column_stride"]]
