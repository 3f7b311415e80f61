"""Matrix products: sums in registers, four columns to a vector, with element-wise primitives behind them in the same kernel.

Operands may be any gather (a convolution's windows). Two ways to feed the registers, as `Tuning` says for a device:

- tiles in memory that a group shares: each operand's element is found once for many sums (GPUs);
- straight from memory, where both operands are matrices that lie there as they are read (drivers on a processor, whose
  caches serve as well and whose barriers cost more).

Weights of few bits (`nbits_matmul`) are unpacked word by word on their way into such tiles.

Types other than float32 are summed one by one, in tiles of the same sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.codegen.clike.dialects.dialect import Dialect, Tile
from intarsia.codegen.clike.products import nbits_matmul
from intarsia.codegen.clike.products.sum_places import sum_indices
from intarsia.codegen.clike.schedules import Kernel, _extent, _finished
from intarsia.codegen.clike.storage_types import KINDS, Kind
from intarsia.codegen.clike.values import Values
from intarsia.codegen.clike.vec4 import LANES as WIDTH
from intarsia.codegen.clike.vec4 import Fours
from intarsia.codegen.clike.writer import Block
from intarsia.codegen.loops.index_expr import Index, add, follow, linear, operand_indices, regroup, scale
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor

_PART, _MOST_PARTS = 256, 16  # terms that a part of a sum has at least; parts that a thread adds up
_ONE_EACH = Tile((8, 8), (1, 1), 8)  # where a product is hundreds of instructions: a compiler repeats them for each element


def tile_for(dialect: Dialect, m: int, n: int, kind: Kind = Kind.F32) -> Tile:
    """The tile for results of m rows and n columns."""
    if kind is Kind.F64 and dialect.emulates_doubles:
        return _ONE_EACH
    tuning = dialect.tuning
    if m <= tuning.flat.rows:
        return tuning.flat
    return tuning.large if m >= tuning.large.rows and n >= tuning.large.columns else tuning.small


def parts_of(dialect: Dialect, t: Tensor) -> int:
    """In how many parts a product's terms are summed, so that it has groups for the whole device; 1 where it has, or where
    the parts would be short. They are equal, and whole vectors where the sum is."""
    shape, terms = [_extent(d) for d in t.shape], _extent(t.args[0].shape[-1])
    tile = tile_for(dialect, shape[-2], shape[-1], KINDS[t.dtype])
    groups = _extent(*shape[:-2]) * -(-shape[-2] // tile.rows) * -(-shape[-1] // tile.columns)
    most = min(dialect.tuning.fill // max(groups, 1), terms // _PART, _MOST_PARTS)
    width = WIDTH if terms % WIDTH == 0 else 1
    return next((n for n in range(most, 1, -1) if terms % (n * width) == 0), 1)


def in_parts(t: Tensor, count: int) -> Tensor:
    """The product as so many products, one behind the other in front of the rows; their sum is `t`."""
    a, b = t.args
    terms = _extent(a.shape[-1])
    a = k.reshape(a, (*a.shape[:-1], count, terms // count))
    a = k.transpose(a, [*range(a.rank - 3), a.rank - 2, a.rank - 3, a.rank - 1])
    b = k.reshape(b, (*b.shape[:-2], count, terms // count, b.shape[-1]))
    return Tensor("dot", (a, b), (), t.dtype, (*t.shape[:-2], count, *t.shape[-2:]))


def product_kernel(dialect: Dialect, root: Tensor, product_: Tensor, writer: type[_Product] | None = None) -> Kernel:
    """`root` with the matrix product in it (see `sum_indices`). Neither may be packed. `writer`: of its sums."""
    make = writer or _Product
    kernel, vectors = _product_kernel(dialect, root, product_, make)
    return _product_kernel(dialect, root, product_, make, vectors)[0] if vectors and dialect.typed_buffers else kernel


def _product_kernel(
    dialect: Dialect, root: Tensor, product_: Tensor, make: type[_Product], known: frozenset[object] | None = None
) -> tuple[Kernel, frozenset[object]]:
    """The kernel, and what it reads by vectors behind the product; `known`: the latter, of a first printing."""
    shape = [_extent(d) for d in product_.shape]
    batch, (m, n) = _extent(*shape[:-2]), shape[-2:]
    tile = tile_for(dialect, m, n, KINDS[product_.dtype])
    v = Fours(dialect, known)
    v.along = ("four", "word")
    v.bounds |= {"gm": m - 1, "gn": n - 1, "four": max(n // WIDTH - 1, 0), "z": batch - 1}
    fours = [_places(root, product_, ("+", ("*", ("v", "four"), WIDTH), ("c", lane))) for lane in range(WIDTH)]
    whole = n % WIDTH == 0 and tile.each[1] % WIDTH == 0 and v.begins_vectors(root, [at for at, _ in fours])
    out = v.output(root.dtype, root.shape, whole and dialect.typed_buffers)
    writer = make(v, product_, tile)
    v.plainly = False  # what is gathered has indices that share more
    sums = writer.sums()
    v.plainly = True
    at, v.over_pin = _places(root, product_, ("v", "gn"))
    rows = Block(v.top)
    mine = [v.elements.fresh("sum") for _ in sums[0]]
    for j, name in enumerate(mine):  # one text for all rows of this thread
        text = sums[-1][j]
        for i in range(len(sums) - 2, -1, -1):
            text = dialect.select(f"(r == {i})", sums[i][j], text)
        rows.write(writer.let(name, text))
    rows.write(dialect.let("gm", Kind.I32, "row + r"))
    inside = Block(rows, ("gm",))
    for j in range(0, tile.each[1], WIDTH) if whole else ():
        four = Block(inside, ("four", "pin"))
        four.write(dialect.let("four", Kind.I32, f"(column + {j}) / {WIDTH}"))
        values = []
        for lane, (where, _) in enumerate(fours):
            v.pinned = {id(product_): writer.part(mine, j + lane)}
            values.append(v.value(root, where, four))
        v.store_four(out, root, [where for where, _ in fours], values, four)
        inside.nest(f"if (column + {j} < {v.number(n)}) {{", four)
    for j in range(tile.each[1]) if not whole else ():
        column = Block(inside)
        column.write(dialect.let("gn", Kind.I32, f"column + {j}"))
        element = Block(column, ("gn", "pin"))
        v.pinned = {id(product_): writer.part(mine, j)}
        value = v.value(root, at, element)
        v.store(out, root.dtype, v.index(linear(at, root.shape), element), value, element)
        column.nest(f"if (gn < {v.number(n)}) {{", element)
        inside.nest("{", column)
    rows.nest(f"if (gm < {v.number(m)}) {{", inside)
    v.top.nest(dialect.loop("r", "0", str(tile.each[0])), rows)
    groups = (-(-n // tile.columns), -(-m // tile.rows), batch)
    return _finished(v, groups, tile.threads[0] * tile.threads[1]), v.vectors


def _places(root: Tensor, product_: Tensor, column: Index) -> tuple[list[Index], frozenset[int]]:
    """`sum_indices` with another index instead of gn."""
    found = sum_indices(root, product_, column)
    assert found is not None
    return found


@dataclass(frozen=True)
class Operand:
    """How a factor is read.

    Attributes:
        leaf: where it lies, if it is nothing but memory.
        index: of the element in that memory.
        vector: the variable ("gk", "gm" or "gn") along which four neighbours are one vector there; "" where none is.
        along: the same, whether or not four of them are aligned.
    """

    leaf: Tensor | None = None
    index: Index = ("c", 0)
    vector: str = ""
    along: str = ""

    def vector_at(self, v: Values, places: dict[str, Index], block: Block) -> str:
        """A vector at these places of its variables; its leaf is one of `vector_leaves`."""
        assert self.leaf is not None
        name = v.elements.fresh("w")
        at = v.index(_placed(self.index, places), block)
        text = v.read_vector(self.leaf.attrs[0], self.leaf.dtype, _extent(*self.leaf.shape), at)
        block.write(v.dialect.let_vector(name, text))
        return name


class _Product:
    """The sums of a thread's elements."""

    def __init__(self, v: Fours, t: Tensor, tile: Tile) -> None:
        self.v, self.t, self.tile, self.d = v, t, tile, v.dialect
        self.kind = KINDS[t.dtype]
        self.vectors = self.kind is Kind.F32 and tile.each[1] % WIDTH == 0 and tile.depth % WIDTH == 0
        shape = [_extent(s) for s in t.shape]
        self.depth = _extent(t.args[0].shape[-1])
        self.m, self.n = shape[-2:]
        self.batch = regroup([("v", "z")], [_extent(*shape[:-2])], shape[:-2])
        self.left, self.right = (operand(t, i) for i in range(2))
        self.unpacked = [self._unpacked_side(i, tile) for i in range(2)]
        for x, along in ((self.left, "gk"), (self.right, "gn")):
            if self.vectors and x.leaf is not None and x.vector == along:
                v.vector_leaves.add(x.leaf.attrs[0])

    def _unpacked_side(self, side: int, tile: Tile) -> nbits_matmul.Neighbours | None:
        """How the numbers of an operand lie that is weights of few bits, whole words of which are in a tile."""
        found = nbits_matmul.neighbours(self.d, self.t, side, ("gm", "gn")[side]) if self.vectors else None
        if found is None:
            return None
        extent = tile.depth if found.along == "gk" else (tile.rows, tile.columns)[side]
        return found if extent % found.width == 0 else None

    # --- text ---

    def let(self, name: str, text: str) -> str:
        """A name for one of the values that `sums` are made of."""
        return self.d.let_vector(name, text) if self.vectors else self.d.let(name, self.kind, text)

    def part(self, names: Sequence[str], j: int) -> str:
        """Column number `j` of a row of sums."""
        return f"{names[j // WIDTH]}.{'xyzw'[j % WIDTH]}" if self.vectors else names[j]

    def _zero(self) -> str:
        zero = self.v.elements.literal(0, self.kind)
        return self.d.vector([zero] * WIDTH) if self.vectors else zero

    def sums(self) -> list[list[str]]:
        """Row by row; "row" and "column" say where they are."""
        d, top, tile = self.d, self.v.top, self.tile
        top.names.add("z")
        top.write(
            d.let("z", Kind.I32, d.group[2]),
            d.let("m0", Kind.I32, f"{d.group[1]} * {tile.rows}"), d.let("n0", Kind.I32, f"{d.group[0]} * {tile.columns}"),
            d.let("r0", Kind.I32, f"({d.local} / {tile.threads[1]}) * {tile.each[0]}"),
            d.let("c0", Kind.I32, f"({d.local} % {tile.threads[1]}) * {tile.each[1]}"),
            d.let("row", Kind.I32, "m0 + r0"), d.let("column", Kind.I32, "n0 + c0"),
        )  # fmt: skip
        count = tile.each[1] // (WIDTH if self.vectors else 1)
        sums = [[self.v.elements.fresh("total") for _ in range(count)] for _ in range(tile.each[0])]
        for name in (name for line in sums for name in line):
            zero = self._zero()
            top.write(d.variable_vector(name, zero) if self.vectors else d.variable(name, self.kind, zero))
        if self.vectors and d.tuning.direct and self.left.vector == "gk" and self.right.vector == "gn":
            self._direct(sums)
        else:
            self._shared(sums)
        return sums

    # --- straight from memory ---

    def _direct(self, sums: list[list[str]]) -> None:
        """Four terms at a time: a vector of each row of the left operand, and of four rows of the right one."""
        v, d, top, tile = self.v, self.d, self.v.top, self.tile
        for i in range(tile.each[0]):
            inside = f"(row + {i} < {v.number(self.m)})"
            top.write(d.let(f"m{i + 1}", Kind.I32, d.select(inside, f"row + {i}", v.number(self.m - 1))))
        for j in range(len(sums[0])):
            last = v.number(self.n - WIDTH)
            top.write(d.let(f"n{j + 1}", Kind.I32, d.select(f"(column + {j * WIDTH} < {last})", f"column + {j * WIDTH}", last)))
        top.names |= {f"m{i + 1}" for i in range(tile.each[0])} | {f"n{j + 1}" for j in range(len(sums[0]))}
        steps = Block(top, ("k",))
        ys = []
        for q in range(WIDTH):
            term: Index = ("+", ("v", "k"), ("c", q)) if q else ("v", "k")
            ys.append([self.right.vector_at(v, {"gk": term, "gn": ("v", f"n{j + 1}")}, steps) for j in range(len(sums[0]))])
        for i, line in enumerate(sums):
            x = self.left.vector_at(v, {"gk": ("v", "k"), "gm": ("v", f"m{i + 1}")}, steps)
            for q in range(WIDTH):
                for j, total in enumerate(line):
                    steps.write(d.add_scaled(total, f"{x}.{'xyzw'[q]}", ys[q][j]))
        top.nest(d.loop("k", "0", v.number(self.depth), str(WIDTH)), steps)

    def _vector(self, x: Operand, block: Block) -> str:
        assert x.leaf is not None
        v = self.v
        return v.read_vector(x.leaf.attrs[0], x.leaf.dtype, _extent(*x.leaf.shape), v.index(x.index, block))

    # --- by shared memory ---

    def _shared(self, sums: list[list[str]]) -> None:
        v, d, top, tile = self.v, self.d, self.v.top, self.tile
        width = WIDTH if self.vectors else 1
        left = v.share(self.kind, tile.depth * tile.rows // width, width)
        right = v.share(self.kind, tile.depth * tile.columns // width, width)
        steps = Block(top, ("k0",))
        self._fill(steps, left, self.left, True)
        self._fill(steps, right, self.right, False)
        steps.write(d.barrier)
        terms = Block(steps, ("k",))
        count = len(sums[0])
        if self.vectors:
            self._vector_terms(terms, left, right, sums)
        else:
            xs = [v.elements.let(terms, f"{left}[(r0 + {i}) * {tile.depth} + k]", self.kind) for i in range(tile.each[0])]
            ys = [v.elements.let(terms, f"{right}[k * {tile.columns} + c0 + {j}]", self.kind) for j in range(count)]
            for line, x in zip(sums, xs, strict=True):
                for total, y in zip(line, ys, strict=True):
                    terms.write(f"{total} = {total} + {x} * {y};")
        steps.nest(d.loop("k", "0", str(tile.depth // width)), terms)
        steps.write(d.barrier)
        top.nest(d.loop("k0", "0", v.number(self.depth), str(tile.depth)), steps)

    def _vector_terms(self, terms: Block, left: str, right: str, sums: list[list[str]]) -> None:
        v, d, tile = self.v, self.d, self.tile
        columns, deep = tile.columns // WIDTH, tile.depth // WIDTH
        ys: list[list[str]] = []
        for q in range(WIDTH):
            ys.append([v.elements.fresh("y") for _ in sums[0]])
            for j, name in enumerate(ys[-1]):
                terms.write(d.let_vector(name, f"{right}[(k * {WIDTH} + {q}) * {columns} + c0 / {WIDTH} + {j}]"))
        for i, line in enumerate(sums):
            x = v.elements.fresh("x")
            terms.write(d.let_vector(x, f"{left}[(r0 + {i}) * {deep} + k]"))
            for q in range(WIDTH):
                for j, total in enumerate(line):
                    terms.write(d.add_scaled(total, f"{x}.{'xyzw'[q]}", ys[q][j]))

    def _fill(self, steps: Block, shared: str, x: Operand, rows: bool) -> None:
        """A tile of the left operand ([rows][terms]) or of the right one ([terms][columns]), by all threads of the group.

        Neighbouring threads read along the axis whose elements are neighbours in memory.
        """
        v, d, tile = self.v, self.d, self.tile
        if (near := self.unpacked[0 if rows else 1]) is not None:
            self._fill_unpacked(steps, shared, near, 0 if rows else 1)
            return
        width = WIDTH if self.vectors else 1
        threads = tile.threads[0] * tile.threads[1]
        name, size, start, extent = ("gm", self.m, "m0", tile.rows) if rows else ("gn", self.n, "n0", tile.columns)
        lines, line = (extent, tile.depth // width) if rows else (tile.depth, extent // width)
        fill = Block(steps, ("s",))
        crosswise = x.along == ("gm" if rows else "gk")
        first, second = (f"s % {lines}", f"s / {lines}") if crosswise else (f"s / {line}", f"s % {line}")
        fill.write(d.let("line", Kind.I32, first), d.let("place", Kind.I32, second))
        k_text, other = ("place", "line") if rows else ("line", "place")
        inner = Block(fill, ("gk", name))
        scale_k, scale_other = (f" * {width}", "") if rows else ("", f" * {width}")
        inner.write(
            d.let("gk0", Kind.I32, f"k0 + {k_text}{scale_k if width > 1 else ''}"),
            d.let(f"{name}0", Kind.I32, f"{start} + {other}{scale_other if width > 1 else ''}"),
        )
        target = f"{shared}[line * {line} + place]"
        along = "gk" if rows else name
        if width > 1 and x.vector == along:
            inner.write(d.let("gk", Kind.I32, "gk0"), d.let(name, Kind.I32, f"{name}0"))
            block = Block(inner)
            block.write(f"{target} = {self._vector(x, block)};")
            inner.write(f"{target} = {self._zero()};")
            inner.nest(f"if (gk < {v.number(self.depth)} && {name} < {v.number(size)}) {{", block)
        else:
            self._gathered(inner, rows, name, size, along, target)
        fill.nest("{", inner)
        steps.nest(d.loop("s", d.local, str(lines * line), str(threads)), fill)

    def _fill_unpacked(self, steps: Block, shared: str, near: nbits_matmul.Neighbours, side: int) -> None:
        """A tile of weights of few bits: each thread unpacks words, and a thread's neighbour the word behind."""
        v, d, tile = self.v, self.d, self.tile
        name, size, start, extent = (("gm", self.m, "m0", tile.rows), ("gn", self.n, "n0", tile.columns))[side]
        deep = near.along == "gk"
        words, lines = (tile.depth // near.width, extent) if deep else (extent // near.width, tile.depth)
        fixed, most, begin, origin = (name, size, start, "k0") if deep else ("gk", self.depth, "k0", start)
        fill = Block(steps, ("s",))
        fill.write(
            d.let("place", Kind.I32, f"s % {words}"), d.let("line", Kind.I32, f"s / {words}"),
            d.let("word0", Kind.I32, f"{origin} / {near.width} + place"), d.let("other0", Kind.I32, f"{begin} + line"),
        )  # fmt: skip
        count = (self.depth if deep else size) // near.width
        inside = f"(word0 < {v.number(count)} && other0 < {v.number(most)})"
        block = Block(fill, ("word", fixed))
        for variable, given, end in (("word", "word0", count - 1), (fixed, "other0", most - 1)):
            limit = v.number(end)
            block.write(d.let(variable, Kind.I32, d.select(f"({given} < {limit})", given, limit)))
            v.bounds[variable] = end
        before, v.plainly = v.plainly, True
        zero, parts = v.elements.literal(0, self.kind), []
        for q in range(near.width):
            at_word = nbits_matmul.word(near.width, q)
            last: list[Index] = [at_word if a == near.along else ("v", a) for a in ((name, "gk"), ("gk", name))[side]]
            value = v.factor(self.t, self.t.args[side], self.batch, last, block)
            parts.append(v.elements.let(block, d.select(inside, value, zero), self.kind))
        v.plainly = before
        row = tile.columns if side else tile.depth
        if deep == (side == 0):  # neighbours in memory are neighbours in the tile
            for q in range(0, near.width, WIDTH):
                at = f"(line * {row} + place * {near.width} + {q}) / {WIDTH}"
                block.write(f"{shared}[{at}] = {d.vector(parts[q : q + WIDTH])};")
        else:
            for q, part in enumerate(parts):
                block.write(f"{d.part(shared, f'(place * {near.width} + {q}) * {row} + line')} = {part};")
        fill.nest("{", block)
        steps.nest(d.loop("s", d.local, str(words * lines), str(tile.threads[0] * tile.threads[1])), fill)

    def _gathered(self, inner: Block, rows: bool, name: str, size: int, along: str, target: str) -> None:
        """Elements one by one, those outside as zeros."""
        v, d, e = self.v, self.d, self.v.elements
        width = WIDTH if self.vectors else 1
        zero = e.literal(0, self.kind)
        names = [e.fresh("part") for _ in range(width)]
        for part in names:
            inner.write(d.variable(part, self.kind, zero))
        fixed = name if along == "gk" else "gk"
        outer = Block(inner, (fixed,))
        outer.write(d.let(fixed, Kind.I32, f"{fixed}0"))
        for i, part in enumerate(names):
            one = Block(outer, (along,))
            one.write(d.let(along, Kind.I32, f"{along}0 + {i}" if i else f"{along}0"))
            k: Index = ("clamp", ("v", "gk"), self.depth)
            other: Index = ("clamp", ("v", name), size)
            x = self.t.args[0 if rows else 1]
            value = v.factor(self.t, x, self.batch, [other, k] if rows else [k, other], one)
            inside = f"(gk < {v.number(self.depth)} && {name} < {v.number(size)})"
            one.write(f"{part} = {d.select(inside, value, zero)};")
            outer.nest("{", one)
        inner.nest("{", outer)
        inner.write(f"{target} = {d.vector(names) if self.vectors else names[0]};")


def operand(t: Tensor, i: int, columns: str = "gn", dtype: DType = DType.FLOAT, width: int = WIDTH) -> Operand:
    """Follow an operand of a product to the memory where it lies, if it is a view of it.

    Its rows and columns are "gm" and "gk" (the left one), "gk" and `columns` (the right one), the batch is "z". `width`: how
    many elements of `dtype` are a vector.
    """
    x = t.args[i]
    shape = [_extent(d) for d in t.shape]
    batch = regroup([("v", "z")], [_extent(*shape[:-2])], shape[:-2])
    shift = t.rank - x.rank
    where = [follow(d, t.shape[n + shift], batch[n + shift]) for n, d in enumerate(x.shape[:-2])]
    sizes = dict(zip(("gm", "gk") if i == 0 else ("gk", columns), (_extent(d) for d in x.shape[-2:]), strict=True))
    at: list[Index] = [*where, *(("v", name) for name in sizes)]
    while x.prim in ("reshape", "transpose", "slice", "broadcast"):
        ((x, at),) = operand_indices(x, at)
    if x.prim != "input" or x.dtype is not dtype or t.dtype not in (dtype, DType.FLOAT, DType.INT32):
        return Operand()
    index = linear(at, x.shape)
    along = next((name for name in sizes if _step(index, name) == 1), "")
    aligned = along and sizes[along] % width == 0 and _extent(*x.shape) % width == 0 and _is_aligned(index, along, width)
    return Operand(x, index, along if aligned else "", along)


def _step(index: Index, name: str) -> int:
    """How far one more of a variable moves an index; 0 where that is not the same everywhere, or not at all."""
    if index == ("v", name):
        return 1
    if index[0] == "+":
        parts = [_step(i, name) for i in index[1:]]
        plain = [not _reads(i, name) or s != 0 for i, s in zip(index[1:], parts, strict=True)]
        return sum(parts) if all(plain) else 0
    return _step(index[1], name) * int(index[2]) if index[0] == "*" else 0


def _placed(index: Index, places: dict[str, Index]) -> Index:
    """An index with other ones instead of its variables; products of sums are sums of products, which loops can share."""
    if index[0] == "v":
        return places.get(index[1], index)
    if index[0] == "+":
        return add(_placed(index[1], places), _placed(index[2], places))
    if index[0] == "*":
        inner = _placed(index[1], places)
        if inner[0] == "+":
            return add(*(_placed(("*", i, index[2]), {}) for i in inner[1:]))
        return scale(inner, index[2])
    return index if index[0] == "c" else (index[0], _placed(index[1], places), index[2])


def _reads(index: Index, name: str) -> bool:
    return index == ("v", name) or any(_reads(i, name) for i in index[1:] if isinstance(i, tuple))


def _is_aligned(index: Index, name: str, width: int) -> bool:
    """Whether an index is a multiple of a vector's width where the variable is one."""
    if index[0] == "c":
        return bool(index[1] % width == 0)
    if index[0] == "+":
        return all(_is_aligned(i, name, width) for i in index[1:])
    if index[0] == "*":
        return int(index[2]) % width == 0 or _is_aligned(index[1], name, width)
    return index == ("v", name)
