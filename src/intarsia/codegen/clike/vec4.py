"""Values of four neighbours: at indices that are a number more than a multiple of four, read by vectors where memory allows.

Indices are sums of products; how large variables become is known, so that divisions whose result is a part of a sum go away.
Where elements are packed in words, neighbours share the word that they lie in.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from intarsia.codegen.clike.dialects.dialect import Dialect
from intarsia.codegen.clike.storage_types import Kind
from intarsia.codegen.clike.values import AS_THEY_ARE, Values
from intarsia.codegen.clike.writer import Block
from intarsia.codegen.loops.index_expr import ZERO, Index, add, linear, may_miss, scale
from intarsia.graph.dims import number_of, product
from intarsia.graph.dtypes import DType
from intarsia.primitives.lang import Tensor

LANES = 4


class Fours(Values):
    """The text of a kernel with neighbours in it.

    Attributes:
        bounds: the most that a variable of indices is.
        along: variables that the four neighbours have in common; an element that depends on one is read by a vector.
        plainly: whether that is so from here on, or indices are left as they are.
        vectors, words, scattered: leaves that were read by vectors, and by words that elements are packed in, and those of
            which neighbours read an element each.
    """

    def __init__(self, dialect: Dialect, known: Collection[object] | None = None) -> None:
        """`known`: the leaves that are read by vectors, as a first printing has found them, where the dialect has to be told of
        them before (`typed_buffers`)."""
        super().__init__(dialect)
        self.vector_leaves = set(known or ())
        self._known = known
        self.bounds: dict[str, int] = {}
        self.along: Collection[str] = ()
        self.plainly = True
        self.vectors: frozenset[object] = frozenset()
        self.words: frozenset[object] = frozenset()
        self.scattered: frozenset[object] = frozenset()

    def define(self, name: str, index: Index, most: int, block: Block) -> None:
        """Give an index, which is at most `most`, a name in a block."""
        block.write(self.dialect.let(name, Kind.I32, self.index(index, block)))
        block.names.add(name)
        self.bounds[name] = most

    def plain(self, index: Index) -> Index:
        return _plain(index, self.bounds) if self.plainly else index

    def value(self, t: Tensor, at: Sequence[Index], block: Block) -> str:
        return super().value(t, [self.plain(i) for i in at], block)

    def index(self, index: Index, block: Block) -> str:
        return super().index(self.plain(index), block)

    def stored(self, value: str, dtype: DType, block: Block) -> str:
        """A value as an element of a vector in memory."""
        return value if dtype in AS_THEY_ARE else self.elements.to_bits(value, dtype, block)

    def store_four(
        self, out: str, root: Tensor, places: Sequence[Sequence[Index]], values: Sequence[str], block: Block
    ) -> None:
        """Four neighbours of a result, the first of which begins a vector (see `begins_vectors`)."""
        at = self.index(linear(list(places[0]), root.shape), block)
        parts = [self.stored(value, root.dtype, block) for value in values]
        self.write_vector(out, root.dtype, f"({at} >> 2u)", parts, block)

    def begins_vectors(self, root: Tensor, places: Sequence[Sequence[Index]]) -> bool:
        """Whether elements at these four places are a vector of a result in memory."""
        offsets = [split_number(self.plain(linear(list(at), root.shape))) for at in places]
        (rest, first), count = offsets[0], number_of(product(root.shape))
        return (
            bool(self.dialect.vector_of(root.dtype)) and count % LANES == 0 and first % LANES == 0 and is_multiple(rest)
            and not may_miss(rest) and offsets == [(rest, first + lane) for lane in range(LANES)]
        )  # fmt: skip

    def _write_input(self, t: Tensor, at: list[Index], block: Block) -> str:
        if not self.plainly:
            return super()._write_input(t, at, block)
        offset = self.plain(linear(at, t.shape))
        rest, number = split_number(offset)
        count, kind = number_of(product(t.shape)), self.dialect.vector_of(t.dtype)
        lane = number % LANES
        base = add(rest, ("c", number - lane)) if number != lane else rest
        varies = any(_has(offset, name) for name in self.along)
        allowed = self._known is None or t.attrs[0] in self._known
        if varies and allowed and kind and count % LANES == 0 and is_multiple(rest) and not may_miss(offset):
            self.vectors |= {t.attrs[0]}
            name = self._vector(t, base, count, block)
            return self.decoded(f"{name}.{'xyzw'[lane]}", t.dtype, block)
        many = self.dialect.packed(t.dtype)
        if varies and many > 1 and is_multiple(rest, many) and not may_miss(offset):
            self.words |= {t.attrs[0]}
            within = number % many
            word = self._word(t, add(rest, ("c", number - within)), count, many, block)
            shift = within * (32 // many)
            return self.elements.from_bits(f"({word} >> {shift}u)" if shift else word, t.dtype, block)
        if varies:
            self.scattered |= {t.attrs[0]}
        return super()._write_input(t, at, block)

    def _guarded(self, t: Tensor, at: list[Index], block: Block) -> str:
        """Only where neighbours read an element each: what is not padded along their axis may be read by vectors."""
        varies = [i for i in at if any(_has(i, name) for name in self.along)]
        if varies and not any(i in varies for i, low, high in zip(at, *t.attrs, strict=True) if low or high):
            return ""
        found = super()._guarded(t, at, block)
        if found and varies:
            self.scattered |= {t.args[0].attrs[0]}
        return found

    def _vector(self, t: Tensor, base: Index, count: int, block: Block) -> str:
        place = block.place(self.names(base))
        key = ("vector", t.attrs[0], base)
        known = place.memo.get(key)
        if known is None:
            known = place.memo[key] = self.elements.fresh("w")
            text = self.read_vector(t.attrs[0], t.dtype, count, self.index(base, place))
            place.write(self.dialect.let_vector(known, text, self.dialect.vector_of(t.dtype)))
        return known

    def _word(self, t: Tensor, base: Index, count: int, many: int, block: Block) -> str:
        """The word in which `many` elements lie, from place `base` on."""
        place = block.place(self.names(base))
        key = ("word", t.attrs[0], base)
        known = place.memo.get(key)
        if known is None:
            buffer = self.operand(t.attrs[0], t.dtype, count)
            at = f"{self.index(base, place)} >> {many.bit_length() - 1}u"
            known = place.memo[key] = self.elements.let(place, self.read(buffer, at), Kind.U32)
        return known


# --- indices ----------------------------------------------------------------------------------------------------------


def split_number(index: Index) -> tuple[Index, int]:
    """An index as a number and what depends on variables."""
    if index[0] == "c":
        return ZERO, index[1]
    if index[0] == "+":
        (a, m), (b, n) = split_number(index[1]), split_number(index[2])
        return add(a, b), m + n
    if index[0] == "*" and isinstance(index[2], int):
        rest, number = split_number(index[1])
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
        common = math.gcd(size, *(n for _, n in others))
        if common > 1 and others and number >= 0:  # (g x + r) / (g m) is x / m, where 0 <= r < g
            reduced = _sum([(i, n // common) for i, n in others], number // common)
            smaller = _summands(_plain((kind, reduced, size // common), bounds))
            if kind == "/":
                return _total([*((i, n // size) for i, n in multiples), *smaller])
            return _total([*((i, n * common) for i, n in smaller), (("c", 1), number % common)])
        return (kind, inner, index[2])
    if kind in ("+", "*"):
        parts = _summands((kind, _plain(index[1], bounds), _plain(index[2], bounds) if kind == "+" else index[2]))
        return _total(parts)
    if kind == "clamp":
        return (kind, _plain(index[1], bounds), index[2])
    return index


def _total(parts: Sequence[tuple[Index, int]]) -> Index:
    return _sum(_joined([p for p in parts if p[0] != ("c", 1)]), sum(n for i, n in parts if i == ("c", 1)))


def _joined(parts: list[tuple[Index, int]]) -> list[tuple[Index, int]]:
    """(x / n) n f + (x % n) f as x f: what is left of a shape that was changed and changed back."""
    for rest, factor in parts:
        if rest[0] != "%" or not isinstance(rest[2], int):
            continue
        whole = (_flat(("/", *rest[1:])), factor * rest[2])
        found = next((p for p in parts if p[0][0] == "/" and (_flat(p[0]), p[1]) == whole), None)
        if found is not None:
            others = [p for p in parts if p is not found and p != (rest, factor)]
            return _joined([*others, *_summands(rest[1], factor)])
    return parts


def _flat(index: Index) -> Index:
    """A quotient of a quotient as one."""
    while index[0] == "/" and index[1][0] == "/" and isinstance(index[2], int) and isinstance(index[1][2], int):
        index = ("/", index[1][1], index[1][2] * index[2])
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


def is_multiple(index: Index, of: int = LANES) -> bool:
    return all(n % of == 0 for _, n in _summands(index))


def _has(index: Index, name: str) -> bool:
    return index == ("v", name) or any(_has(i, name) for i in index[1:] if isinstance(i, tuple) and i and isinstance(i[0], str))
