"""Masks of attention that are bands of the scores, or begin and end with a text: found in comparisons of indices.

A comparison of integers that are sums of the row's index, the column's index, numbers, and values that are one for each text
is brought into the form  row_sign * row + column_sign * column + shift + base >= 0.
"""

from __future__ import annotations

from intarsia.lazy_dataclass import dataclass
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor


@dataclass(frozen=True)
class Band:
    """Who may attend whom, at `row` and `column` of the scores. `base`: an integer for each text, [batch, 1, 1, 1], or None.

    - "right": row + base + shift >= column;
    - "left": column + shift >= row + base;
    - "length": base + shift > column, or without base, shift > column.
    """

    kind: str
    shift: int
    base: Tensor | None = None


@dataclass(frozen=True)
class _Sum:
    """row * the row's index + column * the column's index + number + the values `parts`, each with its sign."""

    row: int = 0
    column: int = 0
    number: int = 0
    parts: tuple[tuple[int, Tensor], ...] = ()

    def plus(self, other: _Sum, sign: int = 1) -> _Sum:
        signed = tuple((sign * s, t) for s, t in other.parts)
        return _Sum(
            self.row + sign * other.row, self.column + sign * other.column, self.number + sign * other.number,
            (*self.parts, *signed),
        )  # fmt: skip


def band_of(mask: Tensor) -> Band | None:
    """The band that a mask [.., queries, keys] is; None for other masks."""
    mask = unspread(mask)
    if mask.prim == "not" or mask.prim not in ("le", "lt") or not mask.args[0].dtype.is_integer:
        return None
    low, high = (_sum(t, mask.rank) for t in mask.args)
    if low is None or high is None:
        return None
    found = high.plus(low, -1)  # >= 0, or > 0
    number = found.number - (mask.prim == "lt")
    signs, base = (found.row, found.column), _total(found.parts)
    if base is not None and (base[1].rank != 4 or any(d != 1 for d in base[1].shape[1:])):
        return None
    if signs == (1, -1) and (base is None or base[0] == 1):
        return Band("right", number, None if base is None else base[1])
    if signs == (-1, 1) and (base is None or base[0] == -1):
        return Band("left", number, None if base is None else base[1])
    if signs == (0, -1) and (base is None or base[0] == 1):
        return Band("length", number + 1, None if base is None else base[1])
    return None


def _total(parts: tuple[tuple[int, Tensor], ...]) -> tuple[int, Tensor] | None:
    """The one value, and its sign, that the parts are; several as a sum of the first one's sign."""
    if not parts:
        return None
    sign, total = parts[0]
    for s, t in parts[1:]:
        total = k.binary("add" if s == sign else "sub", total, t)
    return sign, total


def _sum(t: Tensor, rank: int) -> _Sum | None:
    if t.prim == "broadcast" and t.args[0].rank == t.rank or t.prim == "broadcast" and t.args[0].rank == 0:
        return _sum(t.args[0], rank)
    if t.prim == "iota" and t.rank == rank and t.attrs[0] >= rank - 2:
        return _Sum(row=1) if t.attrs[0] == rank - 2 else _Sum(column=1)
    if t.prim == "scalar":
        return _Sum(number=int(t.attrs[0]))
    if t.prim in ("add", "sub"):
        a, b = (_sum(x, rank) for x in t.args)
        return None if a is None or b is None else a.plus(b, 1 if t.prim == "add" else -1)
    if t.prim == "cast" and t.args[0].dtype.is_integer and t.dtype.is_integer and t.dtype.bits >= t.args[0].dtype.bits:
        inner = _sum(t.args[0], rank)
        if inner is None or not inner.parts:
            return inner
    return _Sum(parts=((1, t),)) if all(x.prim != "iota" for x in k.walk([t])) else None


def unspread(t: Tensor) -> Tensor:
    """Before it was repeated along axes of one element, or got further axes of one element in front."""
    while True:
        inner = t.args[0] if t.prim in ("broadcast", "reshape") else None
        if inner is None or t.prim == "reshape" and [d for d in t.shape if d != 1] != [d for d in inner.shape if d != 1]:
            return t
        if t.prim == "reshape" and tuple(t.shape[t.rank - inner.rank :]) != tuple(inner.shape):
            return t
        t = inner
