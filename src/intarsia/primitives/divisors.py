"""Which integer divisions may meet a divisor of 0, so that a kernel has to look."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from intarsia.graph.dims import Expr, is_nonnegative
from intarsia.primitives.lang import Tensor, walk

DIVISIONS = frozenset(("div", "mod", "fmod"))
NONZERO = "nonzero"  # attribute of a division whose divisor was found to have no 0

_SAME_ELEMENTS = frozenset(("broadcast", "expand", "reshape", "transpose", "slice", "take", "index", "windows", "neg", "abs"))


def may_divide_by_zero(t: Tensor) -> bool:
    """Whether `t` divides integers by what is not known to differ from 0."""
    return t.prim in DIVISIONS and t.dtype.is_integer and NONZERO not in t.attrs and not _nonzero(t.args[1], _unknown)


def divides(roots: Sequence[Tensor]) -> bool:
    """Whether any division in the roots may be by 0."""
    return any(may_divide_by_zero(t) for t in walk(roots))


def with_known_divisors(roots: Sequence[Tensor], elements: Callable[[Tensor], np.ndarray | None]) -> list[Tensor]:
    """`roots` with a note on divisions by constants that have no 0; `elements` gives an `input`'s, where they are known."""

    def known(t: Tensor) -> bool:
        array = elements(t)
        return array is not None and bool(array.all())

    if not divides(roots):
        return list(roots)
    made: dict[int, Tensor] = {}
    for t in walk(roots):
        args = tuple(made[id(a)] for a in t.args)
        noted = may_divide_by_zero(t) and _nonzero(t.args[1], known)
        same = not noted and all(a is b for a, b in zip(args, t.args, strict=True))
        made[id(t)] = t if same else Tensor(t.prim, args, (NONZERO,) if noted else t.attrs, t.dtype, t.shape)
    return [made[id(r)] for r in roots]


def _unknown(t: Tensor) -> bool:
    return False


def _nonzero(t: Tensor, known: Callable[[Tensor], bool]) -> bool:
    while t.prim in _SAME_ELEMENTS or t.prim == "cast" and _keeps_zero(t):
        t = t.args[0]
    if t.prim == "input":
        return known(t)
    if t.prim == "scalar":
        return bool(t.attrs[0])
    if t.prim == "size":
        return is_nonnegative(t.attrs[0] - 1) if isinstance(t.attrs[0], Expr) else bool(t.attrs[0])
    if t.prim == "table":
        return bool(np.frombuffer(t.attrs[0], t.dtype.numpy).all())
    if t.prim == "max":
        return any(_positive(a) for a in t.args)
    return t.prim == "select" and all(_nonzero(a, known) for a in t.args[1:])


def _keeps_zero(t: Tensor) -> bool:
    """Whether only 0 becomes 0: integers cast to a type of as many bits or more."""
    return t.dtype.is_integer and t.args[0].dtype.is_integer and t.dtype.bits >= t.args[0].dtype.bits


def _positive(t: Tensor) -> bool:
    while t.prim in ("broadcast", "expand", "reshape"):
        t = t.args[0]
    return t.prim == "scalar" and bool(t.attrs[0] > 0)
