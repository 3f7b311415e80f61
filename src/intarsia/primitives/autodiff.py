"""Reverse-mode differentiation of primitive graphs: one rule per primitive.

A rule gets the primitive's result `t`, the cotangent `g` of that result (the derivative of the target by each of its elements)
and `need`, which of its operands want one, and returns the operands' cotangents (None: zero). What is constant
almost everywhere (comparisons, rounding, indices) passes nothing on. Where a maximum is reached by several elements, they share
its cotangent evenly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from intarsia.graph.dims import Dim, Expr, product
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.lang import DefinitionError, SymbolicValueError, Tensor

Cotangents = Sequence[Tensor | None]
Rule = Callable[[Tensor, Tensor, Sequence[bool]], Cotangents]


def gradient(roots: Sequence[Tensor], cotangents: Sequence[Tensor | None], sources: Sequence[Tensor]) -> list[Tensor | None]:
    """Cotangents of `sources` (nodes of the roots' graph, by identity), given those of `roots`; None: zero everywhere.

    Raises:
        DefinitionError: a primitive on the way has no derivative (complex numbers, reinterpreted bits).
        SymbolicValueError: whether an axis was repeated is known only at run time.
    """
    order = k.walk(roots)
    active = {id(s) for s in sources}
    for t in order:
        if t.dtype.is_floating and any(id(a) in active for a in t.args):
            active.add(id(t))
    found: dict[int, Tensor] = {}
    for root, g in zip(roots, cotangents, strict=True):
        if g is not None and id(root) in active:
            _collect(found, root, g)
    leaves = {id(s) for s in sources}
    for t in reversed(order):
        if id(t) not in found or id(t) in leaves or not t.args:
            continue
        g = found.pop(id(t))
        need = [id(a) in active for a in t.args]
        for a, part in zip(t.args, _rule(t)(t, g, need), strict=False):
            if part is not None and id(a) in active:
                _collect(found, a, part)
    return [found.get(id(s)) for s in sources]


def _collect(found: dict[int, Tensor], t: Tensor, g: Tensor) -> None:
    found[id(t)] = found[id(t)] + g if id(t) in found else g


def _rule(t: Tensor) -> Rule:
    if t.dtype.is_complex or t.prim not in RULES:
        raise DefinitionError(f"the primitive {t.prim} of {t.dtype.onnx_name} has no derivative")
    return RULES[t.prim]


# --- element-wise -------------------------------------------------------------------------------------------------


def _square(x: Tensor) -> Tensor:
    return x * x


def _log(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    return (g / t.args[0],)


def _exp(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    return (k.select(k.equal(g, 0), 0, g * t),)  # exp may overflow where nothing depends on it, as in 1 / (1 + exp(-x))


def _by(derivative: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    """A function of one argument whose derivative is `derivative(x, y)`."""
    return lambda t, g, need: (g * derivative(t.args[0], t),)


def _mul(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    a, b = t.args
    return g * b if need[0] else None, g * a if need[1] else None


def _div(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    b = t.args[1]
    part = g / b
    return part if need[0] else None, -(part * t) if need[1] else None


def _mod(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    """a - b floor(a / b); fmod cuts the quotient off instead."""
    a, b = t.args
    if not need[1]:
        return g, None
    quotient = a / b
    whole = k.unary("floor", quotient)
    if t.prim == "fmod":
        whole = k.select(quotient < 0, k.unary("ceil", quotient), whole)
    return g if need[0] else None, -(g * whole)


def _pow(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    """b a^(b-1), which is 0 for b = 0; a^b log a, which is 0 for a = 0."""
    a, b = t.args
    left = right = None
    if need[0]:
        left = g * k.select(k.equal(b, 0), 0, b * k.power(a, b - 1))
    if need[1]:
        right = g * k.select(k.equal(a, 0), 0, t * k.log(a))
    return left, right


def _extreme(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    """All to the operand that is chosen, half to each where they are equal."""
    a, b = t.args
    first = a < b if t.prim == "min" else b < a
    second = b < a if t.prim == "min" else a < b
    half = g * 0.5
    return (
        k.select(first, g, k.select(second, 0, half)) if need[0] else None,
        k.select(second, g, k.select(first, 0, half)) if need[1] else None,
    )


def _atan2(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    a, b = t.args
    part = g / (a * a + b * b)
    return part * b if need[0] else None, -(part * a) if need[1] else None


def _select(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    chosen = t.args[0]
    return None, k.select(chosen, g, 0) if need[1] else None, k.select(chosen, 0, g) if need[2] else None


def _cast(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    return (k.cast(g, t.args[0].dtype),)


def _constant(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    return (None,) * len(t.args)


# --- views --------------------------------------------------------------------------------------------------------


def sum_to(g: Tensor, shape: Sequence[Dim]) -> Tensor:
    """`g` summed over the axes along which a tensor of `shape` was repeated."""
    lead = g.rank - len(shape)
    axes = list(range(lead))
    for i, (have, want) in enumerate(zip(shape, g.shape[lead:], strict=True)):
        if have == want:
            continue
        if isinstance(have, Expr):
            raise SymbolicValueError(f"whether an axis of size {have} was repeated {want} times is known only at run time")
        axes.append(lead + i)
    return k.reshape(k.reduce_sum(g, axes), shape) if axes else g


def _broadcast(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    return (sum_to(g, t.args[0].shape),)


def _reshape(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    return (k.reshape(g, t.args[0].shape),)


def _transpose(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    return (k.transpose(g, [t.attrs.index(i) for i in range(len(t.attrs))]),)


def _slice(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    (x,), (starts, steps) = t.args, t.attrs
    if all(s == 1 for s in steps):
        high = [d - a - n for d, a, n in zip(x.shape, starts, t.shape, strict=True)]
        return (k.pad(g, starts, high, 0),)
    where = [
        k.iota(_only(t.shape, axis), axis) * step + k.size(start)
        for axis, (start, step) in enumerate(zip(starts, steps, strict=True))
    ]
    return (k.scatter(_zeros(x), where, g),)


def _only(shape: Sequence[Dim], axis: int) -> list[Dim]:
    """Size 1 but for one axis."""
    return [d if i == axis else 1 for i, d in enumerate(shape)]


def _zeros(x: Tensor) -> Tensor:
    return k.full(x.shape, 0, x.dtype)


def _pad(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    x, low = t.args[0], t.attrs[0]
    inner = k.strided_slice(g, low, (1,) * x.rank, x.shape)
    fill = None
    if need[1]:
        everywhere = range(x.rank)
        fill = k.reduce_sum(g, everywhere) - k.reduce_sum(inner, everywhere)
    return inner if need[0] else None, fill


def _concat(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    (axis,), at = t.attrs, 0
    parts: list[Tensor | None] = []
    start: Dim = at
    for x, wanted in zip(t.args, need, strict=True):
        starts = [start if i == axis else 0 for i in range(t.rank)]
        parts.append(k.strided_slice(g, starts, (1,) * t.rank, x.shape) if wanted else None)
        start = x.shape[axis] + start
    return parts


def _windows(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    """x[i] is element k of window o where i = o stride + k dilation: for every k, the window that has i there, if any."""
    (x,), (axes, sizes, strides, dilations) = t.args, t.attrs
    if any(d == 0 for d in t.shape):
        return (_zeros(x),)
    rank = x.rank
    whole = (*x.shape, *sizes)
    where = [k.iota(_only(whole, i), i) for i in range(rank + len(axes))]
    inside = None
    for j, (axis, stride, dilation) in enumerate(zip(axes, strides, dilations, strict=True)):
        offset = where[axis] - where[rank + j] * dilation
        window = k.binary("div", offset, stride) if stride != 1 else offset
        fits = (offset >= 0) & (window < k.size(t.shape[axis]))
        if stride != 1:
            fits = fits & k.equal(window * stride, offset)
        where[axis] = k.select(fits, window, 0)
        inside = fits if inside is None else inside & fits
    assert inside is not None, "windows have an axis"
    parts = k.select(inside, k.index(g, where), 0)
    return (k.reduce_sum(parts, range(rank, rank + len(axes))),)


# --- gathers ------------------------------------------------------------------------------------------------------


def _take(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    (x, indices), (axis,) = t.args, t.attrs
    where = []
    for i in range(x.rank):
        if i == axis:
            where.append(k.reshape(indices, (*(1,) * axis, *indices.shape, *(1,) * (x.rank - axis - 1))))
        else:
            at = i if i < axis else i + indices.rank - 1
            where.append(k.iota(_only(t.shape, at), at, indices.dtype))
    return k.scatter(_zeros(x), where, g, "add"), None


def _index(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    x, where = t.args[0], t.args[1:]
    if not where:
        return (g,)
    return k.scatter(_zeros(x), where, g, "add"), *(None,) * len(where)


def _scatter(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    x, updates, where, reduction = t.args[0], t.args[1], t.args[2:], t.attrs[0]
    left, right = _SCATTERS[reduction](t, g, x, updates, where)
    return left if need[0] else None, right if need[1] else None, *(None,) * len(where)


def _scatter_last(t: Tensor, g: Tensor, x: Tensor, updates: Tensor, where: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Of several updates of one element the last one stays."""
    number = k.reshape(k.iota((product(updates.shape),), 0), updates.shape)
    winner = k.scatter(k.full(x.shape, -1, DType.INT64), where, number)
    stays = k.equal(k.index(winner, where), number)
    return k.select(winner < 0, g, 0), k.select(stays, k.index(g, where), 0)


def _scatter_add(t: Tensor, g: Tensor, x: Tensor, updates: Tensor, where: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    return g, k.index(g, where)


def _scatter_mul(t: Tensor, g: Tensor, x: Tensor, updates: Tensor, where: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The product of the other factors: of those that are not 0, where no other one is."""
    nonzero = k.scatter(_nonzero(x), where, _nonzero(updates), "mul")
    count = k.scatter(_is_zero(x), where, _is_zero(updates), "add")

    def others(factor: Tensor, product: Tensor, zeros: Tensor) -> Tensor:
        own = k.cast(k.equal(factor, 0), DType.INT64)
        return k.select(k.equal(zeros - own, 0), product / _nonzero(factor), 0)

    left = g * others(x, nonzero, count)
    return left, k.index(g, where) * others(updates, k.index(nonzero, where), k.index(count, where))


def _nonzero(x: Tensor) -> Tensor:
    return k.select(k.equal(x, 0), 1, x)


def _is_zero(x: Tensor) -> Tensor:
    return k.cast(k.equal(x, 0), DType.INT64)


def _scatter_extreme(t: Tensor, g: Tensor, x: Tensor, updates: Tensor, where: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Evenly to all that reach the extreme."""
    mine = k.cast(k.equal(x, t), t.dtype)
    theirs = k.cast(k.equal(updates, k.index(t, where)), t.dtype)
    share = g / k.scatter(mine, where, theirs, "add")
    return k.select(k.equal(mine, 0), 0, share), k.select(k.equal(theirs, 0), 0, k.index(share, where))


_SCATTERS = {
    "none": _scatter_last, "add": _scatter_add, "mul": _scatter_mul, "min": _scatter_extreme, "max": _scatter_extreme,
}  # fmt: skip


# --- reductions ---------------------------------------------------------------------------------------------------


def _over(g: Tensor, x: Tensor, axes: Sequence[int]) -> Tensor:
    """A reduced tensor, repeated along the axes it was reduced over."""
    return k.broadcast(k.reshape(g, [1 if i in axes else d for i, d in enumerate(x.shape)]), x.shape)


def _reduce(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    (x,), (op, axes) = t.args, t.attrs
    wide = _over(g, x, axes)
    if op == "sum":
        return (wide,)
    if op == "prod":
        nonzero = _over(k.reduce(_nonzero(x), "prod", axes), x, axes)
        zeros = _over(k.reduce_sum(_is_zero(x), axes), x, axes) - _is_zero(x)
        return (k.select(k.equal(zeros, 0), wide * (nonzero / _nonzero(x)), 0),)
    reached = k.equal(x, _over(t, x, axes))
    count = k.reduce_sum(k.cast(reached, t.dtype), axes)
    return (k.select(reached, _over(g / count, x, axes), 0),)


def _scan(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    (x,), (op, axis, exclusive, reverse) = t.args, t.attrs
    if op == "sum":
        return (k.scan(g, "sum", axis, exclusive, not reverse),)
    # d y[j] / d x[i] is the running product with x[i] replaced by 1, where x[i] takes part in y[j]
    n = x.shape[axis]
    shape = (*x.shape[:axis], n, *x.shape[axis:])  # i, then the axis itself
    i, j = (k.iota(_only(shape, at), at) for at in (axis, axis + 1))
    without = k.select(k.equal(i, j), 1, k.expand_dims(x, [axis]))
    running = k.scan(k.broadcast(without, shape), "prod", axis + 1, exclusive, reverse)
    takes_part = (j < i if exclusive else j <= i) if reverse else (i < j if exclusive else i <= j)
    return (k.reduce_sum(k.select(takes_part, running * k.expand_dims(g, [axis]), 0), [axis + 1]),)


def _dot(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    left = right = None
    a, b = t.args
    if need[0]:
        other = k.cast(_turned(b), g.dtype)
        left = k.cast(sum_to(k.dot(g, other), a.shape), a.dtype)
    if need[1]:
        other = k.cast(_turned(a), g.dtype)
        right = k.cast(sum_to(k.dot(other, g), b.shape), b.dtype)
    return left, right


def _turned(x: Tensor) -> Tensor:
    return k.transpose(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


def _sort(t: Tensor, g: Tensor, need: Sequence[bool]) -> Cotangents:
    (x,), (axis, descending) = t.args, t.attrs
    order = k.sort(x, axis, descending)[1]
    where = [order if i == axis else k.iota(_only(x.shape, i), i) for i in range(x.rank)]
    return (k.scatter(_zeros(x), where, g),)


_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)

RULES: dict[str, Rule] = {
    "neg": lambda t, g, need: (-g,),
    "abs": _by(lambda x, y: k.unary("sign", x)),
    "sqrt": lambda t, g, need: (g / (t + t),),
    "exp": _exp,
    "log": _log,
    "sin": _by(lambda x, y: k.unary("cos", x)),
    "cos": _by(lambda x, y: -k.unary("sin", x)),
    "tan": _by(lambda x, y: y * y + 1),
    "asin": lambda t, g, need: (g / k.sqrt(1 - _square(t.args[0])),),
    "acos": lambda t, g, need: (-(g / k.sqrt(1 - _square(t.args[0]))),),
    "atan": lambda t, g, need: (g / (_square(t.args[0]) + 1),),
    "sinh": _by(lambda x, y: k.unary("cosh", x)),
    "cosh": _by(lambda x, y: k.unary("sinh", x)),
    "tanh": _by(lambda x, y: 1 - y * y),
    "asinh": lambda t, g, need: (g / k.sqrt(_square(t.args[0]) + 1),),
    "acosh": lambda t, g, need: (g / k.sqrt(_square(t.args[0]) - 1),),
    "atanh": lambda t, g, need: (g / (1 - _square(t.args[0])),),
    "erf": _by(lambda x, y: k.exp(-(x * x)) * _TWO_OVER_ROOT_PI),
    "add": lambda t, g, need: (g, g),
    "sub": lambda t, g, need: (g, -g),
    "mul": _mul, "div": _div, "mod": _mod, "fmod": _mod, "pow": _pow, "min": _extreme, "max": _extreme, "atan2": _atan2,
    "select": _select, "cast": _cast,
    "sign": _constant, "floor": _constant, "ceil": _constant, "round": _constant,
    "broadcast": _broadcast, "reshape": _reshape, "transpose": _transpose, "slice": _slice, "pad": _pad, "concat": _concat,
    "windows": _windows, "take": _take, "index": _index, "scatter": _scatter,
    "reduce": _reduce, "scan": _scan, "dot": _dot, "sort": _sort,
}  # fmt: skip
