"""Costly values that both a reduction and the output need (softmax's powers): stored in the output until it is written.

The reduction's loop stores the value of each element where the output's element will be; the loop that computes the output
reads it there instead of computing it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from intarsia.codegen.loops.index_expr import ZERO, Index, operand_indices
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives.lang import Tensor

_COSTLY = frozenset("exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf pow atan2 fmod".split())
_Costly = dict[int, tuple[Tensor, tuple[Index, ...]]]


@dataclass(frozen=True)
class Reused:
    """A value that is stored for reuse; reduced axes are written ("v", "r0"), ("v", "r1"), ...

    Attributes:
        value, at: what the output reads, and at which indices.
        reduction, reduced_at: the reduction that computes it first.
        inside: the value's indices in the reduction.
        output: the output's indices of the element that reads it.
        place: the output's indices at which the reduction leaves it.
    """

    value: Tensor
    at: tuple[Index, ...]
    reduction: Tensor
    reduced_at: tuple[Index, ...]
    inside: tuple[Index, ...]
    output: tuple[Index, ...]
    place: tuple[Index, ...]

    @property
    def single_row(self) -> bool:
        """Whether there is one reduction for the whole output, which then one thread alone must compute, since it writes."""
        return not _variables(self.reduced_at)


def reused_value(root: Tensor, names: Sequence[str]) -> Reused | None:
    """A costly value of the output's type, one per element of `root` (at the loop variables `names`), and in a reduction."""
    if root.dtype not in (DType.FLOAT, DType.DOUBLE):
        return None
    costly: _Costly = {}
    reductions: list[tuple[Tensor, list[Index]]] = []
    _visit(root, [("v", n) for n in names], costly, reductions, root.dtype)
    wanted = {n for n, d in zip(names, root.shape, strict=True) if d != 1}
    single: dict[Index, Index] = {("v", n): ZERO for n in names if n not in wanted}
    for value, at in costly.values():
        for reduction, reduced_at in reductions:
            inside = _inside(reduction, reduced_at, value)
            binding: dict[Index, Index] = {}
            if inside is None or not _matches(substituted(inside, single), substituted(at, single), binding):
                continue
            known = wanted - {name for _, name in binding.values()}
            if len(binding) == len(reduction.attrs[1]) == len(set(binding.values())) and known <= _variables(tuple(reduced_at)):
                back = {name: reduced for reduced, name in binding.items()}
                if wanted <= _variables(at):
                    output: tuple[Index, ...] = tuple(("v", n) for n in names)
                    place = tuple(back.get(i, i) for i in output)
                    return Reused(value, at, reduction, tuple(reduced_at), inside, output, place)
    return None


def substituted(index: Index, variables: Mapping[Index, Index]) -> Index:
    """The index with variables replaced."""
    if index in variables:
        return variables[index]
    return tuple(substituted(part, variables) if isinstance(part, tuple) else part for part in index)


def _visit(t: Tensor, at: list[Index], costly: _Costly, reductions: list[tuple[Tensor, list[Index]]], dtype: DType) -> None:
    """Costly values, outermost ones first, and reductions outside of each other; a value at two places counts once."""
    if t.prim == "reduce":
        reductions.append((t, at))
        return
    if t.prim in _COSTLY and t.dtype is dtype:
        costly.setdefault(id(t), (t, tuple(at)))
    for operand, where in operand_indices(t, at):
        _visit(operand, where, costly, reductions, dtype)


def _inside(reduction: Tensor, at: Sequence[Index], value: Tensor) -> tuple[Index, ...] | None:
    """The indices of `value` where the reduction needs it, if it does."""
    remaining, axes = iter(at), reduction.attrs[1]
    x = reduction.args[0]
    where = [("v", f"r{axes.index(i)}") if i in axes else next(remaining) for i in range(x.rank)]
    costly: _Costly = {}
    _visit(x, where, costly, [], value.dtype)
    found = costly.get(id(value))
    return None if found is None else found[1]


def _matches(inside: Index, at: Index, binding: dict[Index, Index]) -> bool:
    """Whether `inside` is `at` once its reduced axes are named as in `binding`, which is filled in."""
    if len(inside) == 2 and inside[0] == "v" and str(inside[1]).startswith("r"):
        return at[0] == "v" and binding.setdefault(inside, at) == at
    if len(inside) != len(at):
        return False
    pairs = zip(inside, at, strict=True)
    return all(_matches(a, b, binding) if isinstance(a, tuple) and isinstance(b, tuple) else a == b for a, b in pairs)


def _variables(index: Index) -> set[str]:
    if len(index) == 2 and index[0] == "v":
        return {index[1]}
    return set().union(*(_variables(part) for part in index if isinstance(part, tuple)))
