"""An axis that only a run knows: a tensor is looked at as what is before the axis, the axis, and what is behind it.

The sizes of the three are expressions of the axis. An axis that the tensor does not have makes them too few, so that a run with
it is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from intarsia.graph.dims import Dim, Expr, Shape, dim_max, dim_min, opaque, product
from intarsia.ops.framework.operands import dims
from intarsia.primitives import lang as k

Tensor = k.Tensor


def run_axis(values: np.ndarray | None) -> Expr | None:
    """The axis, if these values are one that only a run knows."""
    found = [] if values is None else dims(values)
    return found[0] if len(found) == 1 and isinstance(found[0], Expr) else None


def along(x: Tensor, axis: Expr, function: Callable[[Tensor], Tensor]) -> Tensor:
    """`function` of [before, axis, behind] along its second axis, which keeps the shape."""
    return k.reshape(function(k.reshape(x, _three(x.shape, axis))), x.shape)


def reduced(x: Tensor, axis: Expr, function: Callable[[Tensor], Tensor], keepdims: bool) -> Tensor:
    """`function` of [before, axis, behind], which makes the second axis 1."""
    less = function(k.reshape(x, _three(x.shape, axis)))
    if not keepdims:
        return k.reshape(less, without(x.shape, axis))
    at = _wrapped(axis, x.rank)
    return k.reshape(less, [d + _equal(at, i) * (1 - d) for i, d in enumerate(x.shape)])


def without(shape: Shape, axis: Expr) -> Shape:
    """The shape without the axis."""
    at = _wrapped(axis, len(shape))
    pairs = enumerate(itertools.pairwise(shape))
    return tuple(_less(i, at) * own + (1 - _less(i, at)) * behind for i, (own, behind) in pairs)


def squeezed(x: Tensor, axis: Expr) -> Tensor:
    return k.reshape(x, without(x.shape, axis))


def unsqueezed(x: Tensor, axis: Expr) -> Tensor:
    """With an axis of size 1 more."""
    at = _wrapped(axis, x.rank + 1)
    own, behind = (*x.shape, 1), (1, *x.shape)
    shape = [_less(i, at) * own[i] + _equal(at, i) + _less(at, i) * behind[i] for i in range(x.rank + 1)]
    return k.reshape(x, shape)


def _three(shape: Sequence[Dim], axis: Expr) -> Shape:
    at = _wrapped(axis, len(shape))
    before = product(1 + _less(i, at) * (d - 1) for i, d in enumerate(shape))
    behind = product(1 + _less(at, i) * (d - 1) for i, d in enumerate(shape))
    count: Dim = 0
    for i, d in enumerate(shape):
        count = count + _equal(at, i) * d
    return before, count, behind


def _wrapped(axis: Expr, rank: int) -> Dim:
    return opaque("wrap", axis, rank)


def _less(a: Dim, b: Dim) -> Dim:
    """1 where a < b, else 0."""
    return dim_max(dim_min(b - a, 1), 0)


def _equal(a: Dim, b: Dim) -> Dim:
    """1 where a = b, else 0."""
    return 1 - _less(a, b) - _less(b, a)
