"""Kernels from primitive graphs: how the work of one result is divided among threads.

- `map_kernel`: a thread per element of the result (per word, where elements are packed).
- `row_kernel`: a group of threads per row: reductions by all of them, then the elements of the row (softmax, normalisation).
- `matmul.product_kernel`: matrix products.
- `scan_kernel`, `scatter_kernel`: what their names say; `sort`: in a module of its own.

Leaves are `input(name)` with any hashable name; every size is a number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from intarsia.codegen.clike.dialects.dialect import Dialect
from intarsia.codegen.clike.storage_types import KINDS, Kind
from intarsia.codegen.clike.values import Values
from intarsia.codegen.clike.writer import Block
from intarsia.codegen.loops.collapse_axes import collapse
from intarsia.codegen.loops.element_values import stripped
from intarsia.codegen.loops.index_expr import Index, linear, operand_indices, regroup
from intarsia.graph.dims import Dim, number_of, product
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives.lang import Tensor, walk

THREADS = 64


@dataclass(frozen=True)
class Kernel:
    """A printed kernel and how it is launched.

    Attributes:
        source: the text; equal for kernels that differ in sizes only. Entry point "main_kernel".
        operands: names of the leaves, in the order of their buffers; then come the outputs, the sizes (int32) where there are
            any, and the status word (uint32, set to a number of `faults` where data is wrong) where `checked`.
        outputs: how many results.
        sizes: values of the parameters.
        groups: the grid.
        threads: of one group.
        windows: how many bindings each operand and output has; all but the last have `window_nbytes`.
        updates: the output's former content is read: the kernel works in place.
        call: a vendor's library computes it (`library`): there is no kernel to compile, and `source` is what is requested.
        shared_nbytes: memory that a group shares and that its launch requests, besides what the text declares.
    """

    source: str
    operands: tuple[object, ...]
    outputs: int
    sizes: tuple[int, ...]
    groups: tuple[int, int, int]
    threads: int
    checked: bool
    windows: tuple[int, ...]
    window_nbytes: int
    updates: bool = False
    call: Any = None
    shared_nbytes: int = 0


def _finished(v: Values, groups: tuple[int, int, int], threads: int, updates: bool = False) -> Kernel:
    if v.unfinished is not None:
        v.top.nest(*v.unfinished)
    windows = tuple(b.windows for b in (*v.operands.values(), *v.outputs))
    window_nbytes = v.dialect.limits.window_nbytes
    source, shared_nbytes = v.source(threads)
    return Kernel(
        source, tuple(v.operands), len(v.outputs), tuple(v.sizes), groups, threads, v.checked, windows, window_nbytes, updates,
        shared_nbytes=shared_nbytes,
    )  # fmt: skip


def _extent(*shape: Dim) -> int:
    """Elements of a tensor: sizes are numbers where kernels are printed."""
    return number_of(product(shape))


def _grid(dialect: Dialect, groups: int) -> tuple[int, int, int]:
    """So many groups, in two dimensions where one is not enough."""
    most = dialect.limits.groups
    return (groups, 1, 1) if groups <= most else (most, -(-groups // most), 1)


def _flat(v: Values, name: str, threads: int, total: int, block: Block) -> Block:
    """A block in which `name` counts up to `total`, one for each thread of the grid (`threads` of 1: each group)."""
    d = v.dialect
    group = f"({d.group[1]} * {d.groups_across} + {d.group[0]})"
    start = f"({group} * {threads} + {d.local})" if threads > 1 else group
    block.write(d.let(name, Kind.I32, start))
    limit = v.number(total)
    inner = Block(block, (name,))
    v.unfinished = (f"if ({name} < {limit}) {{", inner)  # what depends on no index is written before it
    return inner


def _coordinates(v: Values, flat: str, shape: Sequence[Dim], block: Block) -> list[Index]:
    """Indices into `shape` of the element number `flat`."""
    at = regroup([("v", flat)], [_extent(*shape)], shape)
    block.memo["index", linear(at, shape)] = flat
    return at


def map_kernel(dialect: Dialect, roots: Sequence[Tensor]) -> Kernel:
    """Roots of one shape; reductions in them run in the thread."""
    roots = collapse([stripped(r) for r in roots])
    v = Values(dialect)
    shape = roots[0].shape
    total = _extent(*shape)
    many = max(dialect.packed(r.dtype) for r in roots)
    outputs = [v.output(r.dtype, r.shape) for r in roots]
    words = -(-total // many)
    block = _flat(v, "i" if many == 1 else "w", THREADS, words, v.top)
    if many == 1:
        at = _coordinates(v, "i", shape, block)
        for root, out in zip(roots, outputs, strict=True):
            v.store(out, root.dtype, "i", v.value(root, at, block), block)
    else:
        assert len(roots) == 1, "packed results are written by kernels of their own"
        _packed_word(v, roots[0], outputs[0], many, total, block)
    return _finished(v, _grid(dialect, -(-words // THREADS)), THREADS)


def _packed_word(v: Values, root: Tensor, out: str, many: int, total: int, block: Block) -> None:
    """`many` neighbouring elements as one word; behind the last element it is repeated."""
    e, width = v.elements, 32 // many
    word = e.variable(block, "0u", Kind.U32)
    inner = Block(block, ("i",))
    last = v.number(total - 1)
    inner.write(v.dialect.variable("i", Kind.I32, f"(w * {many} + e)"), f"if (i > {last}) {{ i = {last}; }}")
    at = _coordinates(v, "i", root.shape, inner)
    bits = e.to_bits(v.value(root, at, inner), root.dtype, inner)
    inner.write(f"{word} = {word} | ({bits} << {v.dialect.shift(f'(e * {width})', Kind.I32)});")
    block.nest(v.dialect.loop("e", "0", str(many)), inner)
    v.write(out, "w", word, block)


# --- rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Which axes of a root count rows, and which run along a row; all reductions are of whole rows."""

    root: Tensor
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    length: int  # of the longest reduction


