"""Operands as a library sees them: memory with one stride per axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from intarsia.graph.dims import numbers_of
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives.lang import Tensor

_HALVES = (DType.FLOAT16, DType.BFLOAT16)


@dataclass(frozen=True)
class View:
    """Elements of a value: where the first lies, and how far the next one is along each axis. All counts are of elements."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def packed(cls, dtype: DType, shape: Sequence[int], last: int = -1) -> View:
        """All elements, row by row; `last`: the axis whose neighbours are neighbours in memory."""
        order = [i for i in range(len(shape)) if i != last % len(shape)] + [last % len(shape)] if shape else []
        strides, step = [0] * len(shape), 1
        for axis in reversed(order):
            strides[axis] = step
            step *= shape[axis]
        return cls(dtype, tuple(shape), tuple(strides))

    @property
    def alignment(self) -> int:
        """Bytes that the first element's address is a multiple of, in memory that begins at a multiple of 256."""
        found = 256
        while self.offset * self.dtype.numpy.itemsize % found:
            found //= 2
        return found

    def reshaped(self, shape: Sequence[int]) -> View | None:
        """The same elements in another shape; None where that takes a copy."""
        mine = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        strides: list[int] = []
        at = inner = 0  # how much of mine[at] is still to be divided
        for extent in reversed(shape):
            if extent == 1:
                strides.append(0)
                continue
            if not inner:
                at += 1
                inner, step = mine[-at]
            strides.append(step)
            rest = extent
            while rest > inner:  # several axes of mine become one: each has to go on where the one behind it ends
                if rest % inner:
                    return None
                rest //= inner
                step *= inner
                at += 1
                if at > len(mine) or mine[-at][1] != step:
                    return None
                inner = mine[-at][0]
            if inner % rest:
                return None
            inner, step = inner // rest, step * rest
            if inner == 1:
                inner = 0
        return replace(self, shape=tuple(shape), strides=tuple(reversed(strides)))


def view_of(t: Tensor) -> tuple[Tensor, View] | None:
    """The leaf that `t` is a view of, and how; None where elements are computed, or no strides lead to them.

    A cast that widens float16 or bfloat16, or bytes, to where sums are formed is passed: `View.dtype` is the memory's.
    """
    if t.prim == "input":
        return t, View.packed(t.dtype, _sizes(t))
    if t.prim not in ("reshape", "transpose", "slice", "broadcast", "cast") or 0 in t.shape:
        return None
    below = view_of(t.args[0])
    if below is None:
        return None
    leaf, view = below
    if t.prim == "cast":
        return below if widens(t.args[0].dtype, t.dtype) else None
    if t.prim == "reshape":
        moved = view.reshaped(_sizes(t))
        return None if moved is None else (leaf, moved)
    shape, strides, offset = _sizes(t), view.strides, view.offset
    if t.prim == "transpose":
        strides = tuple(strides[p] for p in t.attrs)
    elif t.prim == "slice":
        starts, steps = t.attrs
        if any(not isinstance(s, int) for s in (*starts, *steps)) or min(steps, default=1) < 0:
            return None
        offset += sum(start * s for start, s in zip(starts, strides, strict=True))
        strides = tuple(step * s for step, s in zip(steps, strides, strict=True))
    else:
        lead = t.rank - len(strides)
        same = [n == m for n, m in zip(view.shape, shape[lead:], strict=True)]
        strides = (*(0,) * lead, *(s if equal else 0 for s, equal in zip(strides, same, strict=True)))
    return leaf, View(view.dtype, shape, strides, offset)


def widens(source: DType, target: DType) -> bool:
    """Whether a product on `source` sums in `target` by itself."""
    return source in _HALVES and target is DType.FLOAT or source is DType.INT8 and target is DType.INT32


def unwidened(t: Tensor) -> Tensor:
    """`t` before a cast that a product does by itself."""
    return t.args[0] if t.prim == "cast" and widens(t.args[0].dtype, t.dtype) else t


def _sizes(t: Tensor) -> tuple[int, ...]:
    return numbers_of(t.shape)
