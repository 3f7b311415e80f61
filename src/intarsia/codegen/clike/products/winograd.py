"""3 x 3 convolutions of stride 1 by Winograd's minimal filtering (see `codegen.winograd_transforms`), in three launches:

- a thread for each tile and channel: its window of the image, transformed, to matrices [side^2, channels, tiles];
- as many matrix products with the transformed filters, by the schedule of all products;
- a thread for each tile and filter: sums transformed back, with the element-wise primitives that stand behind the convolution.

Filters are constants; what their transform gives is computed once, on the device (`Cut.prepared`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.codegen.clike.dialects.dialect import Dialect
from intarsia.codegen.clike.products import matmul as product_schedule
from intarsia.codegen.clike.products import tensor_cores
from intarsia.codegen.clike.products.sum_places import places_of
from intarsia.codegen.clike.schedules import THREADS, Kernel, _extent, _finished, _flat, _grid
from intarsia.codegen.clike.storage_types import Kind
from intarsia.codegen.clike.vec4 import LANES, Fours
from intarsia.codegen.clike.vendor_libraries.select_calls import Window, window_of
from intarsia.codegen.clike.writer import Block
from intarsia.codegen.loops.element_values import stripped
from intarsia.codegen.loops.index_expr import Index, linear, regroup
from intarsia.codegen.winograd_transforms import OUTPUTS, filter_matrix, of_input, of_sums
from intarsia.graph.dims import numbers_of
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor

if TYPE_CHECKING:
    from intarsia.codegen.clike.split_into_kernels import Cut


@dataclass(frozen=True)
class Filtering:
    """A convolution in tiles of `outputs` x `outputs`.

    Attributes:
        down, across: tiles of one image.
        tiles: columns of the matrices: all tiles of the batch, in whole vectors.
    """

    window: Window
    outputs: int

    @property
    def side(self) -> int:
        return self.outputs + 2

    @property
    def down(self) -> int:
        return -(-self.window.image[2] // self.outputs)

    @property
    def across(self) -> int:
        return -(-self.window.image[3] // self.outputs)

    @property
    def count(self) -> int:
        return self.window.image[0] * self.down * self.across

    @property
    def tiles(self) -> int:
        return -(-self.count // LANES) * LANES

    def place(self, flat: str) -> list[Index]:
        """Image, row and column of the tile that a variable counts."""
        return regroup([("v", flat)], [self.count], [self.window.image[0], self.down, self.across])


def chosen(cut: Cut, dot: Tensor) -> Filtering | None:
    """How a product is computed by this schedule; None where it is none of a 3 x 3 convolution, or where direct sums are
    estimated to take less time."""
    rates = cut.dialect.tuning.filtering
    if rates is None or 0 in dot.shape or dot.dtype is not DType.FLOAT:
        return None
    if any(a.dtype is not DType.FLOAT for a in dot.args) or tensor_cores.factor_type(cut.dialect, dot) is not None:
        return None
    window = window_of(dot, dot)
    if window is None or not _is_filtered(window, cut):
        return None
    best, least = None, _direct_cost(cut.dialect, window)
    for outputs in OUTPUTS:
        made = Filtering(window, outputs)
        rows = max(numbers_of((window.x.shape[1], window.w.shape[0])))
        if made.side**2 * made.tiles * rows * 4 > cut.dialect.limits.binding_nbytes:
            continue
        cost = _cost(cut.dialect, made)
        if cost < least:
            best, least = made, cost
    return best


def _is_filtered(window: Window, cut: Cut) -> bool:
    w = stripped(window.w)
    if w.prim != "input" or w.attrs[0] not in cut.weights or window.x.rank != 4:
        return False
    steps = {*window.strides, *window.dilations}
    return tuple(window.w.shape[2:]) == (3, 3) and steps == {1} and window.w.shape[1] == window.x.shape[1]


# --- what it costs ----------------------------------------------------------------------------------------------------


def _product_cost(dialect: Dialect, m: int, n: int, depth: int) -> float:
    """Multiply-adds of whole tiles."""
    tile = product_schedule.tile_for(dialect, m, n)
    return -(-m // tile.rows) * tile.rows * -(-n // tile.columns) * tile.columns * depth


def _direct_cost(dialect: Dialect, window: Window) -> float:
    """Of the product whose right operand is gathered: every tile finds the places of its own elements."""
    rates = dialect.tuning.filtering
    assert rates is not None
    n, m, height, width = window.image
    depth = 9 * _extent(window.x.shape[1])
    tile = product_schedule.tile_for(dialect, m, height * width)
    sums = n * _product_cost(dialect, m, height * width, depth)
    moved = _extent(*window.x.shape) + m * depth + _extent(*window.image)
    return sums * (1 + rates.gather / tile.rows) + rates.element * moved + rates.launch


def _cost(dialect: Dialect, f: Filtering) -> float:
    rates = dialect.tuning.filtering
    assert rates is not None
    m, channels = f.window.image[1], _extent(f.window.x.shape[1])
    planes = f.side**2
    sums = planes * _product_cost(dialect, m, f.tiles, channels)
    moved = _extent(*f.window.x.shape) + _extent(*f.window.image) + planes * (2 * f.tiles * (channels + m) + m * channels)
    return sums + rates.element * moved + 3 * rates.launch


# --- kernels ----------------------------------------------------------------------------------------------------------


def launch(cut: Cut, root: Tensor, dot: Tensor, f: Filtering, name: str) -> None:
    """Store `root`, whose only open product is the convolution `dot`, as value `name`."""
    m, channels, planes = f.window.image[1], _extent(f.window.x.shape[1]), f.side**2
    filters = cut.prepare(transformed_filters(f.window.w, f.outputs), f"winograd{f.outputs}")
    tiles = cut._room(DType.FLOAT, (planes, channels, f.tiles))
    cut._add(input_kernel(cut.dialect, f), (tiles.attrs[0],), f"winograd{f.outputs} input")
    sums = cut.store(cut.settle(k.dot(filters, tiles)))
    assert sums.prim == "input" and _extent(*sums.shape) == planes * m * f.tiles
    cut._add(output_kernel(cut.dialect, root, dot, f, sums), (name,), f"winograd{f.outputs}")


def transformed_filters(w: Tensor, outputs: int) -> Tensor:
    """[side^2, M, C] of [M, C, 3, 3]."""
    m, channels = _extent(w.shape[0]), _extent(w.shape[1])
    flat = k.transpose(k.reshape(w, (m * channels, 9)), (1, 0))
    both = k.constant(filter_matrix(outputs).astype(DType.FLOAT.numpy))
    return k.reshape(k.dot(both, flat), ((outputs + 2) ** 2, m, channels))


class _Text:
    """`winograd_transforms.Arithmetic` of names of float32 variables in a block."""

    def __init__(self, v: Fours, block: Block) -> None:
        self.v, self.block = v, block

    def _let(self, text: str) -> str:
        return self.v.elements.let(self.block, text, Kind.F32)

    def add(self, a: str, b: str) -> str:
        return self._let(f"({a} + {b})")

    def subtract(self, a: str, b: str) -> str:
        return self._let(f"({a} - {b})")

    def scaled(self, factor: float, a: str, b: str | None = None) -> str:
        product = f"{self.v.elements.literal(factor, Kind.F32)} * {a}"
        return self._let(f"({product})" if b is None else f"({product} + {b})")


def input_kernel(dialect: Dialect, f: Filtering) -> Kernel:
    """Bt d B of every tile and channel: [side^2, channels, tiles]. Columns behind the last tile repeat it."""
    v = Fours(dialect)
    channels, window = _extent(f.window.x.shape[1]), f.window
    total = channels * f.tiles
    out = v.output(DType.FLOAT, (f.side**2, total))
    block = _flat(v, "i", THREADS, total, v.top)
    channel, tile = regroup([("v", "i")], [total], [channels, f.tiles])
    if f.tiles != f.count:
        tile = ("clamp", tile, f.count)
    v.define("c", channel, channels - 1, block)
    v.define("t", tile, f.count - 1, block)
    for variable, index, most in zip("nyx", f.place("t"), (window.image[0], f.down, f.across), strict=True):
        v.define(variable, index, most - 1, block)
    behind = [
        f.outputs * n + 2 - low - _extent(d)
        for n, low, d in zip((f.down, f.across), window.low, window.x.shape[2:], strict=True)
    ]
    image = k.pad(window.x, (0, 0, *window.low), (0, 0, *(max(b, 0) for b in behind)), 0.0)

    def pixel(i: int, j: int) -> str:
        rows, columns = (("+", ("*", ("v", n), f.outputs), ("c", at)) for n, at in (("y", i), ("x", j)))
        return v.value(image, [("v", "n"), ("v", "c"), rows, columns], block)

    square = [[pixel(i, j) for j in range(f.side)] for i in range(f.side)]
    for plane, value in enumerate(of_input(square, f.outputs, _Text(v, block))):
        v.write(out, f"(i + {plane} * {v.number(total)})", value, block)
    return _finished(v, _grid(dialect, -(-total // THREADS)), THREADS)


def output_kernel(dialect: Dialect, root: Tensor, dot: Tensor, f: Filtering, sums: Tensor) -> Kernel:
    """`root` with At s A of the sums [side^2, M, tiles] instead of `dot`. The result must not be packed."""
    kernel, vectors = _output_kernel(dialect, root, dot, f, sums)
    return _output_kernel(dialect, root, dot, f, sums, vectors)[0] if vectors and dialect.typed_buffers else kernel


def _output_kernel(
    dialect: Dialect, root: Tensor, dot: Tensor, f: Filtering, sums: Tensor, known: frozenset[object] | None = None
) -> tuple[Kernel, frozenset[object]]:
    """The kernel, and what it reads by vectors; `known`: the latter, of a first printing."""
    v = Fours(dialect, known)
    n, filters, height, width = f.window.image
    v.bounds |= {"oy": height - 1, "x": f.across - 1, "m": filters - 1, "n": n - 1, "ox": width - 1}
    lines = [_places(root, dot, width, ("+", ("*", ("v", "x"), f.outputs), ("c", j))) for j in range(f.outputs)]
    whole = width % LANES == 0 and f.outputs == LANES and v.begins_vectors(root, [at for at, _ in lines])
    v.along = ("x",) if whole else ()
    out = v.output(root.dtype, root.shape, whole and dialect.typed_buffers)
    total, plane = filters * f.count, filters * f.tiles
    block = _flat(v, "i", THREADS, total, v.top)
    filter_, tile = regroup([("v", "i")], [total], [filters, f.count])
    for variable, index, size in [("m", filter_, filters), ("t", tile, f.count)]:
        v.define(variable, index, size - 1, block)
    for variable, index, size in zip("nyx", f.place("t"), (n, f.down, f.across), strict=True):
        v.define(variable, index, size - 1, block)
    buffer = v.operand(sums.attrs[0], DType.FLOAT, f.side**2 * plane)
    first = v.index(linear([("v", "m"), ("v", "t")], (filters, f.tiles)), block)
    square = [
        [v.load(buffer, DType.FLOAT, f"({first} + {i * f.side + j} * {v.number(plane)})", block) for j in range(f.side)]
        for i in range(f.side)
    ]
    values = list(of_sums(square, f.outputs, _Text(v, block)))
    ends, v.over_pin = _places(root, dot, width, ("v", "ox"))
    for i in range(f.outputs):
        row, line = Block(block, ("oy", "pin") if whole else ("oy",)), values[i * f.outputs : (i + 1) * f.outputs]
        row.write(dialect.let("oy", Kind.I32, f"y * {f.outputs} + {i}"))
        if whole:
            found = []
            for (where, _), value in zip(lines, line, strict=True):
                v.pinned = {id(dot): value}
                found.append(v.value(root, where, row))
            v.store_four(out, root, [where for where, _ in lines], found, row)
        for j, value in enumerate(line) if not whole else ():
            column = Block(row, ("ox", "pin"))
            column.write(dialect.let("ox", Kind.I32, f"x * {f.outputs} + {j}"))
            v.pinned = {id(dot): value}
            text = v.value(root, ends, column)
            v.store(out, root.dtype, v.index(linear(ends, root.shape), column), text, column)
            row.nest(f"if (x * {f.outputs} + {j} < {v.number(width)}) {{", column)
        block.nest(f"if (y * {f.outputs} + {i} < {v.number(height)}) {{", row)
    return _finished(v, _grid(dialect, -(-total // THREADS)), THREADS), v.vectors


def _places(root: Tensor, dot: Tensor, width: int, column: Index) -> tuple[list[Index], frozenset[int]]:
    """Where in `root` the element of image n, filter m, line oy and this column goes, and the ids of all tensors between."""
    found = places_of(root, dot, [("v", "n"), ("c", 0), ("v", "m"), ("+", ("*", ("v", "oy"), width), column)])
    assert found is not None
    return found