def reductions(root: Tensor) -> list[tuple[Tensor, frozenset[str], bool]]:
    """Reductions that an element of `root` needs: with the axes ("v0", "v1", ...) that each depends on, and whether it is
    inside another one and depends on what that one runs over."""
    v = Values(Dialect())
    found: list[tuple[Tensor, frozenset[str], bool]] = []
    seen: set[object] = set()

    def visit(t: Tensor, at: list[Index]) -> None:
        key = (id(t), tuple(at))
        if key in seen:
            return
        seen.add(key)
        for i in at:
            look(i)
        if t.prim in ("reduce", "dot"):
            names = frozenset[str]().union(*(v.names(i) for i in at))
            found.append((t, frozenset(n for n in names if n[0] == "v"), any(n[0] == "r" for n in names)))
            if t.prim == "reduce":
                remaining = iter(at)
                visit(t.args[0], [("v", f"r{i}") if i in t.attrs[1] else next(remaining) for i in range(t.args[0].rank)])
            return
        for operand, where in operand_indices(t, at):
            visit(operand, where)

    def look(index: Index) -> None:
        """Reductions in tensors of indices."""
        if index[0] == "at":
            visit(index[1], list(index[2]))
        else:
            for part in index[1:]:
                if isinstance(part, tuple):
                    look(part)

    visit(root, [("v", f"v{i}") for i in range(root.rank)])
    return found


def rows_of(root: Tensor) -> Rows | None:
    """How `root` is computed row by row; None where its reductions are not all of one kind of row."""
    (root,) = collapse([stripped(root)])
    found = reductions(root)
    if not found or any(nested or t.prim != "reduce" for t, _, nested in found):
        return None
    names = frozenset[str]().union(*(deps for _, deps, _ in found))
    sizes = [_extent(d) for d in root.shape]
    outer = tuple(i for i, d in enumerate(sizes) if d != 1 and f"v{i}" in names)
    inner = tuple(i for i, d in enumerate(sizes) if d != 1 and f"v{i}" not in names)
    length = max(_extent(*(t.args[0].shape[a] for a in t.attrs[1])) for t, _, _ in found)
    return Rows(root, outer, inner, length)


def row_kernel(dialect: Dialect, rows: Rows) -> Kernel:
    """A group per row. The root must not be packed."""
    kernel, seen = _row_kernel(dialect, rows, ())
    return _row_kernel(dialect, rows, seen)[0] if seen else kernel


