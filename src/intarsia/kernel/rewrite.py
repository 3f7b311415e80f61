"""Rebuilding primitive graphs: putting one in the place of another's inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from intarsia.graph.dtypes import DType
from intarsia.kernel.lang import Tensor, scalar, walk


def substitute(roots: Sequence[Tensor], leaf: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """`roots` with every `input` replaced by what `leaf` returns for it (same dtype and shape); simplifies powers."""
    made: dict[int, Tensor] = {}
    for t in walk(roots):
        if t.prim == "input":
            made[id(t)] = leaf(t)
            continue
        args = tuple(made[id(a)] for a in t.args)
        if all(a is b for a, b in zip(args, t.args, strict=True)):
            made[id(t)] = t
        else:
            made[id(t)] = simplified(Tensor(t.prim, args, t.attrs, t.dtype, t.shape))
    return [made[id(r)] for r in roots]


def replaced(roots: Sequence[Tensor], by: Mapping[int, Tensor]) -> list[Tensor]:
    """`roots` with every tensor whose id is in `by` replaced (same dtype and shape)."""
    made: dict[int, Tensor] = {}
    for t in walk(roots):
        args = tuple(made[id(a)] for a in t.args)
        same = all(a is b for a, b in zip(args, t.args, strict=True))
        made[id(t)] = by.get(id(t)) or (t if same else Tensor(t.prim, args, t.attrs, t.dtype, t.shape))
    return [made[id(r)] for r in roots]


def simplified(t: Tensor) -> Tensor:
    """x^2 = x x, x^3 = x x x, x^(1/2) = sqrt(x), x^1 = x: pow with a known exponent is an order of magnitude slower."""
    if t.prim != "pow":
        return t
    x, exponent = t.args[0], known_scalar(t.args[1])
    if exponent == 1:
        return x
    if exponent == 2:
        return Tensor("mul", (x, x), (), t.dtype, t.shape)
    if exponent == 3:
        return Tensor("mul", (Tensor("mul", (x, x), (), t.dtype, t.shape), x), (), t.dtype, t.shape)
    if exponent == 0.5 and t.dtype in (DType.FLOAT, DType.DOUBLE, DType.FLOAT16, DType.BFLOAT16):
        return Tensor("sqrt", (x,), (), t.dtype, t.shape)
    return t


def known_scalar(t: Tensor) -> float | int | bool | complex | None:
    """The one value that all elements of `t` have, where that is written in the graph."""
    while t.prim in ("broadcast", "reshape") or t.prim == "cast" and t.dtype.is_floating:
        t = t.args[0]
    return t.attrs[0] if t.prim == "scalar" else None


def inputs_of(roots: Sequence[Tensor]) -> list[Tensor]:
    """The distinct `input`s, by their first attribute, in order of appearance."""
    found: dict[object, Tensor] = {}
    for t in walk(roots):
        if t.prim == "input":
            found.setdefault(t.attrs[0], t)
    return list(found.values())


def as_scalar(value: float | int | bool, dtype: DType, shape: Sequence[int]) -> Tensor:
    """A constant of one element with the shape of the tensor that it stands for."""
    t = scalar(value, dtype)
    return t if not shape else Tensor("reshape", (t,), (), dtype, tuple(shape))
