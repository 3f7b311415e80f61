"""Arg-reductions as two reductions that vectorise: the extremum, then the first (or last) index at which it stands."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor, walk


def in_reductions(roots: Sequence[Tensor]) -> list[Tensor]:
    """The same computation without `argreduce`."""
    order = walk(roots)
    if not any(t.prim == "argreduce" for t in order):
        return list(roots)
    rebuilt: dict[int, Tensor] = {}
    for t in order:
        args = tuple(rebuilt[id(a)] for a in t.args)
        if t.prim == "argreduce":
            rebuilt[id(t)] = _two_reductions(t, args[0])
        else:
            changed = any(a is not b for a, b in zip(args, t.args, strict=True))
            rebuilt[id(t)] = Tensor(t.prim, args, t.attrs, t.dtype, t.shape) if changed else t
    return [rebuilt[id(r)] for r in roots]


def _two_reductions(t: Tensor, x: Tensor) -> Tensor:
    """min (last: max) of the indices i with x[i] = extremum; a NaN is the extremum wherever there is one."""
    op, axis, last = t.attrs
    extremum = k.reduce(x, op, [axis], keepdims=True)
    found = k.equal(x, extremum)
    if x.dtype.is_floating:
        found = found | k.unary("isnan", x)
    extent = x.shape[axis]
    kind = DType.INT32 if isinstance(extent, int) and extent < 1 << 31 else DType.INT64
    place = k.select(found, k.iota(x.shape, axis, kind), -1 if last else (1 << (kind.bits - 1)) - 1)
    return k.cast(k.reduce(place, "max" if last else "min", [axis]), DType.INT64)
