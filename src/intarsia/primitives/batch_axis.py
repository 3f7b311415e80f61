"""Which axis of a tensor has the rows of a batch, primitive by primitive.

A tensor is of one of two kinds: nothing of it depends on the rows or on their number (`ALIKE`), or one axis, of size rows * k,
holds k slices for each row, which depend on the same row of what they are made from (the number of that axis). A computation
whose tensors are all of these kinds may be done for a few rows at a time. Anything else (sums over rows, a place among the
rows, their number) raises `Mixes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia.graph.dims import Dim, Expr, Shape, product, quotient, symbol, symbols_of
from intarsia.primitives.lang import BINARY, UNARY, Tensor, walk

ALIKE = -1  # instead of an axis
_ELEMENTWISE = UNARY | BINARY | {"select", "cast", "bitcast"}


class Mixes(Exception):
    """A tensor's elements depend on several rows, or on how many there are."""


def row_axes(roots: Sequence[Tensor], rows: str, axis_of: Callable[[Tensor], int]) -> list[int]:
    """The axis of each root that has the rows, or `ALIKE`. `rows` is the symbol that is their number, `axis_of` says the same
    of an `input`.

    Raises:
        Mixes: one of the tensors on the way is of neither kind.
    """
    found: dict[int, int] = {}
    for t in walk(roots):
        axis = axis_of(t) if t.prim == "input" else _axis(t, [found[id(a)] for a in t.args], rows)
        found[id(t)] = checked_axis(t.shape, rows, axis)
    return [found[id(root)] for root in roots]


def checked_axis(shape: Shape, rows: str, axis: int) -> int:
    """`axis`, if a tensor of this shape may have the rows there (`ALIKE`: nowhere), and nowhere else.

    Raises:
        Mixes: it may not.
    """
    if any(per_row(d, rows) is None if i == axis else rows in symbols_of(d) for i, d in enumerate(shape)):
        raise Mixes
    return axis


def per_row(d: Dim, rows: str) -> Dim | None:
    """`d` divided by the number of rows; None where it is not the number times something that does not depend on it."""
    if not isinstance(d, Expr) or rows not in d.symbols:
        return None
    found = quotient(d, symbol(rows))
    return None if rows in symbols_of(found) else found


def leading(shape: Shape, axis: int) -> bool:
    """Whether each row is one piece of a row-major tensor, behind the row before it."""
    return all(d == 1 for d in shape[:axis])


def _axis(t: Tensor, axes: Sequence[int], rows: str) -> int:
    if any(rows in symbols_of(d) for d in _sizes(t.attrs)):
        raise Mixes
    rule = _RULES.get(t.prim)
    if rule is not None:
        return rule(t, axes, rows)
    if t.prim in _ELEMENTWISE:
        return _same(axes)
    if any(axis != ALIKE for axis in axes):
        raise Mixes
    return ALIKE


def _sizes(attrs: object) -> list[Expr]:
    if isinstance(attrs, tuple):
        return [d for a in attrs for d in _sizes(a)]
    return [attrs] if isinstance(attrs, Expr) else []


def _same(axes: Sequence[int]) -> int:
    if len(set(axes)) != 1:
        raise Mixes
    return axes[0]


def _broadcast(t: Tensor, axes: Sequence[int], rows: str) -> int:
    """A tensor that is alike has rows in the axis along which it is repeated for each."""
    (x,), (axis,) = t.args, axes
    before = len(t.shape) - len(x.shape)
    if axis != ALIKE:
        if t.shape[axis + before] != x.shape[axis]:
            raise Mixes
        return axis + before
    found = [i for i, d in enumerate(t.shape) if rows in symbols_of(d)]
    if any(i >= before and x.shape[i - before] != 1 for i in found):
        raise Mixes
    return found[0] if found else ALIKE


def _reshape(t: Tensor, axes: Sequence[int], rows: str) -> int:
    (x,), (axis,) = t.args, axes
    if axis == ALIKE:
        return ALIKE
    before = product(x.shape[:axis])
    if product(t.shape) == product(x.shape):
        for i, d in enumerate(t.shape):
            if per_row(d, rows) is not None and product(t.shape[:i]) == before:
                return i
    raise Mixes


