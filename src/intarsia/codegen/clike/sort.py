"""Sorting in n log^2 n: runs by counting, then pairs of runs merged, pass by pass.

In each pass a thread has one element: its place is its place in its own run and the number of elements of the other run
that come before it, which a search by halves finds. Elements of the left run come before equal ones of the right one, so
equal elements keep their order; NaN comes after all numbers. Values and their places (int32) go through the passes together.
"""

from __future__ import annotations

from collections.abc import Callable

from intarsia.codegen.clike.dialects.dialect import Dialect
from intarsia.codegen.clike.schedules import THREADS, Kernel, _coordinates, _extent, _finished, _flat, _grid
from intarsia.codegen.clike.storage_types import KINDS, Kind
from intarsia.codegen.clike.values import Values
from intarsia.codegen.clike.writer import Block
from intarsia.codegen.loops.index_expr import Index, linear
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives.lang import Tensor

_COUNTED = 256  # lines of no more elements are sorted by counting alone
RUN = 64


@dataclass(frozen=True)
class Order:
    """Along which axis, and what is first."""

    axis: int
    descending: bool

    def widths(self, x: Tensor) -> list[int]:
        """Of the runs that each pass after the first merges."""
        length = _extent(x.shape[self.axis])
        widths, width = [], RUN
        while length > _COUNTED and width < length:
            widths.append(width)
            width *= 2
        return widths

    def precedes(self, v: Values, first: str, second: str, kind: Kind, block: Block) -> str:
        """Whether one element comes before another one that it does not equal."""
        if self.descending:
            first, second = second, first
        if kind is Kind.BOOL:
            below = f"(!{first} && {second})"
        else:
            below = v.dialect.comparison("<", first, second, kind)
        if kind.is_float:
            nans = [v.elements.is_nan(y, kind, block) for y in (first, second)]
            below = f"({below} || ({nans[1]} && !{nans[0]}))"
        return below


class _Line:
    """What a thread knows of its element."""

    def __init__(self, dialect: Dialect, x: Tensor, order: Order, places: DType) -> None:
        self.v, self.x, self.order, self.places = Values(dialect), x, order, places
        v = self.v
        self.outputs = v.output(x.dtype, x.shape), v.output(places, x.shape)
        self.sizes = [_extent(d) for d in x.shape]
        self.total, self.length = _extent(*self.sizes), self.sizes[order.axis]
        self.block = _flat(v, "i", THREADS, self.total, v.top)
        self.at = _coordinates(v, "i", self.sizes, self.block)
        self.mine, self.here = v.value(x, self.at, self.block), v.index(self.at[order.axis], self.block)
        self.kind = KINDS[x.dtype]

    def where(self, name: str) -> list[Index]:
        axis = self.order.axis
        return [*self.at[:axis], ("v", name), *self.at[axis + 1 :]]

    def finished(self, rank: str, place: str) -> Kernel:
        """The element goes to `rank` in its line, with an int32 that says where it was."""
        v, block = self.v, self.block
        block.names.add("rank")
        block.write(v.dialect.let("rank", Kind.I32, rank))
        target = v.index(linear(self.where("rank"), self.x.shape), block)
        v.store(self.outputs[0], self.x.dtype, target, self.mine, block)
        number = place if self.places is DType.INT32 else v.dialect.convert(place, Kind.I32, KINDS[self.places])
        v.store(self.outputs[1], self.places, target, number, block)
        return _finished(v, _grid(v.dialect, -(-self.total // THREADS)), THREADS)

    def ends(self, start: str, width: int, name: str) -> str:
        """Where a run that begins at `start` ends, at most at the end of the line."""
        v = self.v
        end = v.elements.let(self.block, f"({start} + {v.number(width)})", Kind.I32)
        size = v.number(self.length)
        self.block.write(v.dialect.let(name, Kind.I32, v.dialect.select(f"({end} < {size})", end, size)))
        return name


def runs_kernel(dialect: Dialect, x: Tensor, order: Order, places: DType) -> Kernel:
    """Each run of each line in order: a thread counts what comes before its element. `x` must not be packed."""
    line = _Line(dialect, x, order, places)
    v, d, block = line.v, dialect, line.block
    start, stop = "0", v.number(line.length)
    if line.length > _COUNTED:
        start = v.elements.let(block, f"({line.here} - {line.here} % {v.number(RUN)})", Kind.I32)
        stop = line.ends(start, RUN, "stop")
    rank = v.elements.variable(block, start, Kind.I32)
    loop = Block(block, ("j",))
    other = v.value(x, line.where("j"), loop)
    below, above = (order.precedes(v, *pair, line.kind, loop) for pair in ((other, line.mine), (line.mine, other)))
    loop.write(f"if ({below} || (!{above} && j < {line.here})) {{ {rank} = {rank} + 1; }}")
    block.nest(d.loop("j", start, stop), loop)
    return line.finished(rank, line.here)


def merge_kernel(dialect: Dialect, x: Tensor, before: Tensor, order: Order, width: int, places: DType) -> Kernel:
    """Pairs of runs of `width` elements of `x`, which lies in memory; `before`: int32, where its elements were first."""
    line = _Line(dialect, x, order, places)
    v, d, block, here = line.v, dialect, line.block, line.here
    let: Callable[[Block, str, Kind], str] = v.elements.let
    run = let(block, f"({here} / {v.number(width)})", Kind.I32)
    own = let(block, f"({run} * {v.number(width)})", Kind.I32)
    left = let(block, f"(({run} & 1) == 0)", Kind.BOOL)
    beside = d.select(left, f"{own} + {v.number(width)}", f"{own} - {v.number(width)}")
    size = v.number(line.length)
    first = let(block, beside, Kind.I32)
    first = let(block, d.select(f"({first} < {size})", first, size), Kind.I32)
    stop = line.ends(first, width, "stop")
    block.write(d.variable("low", Kind.I32, first), d.variable("high", Kind.I32, stop))
    loop = Block(block)
    inside = Block(loop, ("middle",))
    inside.write(d.let("middle", Kind.I32, "low + (high - low) / 2"))
    other = v.value(x, line.where("middle"), inside)
    strictly, after = (order.precedes(v, *pair, line.kind, inside) for pair in ((other, line.mine), (line.mine, other)))
    goes_on = let(inside, d.select(left, strictly, f"!{after}"), Kind.BOOL)
    inside.write(f"low = {d.select(goes_on, 'middle + 1', 'low')};", f"high = {d.select(goes_on, 'high', 'middle')};")
    loop.nest("if (low < high) {", inside)
    block.nest(d.loop("s", "0", v.number(width.bit_length())), loop)
    base = d.select(left, own, first)
    rank = f"{base} + ({here} - {own}) + (low - {first})"
    return line.finished(rank, v.value(before, line.at, block))
