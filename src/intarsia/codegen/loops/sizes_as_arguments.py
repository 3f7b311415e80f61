"""Sizes that are known when a kernel is made, and make no faster code, become arguments: kernels that differ in nothing else
are one, which is compiled once for all layers and all models."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.codegen.loops.index_expr import ELEMENTWISE
from intarsia.graph.dims import Dim, Expr, symbol
from intarsia.primitives.lang import Tensor, walk

LEAST = 64  # shorter loops gain by a known number of iterations
_OPEN = ELEMENTWISE | {"input", "scalar", "broadcast", "expand", "concat"}


def with_sizes_as_arguments(roots: Sequence[Tensor], chunk: int) -> tuple[list[Tensor], dict[Dim, int]]:
    """The roots with symbols instead of sizes, and what these are; no symbols where something depends on a size otherwise
    than by how often a loop runs. Sizes up to `chunk`, of loops that are not cut, have other names than larger ones."""
    order = walk(roots)
    known = [d for t in order for d in t.shape if not isinstance(d, Expr)]
    if len(known) < sum(t.rank for t in order) or any(t.prim not in _OPEN for t in order):
        return [*roots], {}
    values = [*dict.fromkeys(d for d in known if d >= LEAST)]
    names: dict[Dim, Dim] = {d: symbol(f"{'few' if d <= chunk else 'many'}{n}") for n, d in enumerate(values)}
    made: dict[int, Tensor] = {}
    for t in order:
        shape = tuple(names.get(d, d) for d in t.shape)
        made[id(t)] = Tensor(t.prim, tuple(made[id(a)] for a in t.args), t.attrs, t.dtype, shape)
    return [made[id(r)] for r in roots], {names[d]: d for d in values}
