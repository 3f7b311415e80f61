"""Four neighbours along the last axis for each thread: element-wise kernels by vectors, window sums that share what they read.

- Element-wise: memory is read and written four elements at a time; what does not change along the last axis (a bias per
  channel) is read once for the four. Where any element would have to be read by itself, `map_kernel` is the better schedule.
- Sums over windows (depthwise convolutions, pooling): written out, so that neighbours share elements and their bounds, and
  no index is divided at run time: 18 loads for four elements of a 3 x 3 window instead of 36.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia.codegen.clike.dialect import Dialect
from intarsia.codegen.clike.kinds import KINDS, Kind
from intarsia.codegen.clike.schedules import THREADS, Kernel, _extent, _finished, _flat, _grid
from intarsia.codegen.clike.values import AS_THEY_ARE, Values
from intarsia.codegen.clike.writer import Block
from intarsia.codegen.collapse import collapse
from intarsia.codegen.loop_index import ELEMENTWISE, ZERO, Index, add, linear, may_miss, regroup, scale
from intarsia.codegen.loop_values import stripped
from intarsia.kernel.lang import Tensor, walk

LANES = 4
_MOST_TERMS = 64  # of a window
_MOST_PRIMITIVES = 40
_LEAST = 1 << 12  # elements: fewer are no work for a device as it is
_PLAIN = ELEMENTWISE | frozenset("input scalar iota broadcast expand reshape transpose slice pad".split())


def lane_kernel(dialect: Dialect, root: Tensor) -> Kernel | None:
    """The kernel, or None where a thread for each element is better."""
    (root,) = collapse([stripped(root)])
    order = walk([root])
    plain = all(t.prim in _PLAIN for t in order)
    if not plain and not _is_window_sum(order):
        return None
    if len(order) > _MOST_PRIMITIVES or dialect.packed(root.dtype) > 1 or _extent(*root.shape) < _LEAST:
        return None
    last = _extent(root.shape[-1])
    whole = last % LANES == 0 and bool(dialect.vector_of(root.dtype))
    if last < LANES or plain and not whole:
        return None
    trial = _Lanes(dialect, root, whole)
    kernel = trial.kernel()
    if plain and (trial.scattered or not trial.vectors):
        return None
    if not dialect.typed_buffers:
        return kernel
    return _Lanes(dialect, root, whole, trial.vectors - trial.scattered).kernel()


def _is_window_sum(order: Sequence[Tensor]) -> bool:
    sums = [t for t in order if t.prim in ("dot", "reduce")]
    if len(sums) != 1 or not any(t.prim == "windows" for t in order) or any(t.prim not in _SUMS for t in order):
        return False
    return _terms(sums[0]) <= _MOST_TERMS


_SUMS = _PLAIN | frozenset(("windows", "dot", "reduce"))


def _terms(t: Tensor) -> int:
    shape = t.args[0].shape
    return _extent(shape[-1]) if t.prim == "dot" else _extent(*(shape[a] for a in t.attrs[1]))


class _Lanes(Values):
    """Values at indices whose last one is a number more than a multiple of four.

    Attributes:
        vectors, scattered: leaves that were read by vectors, and those of which lanes read an element each.
    """

    def __init__(self, dialect: Dialect, root: Tensor, whole: bool, vectors: frozenset[object] = frozenset()) -> None:
        super().__init__(dialect)
        self.root, self.whole = root, whole
        self.vector_leaves = set(vectors)
        self.vectors: frozenset[object] = frozenset()
        self.scattered: frozenset[object] = frozenset()
        self.sizes_of = [_extent(d) for d in root.shape]
        self.bounds: dict[str, int] = {}

    def kernel(self) -> Kernel:
        d, sizes = self.dialect, self.sizes_of
        out = self.output(self.root.dtype, sizes, self.whole and d.typed_buffers)
        groups = -(-sizes[-1] // LANES)
        total = _extent(*sizes[:-1]) * groups
        block = _flat(self, "w", THREADS, total, self.top)
        outer, start = self._places(block, groups)
        values = []
        for lane in range(LANES):
            at = [*outer, add(start, ("c", lane))]
            values.append((self.value(self.root, at, block), at))
        if self.whole:
            parts = [self._stored(value, block) for value, _ in values]
            self.write_vector(out, self.root.dtype, "w", parts, block)
        else:
            for value, at in values:
                self.store(out, self.root.dtype, self.index(_plain(linear(at, sizes), self.bounds), block), value, block)
        return _finished(self, _grid(d, -(-total // THREADS)), THREADS)

    def _places(self, block: Block, groups: int) -> tuple[list[Index], Index]:
        """A variable for each axis, and the first of this thread's places along the last one.

        A last group that is not whole begins earlier: what it shares with the one before is the same.
        """
        d, sizes = self.dialect, self.sizes_of
        total = _extent(*sizes[:-1]) * groups
        *outer, last = regroup([("v", "w")], [total], [*sizes[:-1], groups])
        names: list[Index] = []
        for i, (index, size) in enumerate(zip([*outer, last], [*sizes[:-1], groups], strict=True)):
            if index == ZERO:
                names.append(ZERO)
                continue
            block.write(d.let(f"a{i}", Kind.I32, self.index(index, block)))
            block.names.add(f"a{i}")
            self.bounds[f"a{i}"] = size - 1
            names.append(("v", f"a{i}"))
        if self.whole:
            return names[:-1], scale(names[-1], LANES)
        limit = self.number(sizes[-1] - LANES)
        first = self.index(scale(names[-1], LANES), block)
        block.write(d.let("start", Kind.I32, d.select(f"({first} < {limit})", first, limit)))
        block.names.add("start")
        self.bounds["start"] = sizes[-1] - LANES
        return names[:-1], ("v", "start")

    def _stored(self, value: str, block: Block) -> str:
        dtype = self.root.dtype
        return value if dtype in AS_THEY_ARE else self.elements.to_bits(value, dtype, block)

    # --- values ---

    def value(self, t: Tensor, at: Sequence[Index], block: Block) -> str:
        return super().value(t, [_plain(i, self.bounds) for i in at], block)

    def index(self, index: Index, block: Block) -> str:
        return super().index(_plain(index, self.bounds), block)

    def _write_input(self, t: Tensor, at: list[Index], block: Block) -> str:
        offset = _plain(linear(at, t.shape), self.bounds)
        rest, number = apart(offset)
        count, kind = _extent(*t.shape), self.dialect.vector_of(t.dtype)
        lane = number % LANES
        base = add(rest, ("c", number - lane)) if number != lane else rest
        varies = any(_has(offset, name) for name in self._last())
        if varies and self.whole and kind and count % LANES == 0 and _is_multiple(rest) and not may_miss(offset):
            self.vectors |= {t.attrs[0]}
            name = self._vector(t, base, count, block)
            return self.decoded(f"{name}.{'xyzw'[lane]}", t.dtype, block)
        if varies:
            self.scattered |= {t.attrs[0]}
        return super()._write_input(t, at, block)

    def _guarded(self, t: Tensor, at: list[Index], block: Block) -> str:
        """Only where lanes read an element each: what is not padded along the last axis may be read by vectors."""
        last = self._last()
        if not any(_has(i, n) for i, low, high in zip(at, *t.attrs, strict=True) if low or high for n in last):
            return ""
        found = super()._guarded(t, at, block)
        if found:
            self.scattered |= {t.args[0].attrs[0]}
        return found

    def _last(self) -> list[str]:
        return [n for n in (f"a{len(self.sizes_of) - 1}", "start") if n in self.bounds]

    def _vector(self, t: Tensor, base: Index, count: int, block: Block) -> str:
        place = block.place(self.names(base))
        key = ("vector", t.attrs[0], base)
        known = place.memo.get(key)
        if known is None:
            known = place.memo[key] = self.elements.fresh("w")
            text = self.read_vector(t.attrs[0], t.dtype, count, self.index(base, place))
            place.write(self.dialect.let_vector(known, text, self.dialect.vector_of(t.dtype)))
        return known

    # --- sums, written out ---

    def _reduction(
        self,
        t: Tensor,
        op: str,
        extents: list[int],
        element: Callable[[list[Index], Block], str],
        at: list[Index],
        block: Block,
    ) -> str:
        total = self.elements.variable(block, self.identity(op, t.dtype), KINDS[t.dtype])
        terms = _extent(*extents)
        for n in range(terms):
            where = [_plain(i, self.bounds) for i in regroup([("c", n)], [terms], extents)]
            value = element(where, block)
            block.write(f"{total} = {self.combined(op, total, value, t.dtype, block)};")
        return total


# --- indices ----------------------------------------------------------------------------------------------------------


def apart(index: Index) -> tuple[Index, int]:
    """An index as a number and what depends on variables."""
    if index[0] == "c":
        return ZERO, index[1]
    if index[0] == "+":
        (a, m), (b, n) = apart(index[1]), apart(index[2])
        return add(a, b), m + n
    if index[0] == "*" and isinstance(index[2], int):
        rest, number = apart(index[1])
        return scale(rest, index[2]), number * index[2]
    return index, 0


def _summands(index: Index, factor: int = 1) -> list[tuple[Index, int]]:
    """A sum of products as its parts, each with a factor."""
    if index[0] == "+":
        return [*_summands(index[1], factor), *_summands(index[2], factor)]
    if index[0] == "*" and isinstance(index[2], int):
        return _summands(index[1], factor * index[2])
    return [(("c", 1), factor * index[1])] if index[0] == "c" else [(index, factor)]


def _plain(index: Index, bounds: dict[str, int]) -> Index:
    """The same index: one sum, numbers behind all others, without divisions whose result is a part of the sum."""
    kind = index[0]
    if kind in ("/", "%") and isinstance(index[2], int):
        inner, size = _plain(index[1], bounds), max(index[2], 1)
        parts = _summands(inner)
        multiples = [(i, n) for i, n in parts if n % size == 0 and i != ("c", 1)]
        others = [(i, n) for i, n in parts if n % size and i != ("c", 1)]
        number = sum(n for i, n in parts if i == ("c", 1))
        most = _most(others, bounds)
        if most is not None and 0 <= number % size + most < size:
            if kind == "/":
                return _sum([(i, n // size) for i, n in multiples], number // size)
            return _sum(others, number % size)
        return (kind, inner, index[2])
    if kind in ("+", "*"):
        parts = _summands((kind, _plain(index[1], bounds), _plain(index[2], bounds) if kind == "+" else index[2]))
        return _sum([p for p in parts if p[0] != ("c", 1)], sum(n for i, n in parts if i == ("c", 1)))
    if kind == "clamp":
        return (kind, _plain(index[1], bounds), index[2])
    return index


def _sum(parts: Sequence[tuple[Index, int]], number: int) -> Index:
    total: Index = ZERO
    for index, factor in parts:
        total = add(total, scale(index, factor))
    return add(total, ("c", number))


def _most(parts: Sequence[tuple[Index, int]], bounds: dict[str, int]) -> int | None:
    """The largest value of a sum whose parts are not negative; None where that is not known."""
    total = 0
    for index, factor in parts:
        if index[0] != "v" or index[1] not in bounds or factor < 0:
            return None
        total += factor * bounds[index[1]]
    return total


def _is_multiple(index: Index) -> bool:
    return all(n % LANES == 0 for _, n in _summands(index))


def _has(index: Index, name: str) -> bool:
    return index == ("v", name) or any(_has(i, name) for i in index[1:] if isinstance(i, tuple) and i and isinstance(i[0], str))
