"""Rebuilding primitive graphs: putting one instead of another's inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.primitives.lang import Tensor, scalar, walk


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
    while t.prim in ("broadcast", "expand", "reshape") or t.prim == "cast" and t.dtype.is_floating:
        t = t.args[0]
    return t.attrs[0] if t.prim == "scalar" else None


def inputs_of(roots: Sequence[Tensor]) -> list[Tensor]:
    """The distinct `input`s, by their first attribute, in order of appearance."""
    found: dict[object, Tensor] = {}
    for t in walk(roots):
        if t.prim == "input":
            found.setdefault(t.attrs[0], t)
    return list(found.values())


def as_scalar(value: float | int | bool, dtype: DType, shape: Sequence[Dim]) -> Tensor:
    """A constant of one element with the shape of the tensor that it stands for."""
    t = scalar(value, dtype)
    return t if not shape else Tensor("reshape", (t,), (), dtype, tuple(shape))


class Quantized(NamedTuple):
    """round(x) + zero, within [low, high]: what becomes an 8-bit integer. `add` is the sum, None where zero is 0."""

    x: Tensor
    add: Tensor | None
    low: float
    high: float


def quantized(t: Tensor) -> Quantized | None:
    """The parts of `cast(min(max(round(x) + zero, low), high))` to an 8-bit integer, if `t` is that of float32 numbers."""
    if t.prim != "cast" or t.dtype not in (DType.UINT8, DType.INT8) or t.args[0].dtype is not DType.FLOAT:
        return None
    limits = []
    inner = t.args[0]
    for prim in ("min", "max"):
        if inner.prim != prim:
            return None
        limits.append(known_scalar(inner.args[1]))
        inner = inner.args[0]
    total = inner if inner.prim == "add" else None
    rounded = inner.args[0] if total is not None else inner
    exact = (-128, 127) if t.dtype is DType.INT8 else (0, 255)
    if rounded.prim != "round" or rounded.shape != t.shape or (limits[1], limits[0]) != exact:
        return None
    return Quantized(rounded.args[0], total, *exact)


def rounded_steps(t: Tensor) -> Quantized | None:
    """As `quantized` of q, if `t` is float32 of q less the zero point that it was shifted by: round(x), limited."""
    if t.prim != "cast" or t.dtype is not DType.FLOAT:
        return None
    shifted = t.args[0]
    if shifted.prim != "sub" or shifted.dtype is not DType.INT32 or any(a.prim != "cast" for a in shifted.args):
        return None
    found = quantized(shifted.args[0].args[0])
    if found is None or found.add is None:
        return None
    zeros = [_unwrapped(found.add.args[1]), _unwrapped(shifted.args[1])]
    same = all(z.prim == "input" for z in zeros) and zeros[0].attrs == zeros[1].attrs
    return found if same and zeros[0].dtype is shifted.args[0].args[0].dtype else None


def _unwrapped(t: Tensor) -> Tensor:
    while t.prim in ("cast", "broadcast", "expand", "reshape"):
        t = t.args[0]
    return t
