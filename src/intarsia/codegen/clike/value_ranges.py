"""Between which numbers the elements of an expression lie, as far as its text says: of masks that are added to scores, say."""

from __future__ import annotations

import math
from collections.abc import Mapping

from intarsia.graph.dtypes import DType
from intarsia.primitives.lang import Tensor, walk

Range = tuple[float, float]
_MOST = 64  # primitives of an expression that is looked at
_SAME = frozenset("broadcast reshape transpose slice stored".split())
_LARGEST = {DType.FLOAT16: 65504.0, DType.BFLOAT16: 3.38e38, DType.FLOAT: 3.4e38, DType.DOUBLE: 1.7e308}


def range_of(root: Tensor, known: Mapping[object, Range]) -> Range | None:
    """The least and the largest element; None where they are not known, or infinite. `known`: of leaves, by name."""
    order = walk([root])
    if not root.dtype.is_floating or len(order) > _MOST:
        return None
    found: dict[int, Range | None] = {}
    for t in order:
        found[id(t)] = _checked(t, _range(t, [found[id(a)] for a in t.args], known))
    return found[id(root)]


def _checked(t: Tensor, given: Range | None) -> Range | None:
    """Without what the type has no number for."""
    most = _LARGEST.get(t.dtype, math.inf)
    return given if given is not None and -most <= given[0] <= given[1] <= most else None


def _range(t: Tensor, args: list[Range | None], known: Mapping[object, Range]) -> Range | None:
    if t.prim == "input":
        return (0.0, 1.0) if t.dtype is DType.BOOL else known.get(t.attrs[0])
    if t.prim == "scalar":
        value = float(t.attrs[0])
        return (value, value) if math.isfinite(value) else None
    if t.dtype is DType.BOOL:
        return 0.0, 1.0
    if t.prim in _SAME or t.prim == "cast":
        return args[0]
    given = [a for a in args[1 if t.prim == "select" else 0 :] if a is not None]
    if len(given) != 2:
        return None
    (a, b), (c, d) = given
    if t.prim == "select":
        return min(a, c), max(b, d)
    if t.prim in ("min", "max"):
        pick = min if t.prim == "min" else max
        return pick(a, c), pick(b, d)
    if t.prim in ("add", "sub"):
        return (a + c, b + d) if t.prim == "add" else (a - d, b - c)
    corners = (a * c, a * d, b * c, b * d)
    return (min(corners), max(corners)) if t.prim == "mul" else None
