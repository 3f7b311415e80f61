"""Windows that are written out, and where along a row no border is met: there a padded operand is read as it is, without a
choice for each element."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from intarsia.codegen.loops.index_expr import ELEMENTWISE, Index, add, linear, may_miss, of_dim, operand_indices
from intarsia.codegen.loops.reuse_in_output import substituted
from intarsia.graph.dims import Dim, Expr, product
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives.lang import Tensor

_WRITTEN_OUT = 64  # elements of a window
_FEW = 4  # elements of a step


def is_written_out(t: Tensor) -> bool:
    """Whether a reduction is over windows of few elements: their loops then are none, and elements are computed in vectors."""
    if t.prim != "reduce":
        return False
    extents = [t.args[0].shape[i] for i in t.attrs[1]]
    if not all(isinstance(d, int) for d in extents) or not 0 < math.prod(extents) <= _WRITTEN_OUT:
        return False
    return _is_of_windows(t.args[0])


def _is_of_windows(t: Tensor) -> bool:
    while t.prim in ELEMENTWISE and t.args:
        t = t.args[0]
    return t.prim == "windows"


def window_elements(t: Tensor, at: list[Index]) -> Iterator[list[Index]]:
    """Where in its operand the elements are that a reduction at `at` is made of."""
    x, axes = t.args[0], t.attrs[1]
    for place in itertools.product(*(range(int(x.shape[i])) for i in axes)):
        remaining, reduced = iter(at), iter(place)
        yield [("c", next(reduced)) if i in axes else next(remaining) for i in range(x.rank)]


@dataclass(frozen=True)
class Bordered:
    """An index into a padded operand that goes on by `step` with the row's variable: inside while 0 <= index < extent.

    Attributes:
        index: the index, and `first` its value where the variable is 0.
        elements: of the padded operand.
    """

    index: Index
    first: Index
    step: int
    extent: Dim
    elements: Dim


def bordered(t: Tensor, at: list[Index], row: str) -> list[Bordered]:
    """All such indices that are met when `t` is computed at `at`."""
    found: dict[Bordered, None] = {}  # one index may go into several: what is padded twice
    seen: set[object] = set()

    def visit(t: Tensor, at: list[Index]) -> None:
        if (id(t), tuple(at)) in seen:
            return
        seen.add((id(t), tuple(at)))
        if is_written_out(t):
            for where in window_elements(t, at):
                visit(t.args[0], where)
            return
        if t.prim in ("reduce", "argreduce", "dot"):  # in loops of its own
            return
        pairs = operand_indices(t, at)
        if t.prim == "pad":
            (x, where), *others = pairs
            for n, (i, extent, low, high) in enumerate(zip(at, x.shape, *t.attrs, strict=True)):
                index = add(i, of_dim(-low))
                step = _step(index, row)
                if (low != 0 or high != 0) and step > 0:
                    first = substituted(index, {("v", row): ("c", 0)})
                    found[Bordered(index, first, step, extent, product(x.shape))] = None
                    where[n] = index  # there x, which may be padded, too, is read at it
            pairs = [(x, where), *others]
        for operand, where in pairs:
            visit(operand, where)

    visit(t, at)
    return list(found)


def emptiable(t: Tensor, at: list[Index], row: str) -> list[Dim]:
    """Numbers of elements of the operands that are read along the row at places that data decide across it, while they have
    any: `t` is computed at `at`. Where a run gives an operand no elements, each place has to be clamped to it.
    """
    found: dict[Dim, None] = {}
    seen: set[object] = set()

    def visit(t: Tensor, at: list[Index]) -> None:
        if (id(t), tuple(at)) in seen or t.prim in ("reduce", "argreduce", "dot"):  # in loops of its own
            return
        seen.add((id(t), tuple(at)))
        source = t
        while source.prim == "reshape":
            source = source.args[0]
        elements = product(t.shape)
        if (
            source.prim == "input"
            and isinstance(elements, Expr)
            and any(_step(i, row) for i in at)
            and may_miss(linear(at, t.shape))
        ):
            found[elements] = None
        for operand, where in operand_indices(t, at) if source.prim != "input" else ():
            visit(operand, where)

    visit(t, at)
    return list(found)


def is_strided(t: Tensor, at: list[Index], row: str) -> bool:
    """Whether an operand is read in steps of a few elements along the row: vectors are then shuffled from some others."""
    seen: set[object] = set()

    def visit(t: Tensor, at: list[Index]) -> bool:
        if (id(t), tuple(at)) in seen or (t.prim in ("reduce", "argreduce", "dot") and not is_written_out(t)):
            return False
        seen.add((id(t), tuple(at)))
        if t.prim == "input":
            return 1 < _step(linear(at, t.shape), row) <= _FEW
        if is_written_out(t):
            return any(visit(t.args[0], where) for where in window_elements(t, at))
        pairs = operand_indices(t, at)
        if t.prim == "pad":
            pairs[0] = (t.args[0], [add(i, of_dim(-low)) for i, low in zip(at, t.attrs[0], strict=True)])
        return any(visit(operand, where) for operand, where in pairs)

    return visit(t, at)


def _step(index: Index, row: str) -> int:
    """By how much the index grows with the variable; 0 where it does not, or not always by as much."""
    kind, *parts = index
    if kind == "v":
        return int(parts[0] == row)
    if kind == "+":
        steps = [_step(part, row) for part in parts]
        known = all(step or not _has(part, row) for step, part in zip(steps, parts, strict=True))
        return sum(steps) if known else 0
    return _step(parts[0], row) * parts[1] if kind == "*" and isinstance(parts[1], int) else 0


def _has(index: Index, row: str) -> bool:
    return index == ("v", row) or any(_has(part, row) for part in index[1:] if isinstance(part, tuple))
