"""What does not change along some axes of an output, but along its last one: computed once for many rows, stored on the stack.

The columns that an image is resized from, and their weights, are the same for all channels. So the loops along such axes
come inside the others: in front of them a row of each such value is computed, and the innermost loop reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from intarsia.codegen.loops.index_expr import ELEMENTWISE, Index, add, linear, may_miss, of_dim, operand_indices
from intarsia.graph.dims import Dim, product
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives.lang import Tensor

BLOCK = 32  # rows, at most, for which one is computed
_ELEMENTS = 4096  # of all rows together
_LEAST = 5  # operations for each element that a row must spare: it costs a load, and a store now and then
_WORTH = 8  # operations for each element that all rows together must spare
_SHARE, _SHARE_OUT_OF_ORDER = 5, 2  # and one of so many; the latter where the output's rows are then not written in order
_MOST = 16  # rows
_REDUCTIONS = frozenset(("reduce", "argreduce", "dot", "scan", "scatter"))
# Operations for an element in the time of an addition, roughly, in vectors.
_COSTS = {
    **dict.fromkeys("exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf fmod".split(), 20),
    "pow": 40,
    "atan2": 40,
    "mod": 10,
    "div": 5,
    "sqrt": 5,
}
_INDEX_COSTS = {"/": 8, "%": 8, "checked": 4, "clamp": 2, "1": 1, "+": 1, "*": 1}
_GATHERED = 4

Valued = tuple[int, tuple[Index, ...]]
Key = tuple[Any, ...]  # ("t", id of a tensor, indices), or ("i", index)


@dataclass(frozen=True)
class Rows:
    """Values to be stored in rows.

    Attributes:
        axes: the output's axes along which they do not change, whose loops therefore come inside the others.
        values: tensors, by (id, indices).
        indices: index expressions.
        names: of each value and index expression, the variables that it depends on.
    """

    axes: tuple[int, ...]
    values: dict[Valued, Tensor]
    indices: frozenset[Index]
    names: dict[Valued | Index, frozenset[str]]

    @property
    def chunk(self) -> int:
        """Elements of the last axis for which the rows have room: a power of two."""
        return 1 << ((_ELEMENTS // len(self.names)).bit_length() - 1)


@dataclass
class _Part:
    """An expression: the variables it depends on, what it costs without its parts, and these."""

    names: frozenset[str]
    cost: int
    parts: list[Key] = field(default_factory=list)


def rows_of(roots: Sequence[Tensor], shape: Sequence[Dim], names: Sequence[str], inner: int) -> Rows | None:
    """What to keep in rows along axis `inner`, for roots computed at the variables `names`; None where it does not pay."""
    if all(d == 1 for n, d in enumerate(shape) if n != inner):
        return None
    walk = _Parts(names[inner])
    tops = [walk.tensor(r, [("v", n) for n in names]) for r in roots]
    if walk.reduces:
        return None
    variable = [n for n, d in enumerate(shape) if d != 1 and n != inner]
    everything = walk.spent(tops)
    best: tuple[float, Rows] | None = None
    for axes in walk.unused({names[n]: n for n in variable}):
        without = frozenset(names[n] for n in axes)
        chosen = walk.chosen(tops, without)
        spent, in_order = walk.spent(chosen), axes == tuple(variable[-len(axes) :])
        saved = spent - len(chosen)
        if len(chosen) > _MOST or spent < _LEAST * len(chosen) or saved < _WORTH:
            continue
        if saved * (_SHARE if in_order else _SHARE_OUT_OF_ORDER) < everything:
            continue
        score = saved * (1.0 if in_order else 0.8)
        if best is None or score > best[0]:
            best = score, walk.rows(axes, chosen)
    return None if best is None else best[1]


class _Parts:
    """All parts of some expressions, each once."""

    def __init__(self, row: str) -> None:
        self.row = row
        self.known: dict[Key, _Part] = {}
        self.reduces = False
        self.tensors: dict[int, Tensor] = {}
        self._totals: dict[Key, int] = {}

    def tensor(self, t: Tensor, at: list[Index]) -> Key:
        key: Key = ("t", id(t), tuple(at))
        if key in self.known:
            return key
        self.reduces |= t.prim in _REDUCTIONS
        self.tensors[id(t)] = t
        parts, cost = self._parts_of(t, at)
        names = frozenset().union(*(self.known[p].names for p in parts)) if parts else frozenset()
        self.known[key] = _Part(names, cost, parts)
        return key

    def _parts_of(self, t: Tensor, at: list[Index]) -> tuple[list[Key], int]:
        source = t
        while source.prim == "reshape":
            source = source.args[0]
        if source.prim in ("input", "table") and (t is source or source.prim == "input"):  # a dense buffer has any shape
            offset = linear(at, t.shape)
            if may_miss(offset):
                offset = ("clamp", offset, product(t.shape))
            return [self.index(offset)], _GATHERED if _strides(offset, self.row) else 1
        if t.prim == "iota":
            return [self.index(at[t.attrs[0]])], int(t.dtype.is_floating)
        parts = [self.tensor(a, i) for a, i in operand_indices(t, at)]
        if t.prim == "pad":
            moved = [self.index(add(i, of_dim(-low))) for i, low, high in zip(at, *t.attrs, strict=True) if low or high]
            return [*parts, *moved], 2 * len(moved)
        if t.prim == "concat":
            return [*parts, self.index(at[t.attrs[0]])], 2 * len(parts)
        integer = t.prim in ("div", "mod") and t.dtype.is_integer
        return parts, (10 if integer else _COSTS.get(t.prim, 1)) if t.prim in ELEMENTWISE else 0

    def index(self, index: Index) -> Key:
        key: Key = ("i", index)
        if key in self.known:
            return key
        kind, cost = index[0], _INDEX_COSTS.get(index[0], 0)
        parts: list[Key] = []
        names: frozenset[str] = frozenset()
        if kind == "v":
            names = frozenset((index[1],))
        elif kind == "at":
            parts, cost = [self.tensor(index[1], list(index[2]))], 1
        elif kind != "c":
            parts = [self.index(i) for i in index[1:] if isinstance(i, tuple)]
        for part in parts:
            names |= self.known[part].names
        self.known[key] = _Part(names, cost, parts)
        return key

    def rows(self, axes: tuple[int, ...], chosen: Sequence[Key]) -> Rows:
        values = {key[1:]: self.tensors[key[1]] for key in chosen if key[0] == "t"}
        names = {key[1:] if key[0] == "t" else key[1]: self.known[key].names for key in chosen}
        return Rows(axes, values, frozenset(key[1] for key in chosen if key[0] == "i"), names)

    # --- what they cost ---

    def total(self, key: Key) -> int:
        """Operations for each element of a row."""
        if key not in self._totals:
            self._totals[key] = self.spent([key])
        return self._totals[key]

    def spent(self, tops: Sequence[Key]) -> int:
        """Operations for each element of a row that these need, each part once."""
        seen: set[Key] = set()
        waiting, spent = list(tops), 0
        while waiting:
            key = waiting.pop()
            part = self.known[key]
            if key not in seen and self.row in part.names:
                seen.add(key)
                spent += part.cost
                waiting += part.parts
        return spent

    def unused(self, places: dict[str, int]) -> list[tuple[int, ...]]:
        """Sets of axes that something of a row's does not depend on."""
        found: dict[tuple[int, ...], None] = {}
        for key, part in self.known.items():
            if self.row in part.names and part.cost:
                axes = tuple(n for name, n in places.items() if name not in part.names)
                if axes and axes not in found and self.total(key) >= _LEAST:
                    found[axes] = None
        return list(found)

    def chosen(self, tops: Sequence[Key], without: frozenset[str]) -> list[Key]:
        """The largest parts that change along the row but not with these variables, and that cost enough."""
        found: list[Key] = []
        seen: set[Key] = set()
        waiting = list(tops)
        while waiting:
            key = waiting.pop()
            if key in seen or self.row not in self.known[key].names:
                continue
            seen.add(key)
            if self.known[key].names & without:
                waiting += self.known[key].parts
            elif self.total(key) >= _LEAST:
                found.append(key)
        return found


def _strides(index: Index, row: str) -> bool:
    """Whether neighbours along the row may not be neighbours at this index."""
    if index == ("v", row) or index[0] in ("c", "v"):
        return False
    if index[0] == "+":
        return _strides(index[1], row) or _strides(index[2], row)
    return _depends(index, row)


def _depends(index: Index, row: str) -> bool:
    if index[0] == "v":
        return bool(index[1] == row)
    parts = index[2] if index[0] == "at" else [i for i in index[1:] if isinstance(i, tuple)]
    return any(_depends(i, row) for i in parts)