def _row_kernel(dialect: Dialect, rows: Rows, order: Sequence[tuple[Tensor, Sequence[Index]]]) -> tuple[Kernel, list[Any]]:
    """The kernel, and the reductions that it needs in the order in which they are computed where a row is worth keeping: given
    as `order`, they are written first, so that what they compute is there for those behind them."""
    root = rows.root
    sizes = [_extent(d) for d in root.shape]
    v = _RowValues(dialect, root)
    out = v.output(root.dtype, root.shape)
    count, length = (_extent(*(sizes[i] for i in axes)) for axes in (rows.outer, rows.inner))
    threads = 32 if max(rows.length, length) <= 256 else min(256, dialect.limits.threads)
    d = dialect
    together = _ROWS_TOGETHER if threads == d.warp and count >= _MANY_ROWS else 1
    group = f"({d.group[1]} * {d.groups_across} + {d.group[0]})"
    if together > 1:  # a warp for each row, and nothing that warps of a group wait for
        v.top.write(d.let("lane", Kind.I32, f"({d.local} % {d.warp})"), d.let("warp", Kind.I32, f"({d.local} / {d.warp})"))
        group = f"({group} * {together} + warp)"
    lane = "lane" if together > 1 else d.local
    v.top.write(d.let("row", Kind.I32, group))
    body = Block(v.top, ("row",))
    v.cooperative = (body, _RowReduction(v, threads, lane))
    v.make_room(threads, together, bool(order))
    outer = regroup([("v", "row")], [count], [sizes[i] for i in rows.outer])
    inner = regroup([("v", "j")], [length], [sizes[i] for i in rows.inner])
    at: list[Index] = [("c", 0)] * root.rank
    for axes, indices in ((rows.outer, outer), (rows.inner, inner)):
        for axis, index in zip(axes, indices, strict=True):
            at[axis] = index
    for reduction, where in order:
        v.value(reduction, where, body)
    along = Block(body, ("j",))
    value = v.value(root, at, along)
    place = v.index(linear(at, root.shape), along)
    v.store(out, root.dtype, place, value, along)
    body.nest(d.loop("j", lane, v.number(length), str(threads)), along)
    grid = _grid(dialect, -(-count // together))
    # The same for a whole group, so that there may be barriers in it; but pocl 3.1 compiles some of these wrongly.
    v.top.nest("{" if math.prod(grid) * together == count else f"if (row < {v.number(count)}) {{", body)
    return _finished(v, grid, threads * together), v.seen if v.wanted else []


class _RowValues(Values):
    """What several loops over a row need is computed in the first one, and retained in memory that the group shares.

    Each thread reads again only what it wrote: all loops deal a row's elements out alike.

    Attributes:
        wanted: there is something to keep.
        seen: reductions and their indices, in the order in which they were written.
    """

    def __init__(self, dialect: Dialect, root: Tensor) -> None:
        super().__init__(dialect)
        self._retained: dict[int, _Retained] = {}
        self.seen: list[tuple[Tensor, list[Index]]] = []
        order = walk([root])
        uses = Counter(id(a) for t in order for a in t.args)
        for t in order:
            if t.prim == "reduce" and len(t.attrs[1]) == 1 and uses[id(t.args[0])] > 1 and _is_worth_keeping(t.args[0]):
                self._retained.setdefault(id(t.args[0]), _Retained(t.args[0], t.attrs[1][0]))
        self.wanted = bool(self._retained)

    def _write_reduce(self, t: Tensor, at: list[Index], block: Block) -> str:
        found = super()._write_reduce(t, at, block)
        self.seen.append((t, at))
        return found

    def make_room(self, threads: int, together: int, some: bool) -> None:
        """As far as there is some, in steps of powers of two: rows of many lengths are one text. `together`: a group's rows."""
        if not some:
            self._retained.clear()
            return
        self.together = together
        left = (min(self.dialect.limits.shared_nbytes, _MOST_RETAINED) - 8 * threads) // (4 * together)
        for key, retained in list(self._retained.items()):
            room = 1 << max(_extent(retained.tensor.shape[retained.axis]) - 1, 0).bit_length()
            if room > left:
                del self._retained[key]
            else:
                left -= room
                retained.room = room

    def value(self, t: Tensor, at: Sequence[Index], block: Block) -> str:
        retained = self._retained.get(id(t))
        if retained is None or at[retained.axis][0] != "v" or at[retained.axis][1] not in block.names:
            return super().value(t, at, block)
        name, others = at[retained.axis][1], [*at[: retained.axis], *at[retained.axis + 1 :]]
        known = block.memo.get(("retained", id(t), name))
        if known is None:
            if retained.loop and others == retained.others:
                known = self.elements.let(block, self._place_of(retained, name), KINDS[t.dtype])
            else:
                known = super().value(t, at, block)
                if not retained.loop:
                    retained.loop, retained.others = name, others
                    retained.shared = self.share(KINDS[t.dtype], retained.room * self.together)
                    block.write(f"{self._place_of(retained, name)} = {known};")
            if others == retained.others:
                block.memo["retained", id(t), name] = known
        return known

    together = 1

    def _place_of(self, retained: _Retained, name: str) -> str:
        return f"{retained.shared}[{f'warp * {retained.room} + ' if self.together > 1 else ''}{name}]"


_ROWS_TOGETHER, _MANY_ROWS = 4, 1024  # rows of a group where a warp has a row, and from how many rows on


@dataclass
class _Retained:
    """A tensor along one of whose axes a row runs.

    Attributes:
        room: elements that there is memory for.
        loop: variable of the loop that computes it; "" before there is one.
        others: its indices along the other axes there.
    """

    tensor: Tensor
    axis: int
    room: int = 0
    loop: str = ""
    others: Sequence[Index] = ()
    shared: str = ""


_MOST_RETAINED = 16384  # bytes of shared memory for what is retained: so that many groups run at a time


def _is_worth_keeping(t: Tensor) -> bool:
    """Whether computing it again takes longer than reading it; what lies in memory is in a cache by then."""
    in_words = KINDS[t.dtype] is not Kind.BOOL and KINDS[t.dtype].bits == 32
    return in_words and any(x.prim in _COSTLY for x in walk([t]))


_COSTLY = frozenset("exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf pow atan2 mod fmod".split())


@dataclass(frozen=True)
class _RowReduction:
    """Reductions by all threads of a row: each its share, then halves upon halves, in a warp or through shared memory. `lane`
    is a thread's number in the row."""

    values: Values
    threads: int
    lane: str

    def __call__(
        self, t: Tensor, op: str, extents: list[int], element: Callable[[list[Index], Block], str], block: Block
    ) -> str:
        v, threads = self.values, self.threads
        kind, d = KINDS[t.dtype], v.dialect
        partial = v.elements.variable(block, v.identity(op, t.dtype), kind)
        name, total = v.elements.fresh("k"), _extent(*extents)
        inner = Block(block, (name,))
        value = element(regroup([("v", name)], [total], extents), inner)
        inner.write(f"{partial} = {v.combined(op, partial, value, t.dtype, inner)};")
        block.nest(d.loop(name, self.lane, v.number(total), str(threads)), inner)
        if d.warp:
            return self._by_warps(t, op, partial, block)
        held = Kind.U32 if kind is Kind.BOOL else kind
        shared = v.partials.get(held) or v.partials.setdefault(held, v.share(held, threads))

        def stored(x: str) -> str:
            return d.select(x, "1u", "0u") if kind is Kind.BOOL else x

        def loaded(at: str, inside: Block) -> str:
            return v.elements.let(inside, f"({shared}[{at}] != 0u)" if kind is Kind.BOOL else f"{shared}[{at}]", kind)

        block.write(d.barrier, f"{shared}[{d.local}] = {stored(partial)};", d.barrier)
        halves = Block(block)
        halves.write(d.let("apart", Kind.I32, f"{threads // 2} >> {d.shift('h', Kind.I32)}"))
        step = Block(halves)
        both = v.combined(op, loaded(d.local, step), loaded(f"{d.local} + apart", step), t.dtype, step)
        step.write(f"{shared}[{d.local}] = {stored(both)};")
        halves.nest(f"if ({d.local} < apart) {{", step)
        halves.write(d.barrier)
        block.nest(d.loop("h", "0", str(threads.bit_length() - 1)), halves)
        return loaded("0", block)

    def _by_warps(self, t: Tensor, op: str, partial: str, block: Block) -> str:
        """What the threads of a row have, reduced: all of them get the same."""
        v, threads = self.values, self.threads
        kind, d = KINDS[t.dtype], v.dialect
        step = Block(block)
        if kind is Kind.BOOL:
            theirs = f"({d.exchanged(d.select(partial, '1u', '0u'), 'apart')} != 0u)"
        else:
            theirs = d.exchanged(partial, "apart")
        step.write(f"{partial} = {v.combined(op, partial, v.elements.let(step, theirs, kind), t.dtype, step)};")
        block.write("#pragma unroll")
        block.nest(f"for (int apart = {d.warp // 2}; apart > 0; apart /= 2) {{", step)
        if threads <= d.warp:
            return partial
        held = Kind.U32 if kind is Kind.BOOL else kind
        shared = v.partials.get(held) or v.partials.setdefault(held, v.share(held, threads // d.warp))
        stored = d.select(partial, "1u", "0u") if kind is Kind.BOOL else partial
        first = f"if ({d.local} % {d.warp} == 0) {{ {shared}[{d.local} / {d.warp}] = {stored}; }}"
        block.write(d.barrier, first, d.barrier)
        total = ""
        for i in range(threads // d.warp):
            one = v.elements.let(block, f"({shared}[{i}] != 0u)" if kind is Kind.BOOL else f"{shared}[{i}]", kind)
            total = v.combined(op, total, one, t.dtype, block) if total else one
        return total


# --- in order ---------------------------------------------------------------------------------------------------------


def scan_kernel(dialect: Dialect, root: Tensor) -> Kernel:
    """A thread per line along the scanned axis. The root must not be packed."""
    op, axis, exclusive, reverse = root.attrs
    v, sizes = Values(dialect), [_extent(d) for d in root.shape]
    out = v.output(root.dtype, root.shape)
    others = [i for i in range(root.rank) if i != axis]
    count = _extent(*(sizes[i] for i in others))
    block = _flat(v, "line", THREADS, count, v.top)
    places = iter(regroup([("v", "line")], [count], [sizes[i] for i in others]))
    at: list[Index] = [("v", "j") if i == axis else next(places) for i in range(root.rank)]
    running = v.elements.variable(block, v.identity(op, root.dtype), KINDS[root.dtype])
    step = Block(block, ("j",))
    step.write(v.dialect.let("j", Kind.I32, f"{v.number(sizes[axis])} - 1 - s" if reverse else "s"))
    value = v.value(root.args[0], at, step)
    place = v.index(linear(at, root.shape), step)
    if exclusive:
        v.store(out, root.dtype, place, running, step)
    step.write(f"{running} = {v.combined(op, running, value, root.dtype, step)};")
    if not exclusive:
        v.store(out, root.dtype, place, running, step)
    block.nest(v.dialect.loop("s", "0", v.number(sizes[axis])), step)
    return _finished(v, _grid(dialect, -(-count // THREADS)), THREADS)


def scatter_kernel(dialect: Dialect, root: Tensor) -> Kernel:
    """The updates of a scatter, in place on a copy of its first operand.

    A thread per update where none reads what another wrote and elements are not packed; else one thread, in order.
    """
    _, updates, *indices = root.args
    v, many = Values(dialect), dialect.packed(root.dtype)
    out = v.output(root.dtype, root.shape)
    sizes = [_extent(d) for d in updates.shape]
    count, alone = _extent(*sizes), root.attrs[0] != "none" or many > 1
    if alone:
        block = Block(v.top, ("i",))
    else:
        block = _flat(v, "i", THREADS, count, v.top)
    at = _coordinates(v, "i", sizes, block)
    where: list[Index] = [("checked", ("at", x, tuple(at)), d) for x, d in zip(indices, root.shape, strict=True)]
    place = v.index(linear(where, root.shape), block)
    value = v.value(updates, at, block)
    if root.attrs[0] != "none":
        before = v.load(out, root.dtype, place, block)
        value = v.elements.primitive(root.attrs[0], [before, value], root.dtype, root.dtype, block)
    if many == 1:
        v.store(out, root.dtype, place, value, block)
    else:
        _store_packed(v, root, out, place, value, many, block)
    if not alone:
        return _finished(v, _grid(dialect, -(-count // THREADS)), THREADS, updates=True)
    v.top.nest(v.dialect.loop("i", "0", v.number(count)), block)
    return _finished(v, (1, 1, 1), 1, updates=True)


def _store_packed(v: Values, root: Tensor, out: str, place: str, value: str, many: int, block: Block) -> None:
    """One element of a word, by the only thread that writes."""
    width, log, e = 32 // many, many.bit_length() - 1, v.elements
    bits = e.to_bits(value, root.dtype, block)
    shift = e.let(block, v.dialect.shift(f"(({place} & {many - 1}) * {width})", Kind.I32), Kind.U32)
    mask = f"({(1 << width) - 1}u << {shift})"
    at = f"{place} >> {log}u"
    v.write(out, at, f"({v.read(out, at)} & ~{mask}) | ({bits} << {shift})", block)
