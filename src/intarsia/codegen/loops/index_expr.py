"""Indices as expressions: at which index of its operands an element of a primitive lies.

An `Index` is a nested tuple: ("c", n) a number, ("v", name) a loop's variable, ("+", a, b), ("*", a, dim), ("/", a, dim) and
("%", a, dim); ("1", a, dim) is 0 where dim is 1 and a elsewhere; ("clamp", a, dim) is a clamped to 0 .. dim - 1, and so is
("checked", a, dim), which reports where it was not; ("at", tensor, indices) is an element of an index tensor.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

from intarsia.graph.dims import Dim, Expr, row_major_strides
from intarsia.primitives.lang import BINARY, UNARY, Tensor

ELEMENTWISE = UNARY | BINARY | {"select", "cast", "bitcast"}

Index = tuple[Any, ...]
ZERO: Index = ("c", 0)


def operand_indices(t: Tensor, at: list[Index]) -> list[tuple[Tensor, list[Index]]]:
    """The operands that an element depends on, and at which of their indices."""
    if t.prim in ELEMENTWISE:
        return [(a, at) for a in t.args]
    if not t.args:
        return []
    x = t.args[0]
    if t.prim == "broadcast":
        shift = t.rank - x.rank
        return [(x, [follow(d, t.shape[i + shift], at[i + shift]) for i, d in enumerate(x.shape)])]
    if t.prim == "expand":
        return [(x, [ZERO if p < 0 else follow(d, t.shape[p], at[p]) for d, p in zip(x.shape, t.attrs, strict=True)])]
    if t.prim == "reshape":
        return [(x, regroup(at, t.shape, x.shape))]
    if t.prim == "transpose":
        where: list[Index] = [ZERO] * x.rank
        for i, p in enumerate(t.attrs):
            where[p] = at[i]
        return [(x, where)]
    if t.prim == "slice":
        return [(x, [add(scale(i, step), of_dim(start)) for i, start, step in zip(at, *t.attrs, strict=True)])]
    if t.prim == "windows":
        return [(x, window_indices(t, at))]
    if t.prim == "take":
        axis, many = t.attrs[0], t.args[1].rank
        inner = at[axis : axis + many]
        row: Index = ("checked", ("at", t.args[1], tuple(inner)), x.shape[axis])
        return [(x, [*at[:axis], row, *at[axis + many :]])]
    if t.prim == "row":
        return [(x, [("clamp", ("at", t.args[1], ()), x.shape[0]), *at])]
    if t.prim == "index":
        return [(x, [_element(a, at, d) for a, d in zip(t.args[1:], x.shape, strict=True)])]
    if t.prim == "pad":
        moved = [add(i, of_dim(-low)) for i, low in zip(at, t.attrs[0], strict=True)]
        inside = [i if lo == hi == 0 else ("clamp", i, d) for i, d, lo, hi in zip(moved, x.shape, *t.attrs, strict=True)]
        return [(x, inside), (t.args[1], [])]
    if t.prim == "concat":
        axis, start, out = t.attrs[0], 0, []
        for a in t.args:
            out.append((a, [("clamp", add(i, of_dim(-start)), a.shape[axis]) if n == axis else i for n, i in enumerate(at)]))
            start = start + a.shape[axis]
        return out
    return []


def _element(indices: Tensor, at: Sequence[Index], length: Dim) -> Index:
    """Where in an axis an index tensor points; one that counts along an axis as long needs no check."""
    if indices.prim == "iota":
        axis: int = indices.attrs[0]
        if indices.shape[axis] == length:
            return at[axis]
    return ("checked", ("at", indices, tuple(at)), length)


def of_dim(d: Dim) -> Index:
    return ("*", ("c", 1), d) if isinstance(d, Expr) else ("c", int(d))


def add(a: Index, b: Index) -> Index:
    if a[0] == "c" and b[0] == "c":
        return ("c", a[1] + b[1])
    if a == ZERO:
        return b
    return a if b == ZERO else ("+", a, b)


def scale(a: Index, d: Dim) -> Index:
    if d == 1:
        return a
    if d == 0 or a == ZERO:
        return ZERO
    if a[0] == "c" and not isinstance(d, Expr):
        return ("c", a[1] * d)
    return ("*", a, d)


def follow(source: Dim, target: Dim, i: Index) -> Index:
    """The index into an axis of size `source` that is broadcast to `target`."""
    if source == 1:
        return ZERO
    return i if source == target or not isinstance(source, Expr) else ("1", i, source)


def linear(indices: Sequence[Index], shape: Sequence[Dim]) -> Index:
    """Row-major offset, as a sum of terms so that each is computed in the loop that changes it."""
    total: Index = ZERO
    for i, stride in zip(indices, row_major_strides(shape), strict=True):
        total = add(total, scale(i, stride))
    return total


def regroup(at: Sequence[Index], have: Sequence[Dim], want: Sequence[Dim]) -> list[Index]:
    """Indices into shape `want` of the element that is at `at` in shape `have`; axes that correspond pass straight."""
    out: list[Index] = []
    i = j = 0
    while j < len(want):
        if want[j] == 1:
            out.append(ZERO)
            j += 1
            continue
        while i < len(have) and have[i] == 1:
            i += 1
        i_end, j_end = _same_elements(have, want, i, j)
        offset = linear(at[i:i_end], have[i:i_end])
        for n, inner in enumerate(row_major_strides(want[j:j_end]), j):
            part: Index = offset if inner == 1 else ("/", offset, inner)
            out.append(part if n == j else ("%", part, want[n]))
        i, j = i_end, j_end
    return out


def _same_elements(have: Sequence[Dim], want: Sequence[Dim], i: int, j: int) -> tuple[int, int]:
    """Where the fewest axes from `i` and `j` on end that have as many elements on both sides."""
    if i < len(have) and have[i] == want[j]:
        return i + 1, j + 1
    left, right = (list(itertools.accumulate(sizes, operator.mul)) for sizes in (have[i:], want[j:]))
    for axes in range(len(left) + len(right) - 1):
        for m in range(max(axes - len(right) + 1, 0), min(axes + 1, len(left))):
            if left[m] == right[axes - m]:
                return i + 1 + m, j + 1 + axes - m
    return len(have), len(want)


def may_miss(index: Index) -> bool:
    """Whether the index was clamped into an axis that may have no elements: it can lie outside all the same."""
    if index[0] in ("clamp", "checked") and (isinstance(index[2], Expr) or index[2] == 0):
        return True
    return any(may_miss(part) for part in index[1:] if isinstance(part, tuple) and part and isinstance(part[0], str))


def window_indices(t: Tensor, at: Sequence[Index]) -> list[Index]:
    axes, _, strides, dilations = t.attrs
    rank = t.args[0].rank
    out = list(at[:rank])
    for n, (axis, stride, dilation) in enumerate(zip(axes, strides, dilations, strict=True)):
        out[axis] = add(scale(at[axis], stride), scale(at[rank + n], dilation))
    return out
