"""Reductions down the columns of memory: a thread for each column, neighbours side by side.

`schedules.row_kernel` deals a reduction out among the threads of a group, which suits elements that are neighbours in memory.
Where elements of one sum lie a row apart, each thread would have a transaction of its own for every element; there threads
take neighbouring columns and go down. Few columns are cut in parts, whose reductions are reduced in a second step, so that
the device is full.
"""

from __future__ import annotations

from intarsia.codegen.clike.schedules import Rows, _extent
from intarsia.codegen.loops.index_expr import ELEMENTWISE
from intarsia.graph.dtypes import DType
from intarsia.primitives.lang import Tensor, reshape, walk

_NEIGHBOURS = 32  # columns side by side, at least
_FULL, _ENOUGH = 1 << 16, 1 << 12  # threads that keep a device busy, and that are worth it
_SHORTEST, _MOST_PARTS = 32, 256  # elements of a part, and parts
_WHOLE = (DType.FLOAT, DType.DOUBLE, DType.INT32, DType.INT64, DType.UINT32, DType.UINT64, DType.BOOL)
_ALONG = ELEMENTWISE | frozenset(("input", "scalar", "broadcast"))


def reduction_down(root: Tensor, rows: Rows | None) -> Tensor | None:
    """The reduction in `root`, where it runs down columns and nothing else needs the row; None where it does not."""
    found = [t for t in walk([root]) if t.prim == "reduce"]
    if rows is None or rows.inner or len(found) != 1:
        return None
    (t,) = found
    x = t.args[0]
    wide = [i for i, d in enumerate(x.shape) if d != 1]
    if not wide or wide[-1] in t.attrs[1] or _extent(x.shape[wide[-1]]) < _NEIGHBOURS:
        return None
    return t if all(a.prim in _ALONG or _keeps_lines(a) for a in walk([x])) else None


def _keeps_lines(t: Tensor) -> bool:
    """Whether it is a reshape after which neighbours along the last axis are the same."""
    return t.prim == "reshape" and t.rank > 0 and t.args[0].rank > 0 and t.shape[-1] == t.args[0].shape[-1]


def parts_down(t: Tensor) -> tuple[Tensor, int] | None:
    """A reduction of parts, and the axis that counts them in its result, from which the same reduction makes `t`'s.

    None where `t` has threads enough, or parts would be short or few or rounded.
    """
    op, axes = t.attrs
    x = t.args[0]
    axis = axes[0]
    length, columns = _extent(x.shape[axis]), _extent(*t.shape)
    most = min(_FULL // max(columns, 1), length // _SHORTEST, _MOST_PARTS)
    count = next((n for n in range(most, 1, -1) if length % n == 0), 1)
    if count < 2 or count * columns < _ENOUGH or t.dtype not in _WHOLE:
        return None
    parts = reshape(x, (*x.shape[:axis], count, length // count, *x.shape[axis + 1 :]))
    inner = tuple(a + 1 for a in axes)
    shape = tuple(d for i, d in enumerate(parts.shape) if i not in inner)
    return Tensor("reduce", (parts,), (op, inner), t.dtype, shape), axis


def is_worth_it(t: Tensor) -> bool:
    """Whether a thread for each column makes enough of them."""
    return _extent(*t.shape) >= _ENOUGH
