"""Matrix products by weights of few bits: numbers are unpacked where a product reads them, and are never in memory as floats.

An operand is taken for such weights by what it is made of: numbers of at most eight bits, one or several to a byte, and
scales and zero points of which each serves many. Neighbours that lie in one word, and their scale, are read once.

- Few rows: the weights' bytes bound the time. Threads go along the words of a column of the product, as they lie, and add up
  what they have (`rows_kernel`).
- Many rows: a group unpacks a tile into the memory that it shares (`product`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from intarsia.codegen.clike.dialects.dialect import Dialect
from intarsia.codegen.clike.products.sum_places import sum_indices
from intarsia.codegen.clike.schedules import THREADS, Kernel, _extent, _finished
from intarsia.codegen.clike.storage_types import KINDS, Kind, stored_bits
from intarsia.codegen.clike.vec4 import LANES, Fours, is_multiple, split_number
from intarsia.codegen.clike.writer import Block
from intarsia.codegen.loops.index_expr import ELEMENTWISE, Index, add, follow, linear, operand_indices, regroup, scale
from intarsia.graph.dims import product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives.lang import Tensor, walk

MOST_ROWS = 8
"""More are many rows."""
_MOST_PRIMITIVES = 64
_SHARED_BY = 4  # numbers that a scale serves, at least
_WIDTHS = (16, 8, 4)  # neighbours in one word: of two bits, of four, of eight
_LANES_OF_A_COLUMN = 32
NO_LIBRARY = "its weights are unpacked where they are multiplied; a library would need them in memory, as floats"
_VIEWS = frozenset("input scalar iota broadcast reshape transpose slice pad cast".split())


def is_unpacked(t: Tensor) -> bool:
    """Whether an operand of a product is weights of few bits, unpacked."""
    found, count = _leaves(t), product(t.shape)
    if found is None or not isinstance(count, int) or count == 0:
        return False
    others = [_size(leaf) for leaf in found if not _is_packed(leaf, count)]
    return len(others) == len(found) - 1 and KINDS[t.dtype] is Kind.F32 and all(0 <= n * _SHARED_BY <= count for n in others)


def _size(leaf: Tensor) -> int:
    """How many elements are read, of a gather at most those that there are; -1 where that is not known."""
    sizes = [product(leaf.shape), *(product(a.shape) for a in leaf.args[:1])]
    return min((n for n in sizes if isinstance(n, int)), default=-1)


def _is_packed(leaf: Tensor, count: int) -> bool:
    """Whether a leaf has the numbers of so many weights."""
    return stored_bits(leaf.dtype) <= 8 and leaf.dtype is not DType.BOOL and _size(leaf) * 4 >= count


def _leaves(t: Tensor) -> list[Tensor] | None:
    """What an expression reads, gathered memory as one; None where it is more than views and arithmetic."""
    found: list[Tensor] = []
    seen: set[int] = set()
    waiting = [t]
    while waiting:
        x = waiting.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if len(seen) > _MOST_PRIMITIVES:
            return None
        gathers = x.prim in ("take", "index")
        if gathers and not all(_is_plain(a) for a in x.args[1:]):
            return None
        if x.prim == "input" or gathers and x.args[0].prim == "input":
            found.append(x)
        elif gathers:
            waiting.append(x.args[0])
        elif x.prim in _VIEWS or x.prim in ELEMENTWISE:
            waiting += x.args
        else:
            return None
    return found


def _is_plain(t: Tensor) -> bool:
    """Whether an index is no more than a view of memory, or arithmetic on it."""
    return all(x.prim in _VIEWS or x.prim in ELEMENTWISE for x in walk([t]))


# --- neighbours ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Neighbours:
    """Along which variable ("gk" or the other axis of the operand) `width` numbers lie in one word."""

    along: str
    width: int


def neighbours(dialect: Dialect, t: Tensor, side: int, other: str) -> Neighbours | None:
    """How the numbers of an operand of the product `t` lie; None where no neighbours share words, or it is no such operand."""
    x = t.args[side]
    if KINDS[t.dtype] is not Kind.F32 or not is_unpacked(x):
        return None
    sizes = {name: _extent(d) for name, d in zip((other, "gk") if side == 0 else ("gk", other), x.shape[-2:], strict=True)}
    found = [n for name, size in sizes.items() if (n := _along(dialect, t, side, name, size, tuple(sizes))) is not None]
    return max(found, key=lambda n: n.width, default=None)


def _along(dialect: Dialect, t: Tensor, side: int, name: str, size: int, axes: Sequence[str]) -> Neighbours | None:
    v = Fours(dialect)
    for width in _WIDTHS:
        if size % width:
            continue
        v.bounds = {"word": size // width - 1}
        offsets = []
        for q in range(width):
            last = [word(width, q) if a == name else ("v", a) for a in axes]
            places = list(_numbers_at(v, t.args[side], where_of(t, side, last)))
            if len(places) != 1:
                return None
            many = 32 // stored_bits(places[0][0])
            offsets.append(split_number(v.plain(places[0][1])))
        rest, first = offsets[0]
        if is_multiple(rest, many) and all(r == rest and n // many == first // many for r, n in offsets):
            return Neighbours(name, width)
    return None


def word(width: int, q: int, name: str = "word") -> Index:
    """The index of number `q` of a word."""
    return add(scale(("v", name), width), ("c", q))


def where_of(t: Tensor, side: int, last: list[Index]) -> list[Index]:
    """Indices into an operand, whose batch is that of the product at "z"."""
    shape, x = [_extent(d) for d in t.shape], t.args[side]
    batch = regroup([("v", "z")], [_extent(*shape[:-2])], shape[:-2])
    shift = t.rank - x.rank
    return [*(follow(d, t.shape[i + shift], batch[i + shift]) for i, d in enumerate(x.shape[:-2])), *last]


def _numbers_at(v: Fours, t: Tensor, at: list[Index]) -> Iterator[tuple[DType, Index]]:
    """Where in memory the packed numbers are that an element needs (not its scales), and of which type."""
    count = _extent(*t.shape)
    for leaf, offset in _offsets(v, t, at, set()):
        if _is_packed(leaf, count):
            yield leaf.dtype, offset


def _offsets(v: Fours, t: Tensor, at: list[Index], seen: set[object]) -> Iterator[tuple[Tensor, Index]]:
    """Leaves (gathered parts as a whole) with the offset of what is read of them."""
    at = [v.plain(i) for i in at]
    key = (id(t), tuple(at))
    if key in seen:
        return
    seen.add(key)
    if t.prim == "input":
        yield t, linear(at, t.shape)
        return
    for operand, where in operand_indices(t, at):
        for leaf, offset in _offsets(v, operand, where, seen):
            yield (t if t.prim in ("take", "index") and leaf is t.args[0] else leaf), offset


# --- few rows -----------------------------------------------------------------------------------------------------------


def has_few_rows(dialect: Dialect, t: Tensor) -> bool:
    """Whether `rows_kernel` computes a product."""
    return _extent(t.shape[-2]) <= MOST_ROWS and neighbours(dialect, t, 1, "gn") is not None


def rows_kernel(dialect: Dialect, root: Tensor, product_: Tensor) -> Kernel | None:
    """`root` with a matrix product of at most `MOST_ROWS` rows by unpacked weights in it; None where it is not that."""
    near = neighbours(dialect, product_, 1, "gn") if _extent(product_.shape[-2]) <= MOST_ROWS else None
    if near is None:
        return None
    trial = _Rows(dialect, root, product_, near, None)
    kernel = trial.kernel()
    if not dialect.typed_buffers:
        return kernel
    return _Rows(dialect, root, product_, near, trial.vectors - trial.scattered).kernel()


class _Rows(Fours):
    """Threads deal a column's words out among each other (`lanes` of them); each has four columns."""

    def __init__(
        self, dialect: Dialect, root: Tensor, t: Tensor, near: Neighbours, known: frozenset[object] | None
    ) -> None:  # fmt: skip
        super().__init__(dialect, known)
        self.root, self.t, self.near = root, t, near
        shape = [_extent(d) for d in t.shape]
        self.batch, (self.m, self.n) = _extent(*shape[:-2]), shape[-2:]
        self.depth = _extent(t.args[0].shape[-1])
        self.by_depth = near.along == "gk"
        self.step = near.width if self.by_depth else LANES if self.depth % LANES == 0 else 1
        self.columns = LANES if self.by_depth else near.width
        steps = self.depth // self.step
        most = 1 if dialect.tuning.direct else _LANES_OF_A_COLUMN
        self.lanes = min(most, 1 << max(steps.bit_length() - 1, 0))
        self.across = THREADS // self.lanes * self.columns
        self.along = ("step",) if self.by_depth else ("step", "some")
        self.bounds |= {"step": steps - 1, "z": self.batch - 1, "some": max(self.n // self.columns - 1, 0)}

    def kernel(self) -> Kernel:
        out = self.output(self.root.dtype, self.root.shape)
        sums = self._sums()
        if self.lanes == 1:
            self._given(out, sums)
        else:
            self._added(out, sums)
        return _finished(self, (-(-self.n // self.across), 1, self.batch), THREADS)

    def _sums(self) -> list[list[str]]:
        """By rows and columns of this thread."""
        d, top, e = self.dialect, self.top, self.elements
        top.names.add("z")
        top.write(
            d.let("z", Kind.I32, d.group[2]),
            d.let("lane", Kind.I32, f"{d.local} % {self.lanes}" if self.lanes > 1 else "0"),
            d.let("column", Kind.I32, f"{d.group[0]} * {self.across} + ({d.local} / {self.lanes}) * {self.columns}"),
        )  # fmt: skip
        places: list[Index] = []
        if self.by_depth:
            for c in range(self.columns):
                inside = f"(column + {c} < {self.number(self.n)})"
                top.write(d.let(f"n{c}", Kind.I32, d.select(inside, f"column + {c}", self.number(self.n - 1))))
                top.names.add(f"n{c}")
                self.bounds[f"n{c}"] = self.n - 1
                places.append(("v", f"n{c}"))
        else:
            count, last = f"(column / {self.columns})", self.number(self.n // self.columns - 1)
            top.write(d.let("some", Kind.I32, d.select(f"({count} < {last})", count, last)))
            top.names.add("some")
            places = [word(self.columns, c, "some") for c in range(self.columns)]
        sums = [[e.variable(top, e.literal(0, Kind.F32), Kind.F32) for _ in places] for _ in range(self.m)]
        steps = Block(top, ("step",))
        self._terms(sums, places, steps)
        top.nest(d.loop("step", "lane", self.number(self.depth // self.step), str(self.lanes)), steps)
        return sums

    def _terms(self, sums: list[list[str]], places: Sequence[Index], steps: Block) -> None:
        """What the terms of one word add; a scale that serves all of them is multiplied by once."""
        e, ks = self.elements, [word(self.step, q, "step") for q in range(self.step)]
        xs = [[self._factor(0, [("c", m), at], steps) for at in ks] for m in range(self.m)]
        for c, place in enumerate(places):
            parts = [self._scaled([at, place], steps) for at in ks]
            scales = {scale for _, scale in parts}
            shared = scales.pop() if len(scales) == 1 and self.step > 1 else ""
            weights = [x if shared or not y else e.let(steps, f"({x} * {y})", Kind.F32) for x, y in parts]
            for line, values in zip(sums, xs, strict=True):
                total = e.variable(steps, e.literal(0, Kind.F32), Kind.F32) if shared else line[c]
                for x, weight in zip(values, weights, strict=True):
                    steps.write(f"{total} = {total} + {x} * {weight};")
                if shared:
                    steps.write(f"{line[c]} = {line[c]} + {total} * {shared};")

    def _scaled(self, last: list[Index], block: Block) -> tuple[str, str]:
        """A weight as a number and its scale; "" where it has none."""
        t, at = self.t.args[1], where_of(self.t, 1, last)
        while t.prim in ("reshape", "transpose", "slice", "broadcast"):
            ((t, at),) = operand_indices(t, at)
        if t.prim != "mul" or t.dtype is not DType.FLOAT:
            return self._factor(1, last, block), ""
        x, y = (self.value(a, at, block) for a in t.args)
        return x, y

    def _factor(self, side: int, last: list[Index], block: Block) -> str:
        x = self.t.args[side]
        return self.elements.cast(self.value(x, where_of(self.t, side, last), block), x.dtype, self.t.dtype, block)

    def _store(self, out: str, total: str, block: Block) -> None:
        """The element of the root that comes of the sum at (z, gm, gn)."""
        found = sum_indices(self.root, self.t)
        assert found is not None
        at, self.over_pin = found
        self.pinned, self.plainly = {id(self.t): total}, False
        value = self.value(self.root, at, block)
        self.store(out, self.root.dtype, self.index(linear(at, self.root.shape), block), value, block)

    def _given(self, out: str, sums: list[list[str]]) -> None:
        """A thread has whole sums; one text serves its rows."""
        d, rows = self.dialect, Block(self.top)
        mine = []
        for c in range(self.columns):
            text = sums[-1][c]
            for m in range(self.m - 2, -1, -1):
                text = d.select(f"(r == {m})", sums[m][c], text)
            mine.append(self.elements.let(rows, text, Kind.F32))
        rows.write(d.let("gm", Kind.I32, "r"))
        for c, total in enumerate(mine):
            inside = Block(rows, ("gm", "gn", "pin"))
            inside.write(d.let("gn", Kind.I32, f"column + {c}"))
            self._store(out, total, inside)
            rows.nest(f"if (column + {c} < {self.number(self.n)}) {{", inside)
        self.top.nest(d.loop("r", "0", str(self.m)), rows)

    def _added(self, out: str, sums: list[list[str]]) -> None:
        """Threads put their sums side by side, and each adds up those of some elements."""
        d, top = self.dialect, self.top
        shared = self.share(Kind.F32, THREADS * self.m * self.columns)
        for m, line in enumerate(sums):
            for c, total in enumerate(line):
                top.write(f"{shared}[{(m * self.columns + c) * THREADS} + {d.local}] = {total};")
        top.write(d.barrier)
        each = Block(top)
        each.write(
            d.let("gm", Kind.I32, f"o / {self.across}"),
            d.let("place", Kind.I32, f"o % {self.across}"),
            d.let("gn", Kind.I32, f"{d.group[0]} * {self.across} + place"),
        )
        number, of = f"(gm * {self.columns} + place % {self.columns})", f"place / {self.columns} * {self.lanes}"
        each.write(d.let("first", Kind.I32, f"{number} * {THREADS} + {of}"))
        total = self.elements.variable(each, self.elements.literal(0, Kind.F32), Kind.F32)
        adding = Block(each)
        adding.write(f"{total} = {total} + {shared}[first + l];")
        each.nest(d.loop("l", "0", str(self.lanes)), adding)
        inside = Block(each, ("gm", "gn", "pin"))
        self._store(out, total, inside)
        each.nest(f"if (gn < {self.number(self.n)}) {{", inside)
        top.nest(d.loop("o", d.local, str(self.m * self.across), str(THREADS)), each)