def _transpose(t: Tensor, axes: Sequence[int], rows: str) -> int:
    perm: tuple[int, ...] = t.attrs
    return ALIKE if axes[0] == ALIKE else perm.index(axes[0])


def _slice(t: Tensor, axes: Sequence[int], rows: str) -> int:
    (axis,), (starts, steps) = axes, t.attrs
    if axis != ALIKE and (starts[axis] != 0 or steps[axis] != 1 or t.shape[axis] != t.args[0].shape[axis]):
        raise Mixes
    return axis


def _pad(t: Tensor, axes: Sequence[int], rows: str) -> int:
    axis, fill = axes
    low, high = t.attrs
    if fill != ALIKE or (axis != ALIKE and (low[axis] != 0 or high[axis] != 0)):
        raise Mixes
    return axis


def _concat(t: Tensor, axes: Sequence[int], rows: str) -> int:
    return _along(t.attrs[0], _same(axes))


def _windows(t: Tensor, axes: Sequence[int], rows: str) -> int:
    if axes[0] in t.attrs[0]:
        raise Mixes
    return axes[0]


def _take(t: Tensor, axes: Sequence[int], rows: str) -> int:
    axis, of_indices = axes
    along: int = t.attrs[0]
    if axis == ALIKE:
        return ALIKE if of_indices == ALIKE else along + of_indices
    if of_indices != ALIKE or axis == along:
        raise Mixes
    return axis if axis < along else axis + t.args[1].rank - 1


def _index(t: Tensor, axes: Sequence[int], rows: str) -> int:
    """A table that is alike, by indices that have rows."""
    if axes[0] != ALIKE:
        raise Mixes
    return _same(axes[1:])


def _reduce(t: Tensor, axes: Sequence[int], rows: str) -> int:
    dropped: tuple[int, ...] = t.attrs[1] if t.prim == "reduce" else (t.attrs[1],)
    if axes[0] == ALIKE:
        return ALIKE
    if axes[0] in dropped:
        raise Mixes
    return axes[0] - sum(d < axes[0] for d in dropped)


def _along(along: int, axis: int) -> int:
    """What goes along an axis is done for each row where that is another one."""
    if along == axis:
        raise Mixes
    return axis


def _dot(t: Tensor, axes: Sequence[int], rows: str) -> int:
    """Rows are rows of the left operand, columns of the right one, or matrices of either or both."""
    found = []
    for x, axis, summed in zip(t.args, axes, (-1, -2), strict=True):
        if axis != ALIKE:
            if axis == x.rank + summed:
                raise Mixes
            found.append(axis + t.rank - x.rank)
    if not found:
        return ALIKE
    out = _same(found)
    for x, axis in zip(t.args, axes, strict=True):
        at = out - t.rank + x.rank
        if axis == ALIKE and out < t.rank - 2 and at >= 0 and x.shape[at] != 1:
            raise Mixes  # a size that is said to be the number of rows, or 1
    if len(found) == 2 and out >= t.rank - 2:
        raise Mixes
    return out


def _iota(t: Tensor, axes: Sequence[int], rows: str) -> int:
    found = [i for i, d in enumerate(t.shape) if rows in symbols_of(d)]
    return _along(t.attrs[0], found[0] if found else ALIKE)


_RULES: dict[str, Callable[[Tensor, Sequence[int], str], int]] = {
    "broadcast": _broadcast, "reshape": _reshape, "transpose": _transpose, "slice": _slice, "pad": _pad, "concat": _concat,
    "windows": _windows, "take": _take, "index": _index, "reduce": _reduce, "argreduce": _reduce, "dot": _dot, "iota": _iota,
    "scan": lambda t, axes, rows: _along(t.attrs[1], axes[0]),
    "sort": lambda t, axes, rows: _along(t.attrs[0], axes[0]),
    "argsort": lambda t, axes, rows: _along(t.attrs[0], axes[0]),
}  # fmt: skip
